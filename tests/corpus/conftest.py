"""A tiny vocabulary, small inputs, and a function that builds a corpus."""

import random
from pathlib import Path

import datasets
import pytest
from json_files import write_lines
from transformers import BertTokenizer

from mybert import cli
from mybert.artifacts.manifest import read_manifest
from mybert.corpus.build import build_corpus
from mybert.corpus.settings import CorpusSettings
from mybert.inference import predict
from mybert.io import stored_texts

WORDS = ["time", "year", "people", "way", "day", "man", "woman", "life", "world", "school", "family", "group", "hand"]


@pytest.fixture(autouse=True)
def no_file_is_open(as_on_windows):
    """No file is open when it is renamed or removed."""


@pytest.fixture(scope="session")
def vocabulary_folder(tmp_path_factory):
    """A stock BERT tokenizer with WORDS, letters and digits."""
    characters = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters, *(f"##{c}" for c in characters), *WORDS]
    folder = tmp_path_factory.mktemp("tokenizer")
    BertTokenizer({token: number for number, token in enumerate(tokens)}).save_pretrained(folder)
    return folder


@pytest.fixture
def make_documents():
    """make_documents(count, seed=0, sentences=(1, 12), words=(1, 20)) → texts with one sentence per line."""

    def make(count, seed=0, sentences=(1, 12), words=(1, 20)):
        rng = random.Random(seed)

        def sentence():
            return " ".join(rng.choices(WORDS, k=rng.randint(*words))).capitalize() + "."

        return ["\n".join(sentence() for _ in range(rng.randint(*sentences))) for _ in range(count)]

    return make


@pytest.fixture
def write_jsonl(tmp_path):
    """write_jsonl(texts, name="documents.jsonl") → path as a string."""

    def write(texts, name="documents.jsonl"):
        return str(write_lines(tmp_path / name, [{"text": text} for text in texts]))

    return write


@pytest.fixture
def build(vocabulary_folder, tmp_path):
    """build(inputs, **settings) → (folder, training examples, validation examples or None, manifest)."""

    def run(inputs, **settings):
        defaults = {"tokenizer": str(vocabulary_folder), "output": str(tmp_path / "corpus"), "num_proc": 1}
        folder = build_corpus(CorpusSettings(inputs=inputs, **{**defaults, "one_sentence_per_line": True, **settings}))
        held = folder / "validation"
        validation = datasets.load_from_disk(str(held)) if held.is_dir() else None
        return folder, datasets.load_from_disk(str(folder)), validation, read_manifest(folder)

    return run


@pytest.fixture
def content():
    """content(folder) → bytes of each file by relative name, without manifests and reports, which have times."""

    def read(folder):
        timed = ("manifest.json", "report.html")
        files = (path for path in folder.rglob("*") if path.is_file() and path.name not in timed)
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}

    return read


@pytest.fixture
def texts(tmp_path, monkeypatch):
    """A file of 40 rows, eight parts of `mybert embed` or `predict`, and one row that cannot be used."""
    monkeypatch.setattr(stored_texts, "CHARACTERS_PER_BATCH", 60)
    monkeypatch.setattr(predict, "_ROWS_AT_ONCE", 5)
    rows = [{"text": f"the sea {'is very ' * (number % 7)}dull", "id": number} for number in range(40)]
    return write_lines(tmp_path / "texts.jsonl", [*rows, {"id": 1}])


@pytest.fixture
def run_in_parts(models):
    """A function that runs `mybert embed` or `predict` on a file and returns its exit status."""

    def run(command: str, texts: Path, output: Path, *more: str) -> int:
        model = models({"embed": "encoder", "predict": "classifier"}[command])
        words = [command, model, texts, "--errors", "skip", "--device", "cpu", "--output", output]
        return cli.main([*map(str, words), *more])

    return run
