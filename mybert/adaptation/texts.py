"""Texts of an adaptation: documents of the inputs; training and held-out documents on disk."""

import hashlib
import json
import random
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from mybert.adaptation.settings import TextSettings
from mybert.io.documents import read_documents


def documents(names: Sequence[str], settings: TextSettings, skipped: Counter[str] | None = None) -> Iterator[str]:
    """The documents of some inputs that hold text, without white space around it."""
    if names:
        all_documents = read_documents(
            names, text_column=settings.text_column, errors=settings.errors, skipped=skipped
        )
        yield from (text for document in all_documents if (text := document.text.strip()))


def write_texts(path: Path, texts: Iterable[str]) -> int:
    """Writes documents as JSON lines; returns their number of characters."""
    characters = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for text in texts:
            characters += len(text)
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
    return characters


def read_texts(path: Path) -> Iterator[str]:
    """The documents of a file of `write_texts`; none if it does not exist."""
    if path.is_file():
        with path.open(encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)["text"]


def held_out_texts(path: Path, share: float) -> set[bytes]:
    """Chooses documents to hold out by a hash of their text; returns their digests.

    Equal texts are held out together. If there are two different texts and `share` is above 0, at least one is held
    out.
    """
    distinct = sorted(set(map(digest, read_texts(path))))
    count = min(max(round(share * len(distinct)), 1), len(distinct) - 1) if share else 0
    return set(distinct[: max(count, 0)])


def digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def sample(read: Callable[[], Iterator[str]], characters: int, seed: int) -> Iterator[str]:
    """Yields random texts of `read`, up to this number of characters in total, in the order of `read`.

    Args:
        read: starts to read the texts; called twice.
        characters: the text that exceeds them is cut after a word.
        seed: determines which texts are chosen.
    """
    lengths = list(map(len, read()))
    taken: dict[int, int] = {}
    for index in random.Random(seed).sample(range(len(lengths)), len(lengths)):
        if characters <= 0:
            break
        taken[index] = characters
        characters -= lengths[index]
    for index, text in enumerate(read()):
        if index in taken:
            yield text if len(text) <= taken[index] else text[: taken[index]].rsplit(maxsplit=1)[0]


def passages(texts: Iterable[str], characters: int, length: int = 320) -> list[str]:
    """Passages of whole words, evenly spread over the texts.

    Args:
        characters: approximate total of all passages.
        length: maximum characters of a passage. A longer word is cut: in scripts without spaces, a whole text is one.
    """
    wrapper = textwrap.TextWrapper(length, break_on_hyphens=False)
    candidates = [passage for text in texts for passage in wrapper.wrap(" ".join(text.split()))]
    total = sum(map(len, candidates))
    wanted = min(len(candidates), -(-characters * len(candidates) // max(total, 1)))
    return [candidates[index * len(candidates) // wanted] for index in range(wanted)]
