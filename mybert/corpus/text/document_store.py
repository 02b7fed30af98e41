"""Documents on disk: storing, reading, holding out, and grouping into blocks.

Memory holds about 100 bytes per document, never the texts.
"""

import hashlib
import json
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mybert.artifacts.manifest import write_json
from mybert.common.errors import UserError
from mybert.common.progress import Bar
from mybert.corpus.examples.segment_pairs import ONE_DOCUMENT
from mybert.corpus.settings import CorpusSettings
from mybert.corpus.text.sentences import cut_document, splitter_of
from mybert.io.documents import Document

CHARACTERS_PER_TASK = 1 << 22
_TEXTS, _FACTS = "documents.utf8", "documents.json"
# A block has at least this number of documents, for random segments, and of characters ...
_BLOCK_DOCUMENTS, _BLOCK_CHARACTERS = 64, 1 << 18
# ... unless its documents are very long: then memory is the limit.
_BLOCK_MAX_CHARACTERS, _BLOCK_MIN_DOCUMENTS = 1 << 25, 8


@dataclass(frozen=True)
class StoredDocuments:
    """Documents on disk.

    Attributes:
        folder: holds the concatenated texts in UTF-8, their offsets, and the values below.
        lengths: (documents,) number of characters.
        identities: (documents,) equal for equal texts.
        size: bytes of all texts.
        counts: `documents_read`, `documents_empty`.
        skipped: number of skipped lines by reason.
        sha256: of the texts, in order.
    """

    folder: Path
    lengths: np.ndarray
    identities: np.ndarray
    size: int
    counts: Counter[str]
    skipped: Counter[str]
    sha256: str


def store_documents(
    documents: Iterable[Document], folder: Path, settings: CorpusSettings, skipped: Counter[str]
) -> StoredDocuments:
    """Writes the documents that are not blank to `folder`. `skipped` comes from `read_documents`."""
    counts = Counter(documents_read=0, documents_empty=0)
    offsets, lengths, identities = array("q", [0]), array("q"), array("q")
    whole = hashlib.sha256()
    with open(folder / _TEXTS, "wb") as file:
        for text in _texts(documents, settings, counts):
            content = text.encode()
            digest = hashlib.blake2b(content, digest_size=8).digest()
            whole.update(digest)
            file.write(content)
            offsets.append(offsets[-1] + len(content))
            lengths.append(len(text))
            identities.append(int.from_bytes(digest, "little", signed=True))
    if not lengths:
        raise UserError(
            f"no document holds text ({counts['documents_read']} read); check the inputs and --text-column"
        )
    for name, values in (("offsets", offsets), ("lengths", lengths), ("identities", identities)):
        np.save(folder / f"{name}.npy", np.frombuffer(values, dtype=np.int64))
    write_json(folder / _FACTS, {"counts": counts, "skipped": skipped, "sha256": whole.hexdigest()})
    stored = open_stored(folder)
    assert stored is not None  # its facts have just been written
    return stored


def open_stored(folder: Path) -> StoredDocuments | None:
    """Opens the documents written by `store_documents`; None if it did not finish."""
    if not (folder / _FACTS).is_file():
        return None
    facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
    lengths, identities = np.load(folder / "lengths.npy"), np.load(folder / "identities.npy")
    size = (folder / _TEXTS).stat().st_size
    counts, skipped = Counter(facts["counts"]), Counter(facts["skipped"])
    return StoredDocuments(folder, lengths, identities, size, counts, skipped, facts["sha256"])


def _texts(documents: Iterable[Document], settings: CorpusSettings, counts: Counter[str]) -> Iterator[str]:
    split = splitter_of(settings)
    for document in Bar(documents, desc="reading", unit="documents"):
        parts = [document.text]
        if settings.split_documents > 1:
            parts = cut_document(document.text, settings.split_documents, split)
        counts["documents_read"] += 1
        for part in parts or [""]:
            if text := part.strip():
                yield text
            else:
                counts["documents_empty"] += 1


def read_stored(folder: str | Path, documents: Sequence[int] | np.ndarray) -> list[str]:
    """Reads the texts of some documents written by `store_documents`.

    They are not memory-mapped, because mapped pages count as memory of the process.
    """
    rows = np.asarray(documents, dtype=np.int64)
    offsets = np.load(Path(folder) / "offsets.npy", mmap_mode="r")
    begins, ends = offsets[rows].tolist(), offsets[rows + 1].tolist()
    del offsets  # closes the file: Windows removes no open one
    texts = []
    with open(Path(folder) / _TEXTS, "rb") as file:
        for begin, end in zip(begins, ends, strict=True):
            file.seek(begin)
            content = file.read(end - begin)
            if len(content) < end - begin:
                raise UserError(f"{file.name} is damaged: it ends early; start again without --resume")
            texts.append(content.decode())
    return texts


def in_tasks(rows: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    """Splits `rows`, which have `lengths` in characters, into ranges of about 4 million characters."""
    ends = np.flatnonzero(np.diff(np.cumsum(lengths) // CHARACTERS_PER_TASK)) + 1
    return np.split(rows, ends)


def held_out(identities: np.ndarray, settings: CorpusSettings) -> tuple[np.ndarray, np.ndarray]:
    """Splits documents into validation and training, each in a random order; returns their indices.

    Equal texts, which have equal `identities`, go to the same part. If random next segments need a second document, at
    least two different texts are held out, or none if there are fewer than four.
    """
    distinct, inverse = np.unique(identities, return_inverse=True)
    needed = 2 if settings.nsp and settings.negatives == "other-document" else 1
    if len(distinct) < needed:
        raise UserError(ONE_DOCUMENT)
    rng = np.random.default_rng([settings.seed, len(identities)])
    order = rng.permutation(len(identities))
    rank = np.empty(len(distinct), dtype=np.int64)  # of the texts, by their first document in `order`
    firsts = order[np.sort(np.unique(inverse[order], return_index=True)[1])]
    rank[inverse[firsts]] = np.arange(len(distinct))
    count = max(needed, round(len(distinct) * settings.validation_share)) if settings.validation_share else 0
    if len(distinct) - count < needed:
        count = 0
    validation = rank[inverse[order]] < count
    return order[validation], order[~validation]


def group_in_blocks(lengths: np.ndarray) -> list[tuple[int, int]]:
    """Ranges of documents, small enough to balance processes and large enough for random segments.

    `lengths` (documents,) are characters.
    """
    sums = np.concatenate([[0], np.cumsum(lengths)])
    blocks: list[tuple[int, int]] = []
    start = 0
    while start < len(lengths):
        full, huge = np.searchsorted(sums, sums[start] + [_BLOCK_CHARACTERS, _BLOCK_MAX_CHARACTERS])
        end = min(max(start + _BLOCK_DOCUMENTS, full), max(start + _BLOCK_MIN_DOCUMENTS, huge))
        if end > len(lengths):
            if blocks and len(lengths) - start < _BLOCK_DOCUMENTS:
                start = blocks.pop()[0]
            end = len(lengths)
        blocks.append((start, int(end)))
        start = int(end)
    return blocks
