import pytest

from tokenization import SPECIAL_TOKENS, MyBertTokenizer

PIECES = [
    *SPECIAL_TOKENS,
    *"abcdeghlnorsuw[]!,.中É",
    "hello",
    "world",
    "##s",
    "##ing",
    "mask",
    "##o",
    "un",
    "é",
    "[unused0]",
]


@pytest.fixture(scope="session")
def pieces() -> list[str]:
    return list(PIECES)


@pytest.fixture
def vocab_txt(tmp_path, pieces):
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    return path


@pytest.fixture
def tokenizer(pieces) -> MyBertTokenizer:
    return MyBertTokenizer(pieces)
