"""Stage 1: documents are streamed into one Arrow file, counted, held out, ordered and grouped into blocks."""

import functools
import hashlib
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
from tqdm.auto import tqdm

from mybert.common.errors import UserError
from mybert.corpus.pairs import ONE_DOCUMENT
from mybert.corpus.sentences import cut_document, one_per_line, sentence_splitter
from mybert.corpus.settings import CorpusSettings
from mybert.corpus.sources import Document

SCHEMA = pa.schema({"text": pa.large_string(), "identity": pa.int64()})
_CHARACTERS_A_WRITE = 1 << 22
# A block has at least so many documents, for a random segment to be drawn from, and so many characters ...
_BLOCK_DOCUMENTS, _BLOCK_CHARACTERS = 64, 1 << 18
# ... unless its documents are whole books: then memory is the limit.
_BLOCK_MOST_CHARACTERS, _BLOCK_FEWEST_DOCUMENTS = 1 << 25, 8


@dataclass(frozen=True)
class StoredDocuments:
    """Documents in an Arrow file.

    Attributes:
        path: of the file, one record batch for about 4 MB; see SCHEMA.
        lengths: (documents,) characters of each.
        identities: (documents,) equal for equal texts.
        counts: `documents_read`, `documents_empty`, `documents_duplicate`, `documents`, `characters`.
        sha256: over the texts read, in order.
    """

    path: Path
    lengths: np.ndarray
    identities: np.ndarray
    counts: Counter
    sha256: str


def store_documents(documents: Iterable[Document], path: Path, settings: CorpusSettings) -> StoredDocuments:
    """Writes the documents that hold text to `path`, without those that repeat another when `deduplicate` is on.

    Raises:
        UserError: none holds text.
    """
    counts = Counter(documents_read=0, documents_empty=0, documents_duplicate=0)
    lengths, identities = [], []
    whole = hashlib.sha256()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        texts, begun = [], 0

        def write() -> None:
            columns = [
                pa.array(texts, pa.large_string()),
                pa.array(identities[len(lengths) - len(texts) :], pa.int64()),
            ]
            writer.write_batch(pa.record_batch(columns, schema=SCHEMA))
            texts.clear()

        for text, identity in _wanted(documents, settings, counts, whole):
            texts.append(text)
            lengths.append(len(text))
            identities.append(identity)
            begun += len(text)
            if begun >= _CHARACTERS_A_WRITE:
                write()
                begun = 0
        if texts:
            write()
    if not lengths:
        raise UserError(
            f"no document holds text ({counts['documents_read']} read); look at the inputs and --text-column"
        )
    counts.update(documents=len(lengths), characters=sum(lengths))
    return StoredDocuments(path, np.array(lengths), np.array(identities), counts, whole.hexdigest())


def _wanted(documents, settings: CorpusSettings, counts: Counter, whole) -> Iterator[tuple[str, int]]:
    split = one_per_line if settings.one_sentence_per_line else sentence_splitter(settings.language)
    seen = set()
    for document in tqdm(documents, desc="reading", unit=" documents", unit_scale=True, mininterval=0.5):
        parts = [document.text]
        if settings.split_documents > 1:
            parts = cut_document(document.text, settings.split_documents, split)
        counts["documents_read"] += 1
        for text in parts or [""]:
            text = text.strip()
            if not text:
                counts["documents_empty"] += 1
                continue
            digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
            whole.update(digest)
            repeated = digest in seen
            seen.add(digest)
            counts["documents_duplicate"] += repeated
            if not (repeated and settings.deduplicate):
                yield text, int.from_bytes(digest, "little", signed=True)


def read_stored(path: str, documents: Iterable[int]) -> tuple[list[str], list[int]]:
    """Texts and identities of some of the documents that `store_documents` has written."""
    batches, ends = _open_stored(path)
    texts, identities = [], []
    for document in documents:
        batch = bisect_right(ends, document)
        row = document - (ends[batch - 1] if batch else 0)
        texts.append(batches[batch].column(0)[row].as_py())
        identities.append(batches[batch].column(1)[row].as_py())
    return texts, identities


@functools.lru_cache(maxsize=1)
def _open_stored(path: str) -> tuple[list[pa.RecordBatch], list[int]]:
    reader = pa.ipc.open_file(pa.memory_map(path))
    batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    return batches, list(accumulate(batch.num_rows for batch in batches))


def held_out(stored: StoredDocuments, settings: CorpusSettings) -> tuple[np.ndarray, np.ndarray]:
    """Which documents are for validation and which for training, each in a random order.

    Equal documents stay on one side. Where a wrong next segment needs a second document, at least two of different
    text are held out, and none if there are fewer than four.

    Returns:
        validation, training: indices of documents.

    Raises:
        UserError: there are no two distinct documents, though pairs need them.
    """
    distinct, inverse = np.unique(stored.identities, return_inverse=True)
    needed = 2 if settings.nsp and settings.negatives == "other-document" else 1
    if len(distinct) < needed:
        raise UserError(ONE_DOCUMENT)
    rng = np.random.default_rng([settings.seed, len(stored.lengths)])
    order = rng.permutation(len(stored.lengths))
    rank = np.empty(len(distinct), dtype=np.int64)  # texts in the order of their first document
    firsts = order[np.sort(np.unique(inverse[order], return_index=True)[1])]
    rank[inverse[firsts]] = np.arange(len(distinct))
    count = max(needed, round(len(distinct) * settings.validation_share)) if settings.validation_share else 0
    if len(distinct) - count < needed:
        count = 0
    validation = rank[inverse[order]] < count
    return order[validation], order[~validation]


def group_in_blocks(lengths: np.ndarray) -> list[tuple[int, int]]:
    """Ranges of documents, small enough to be balanced over processes, large enough for random segments.

    Args:
        lengths: (documents,) characters of each.
    """
    blocks, start, characters = [], 0, 0
    for end, length in enumerate(lengths.tolist(), 1):
        characters += length
        documents = end - start
        if (documents >= _BLOCK_DOCUMENTS and characters >= _BLOCK_CHARACTERS) or (
            documents >= _BLOCK_FEWEST_DOCUMENTS and characters >= _BLOCK_MOST_CHARACTERS
        ):
            blocks.append((start, end))
            start, characters = end, 0
    if start < len(lengths):
        if blocks and len(lengths) - start < _BLOCK_DOCUMENTS:
            start = blocks.pop()[0]
        blocks.append((start, len(lengths)))
    return blocks


def even_order(sizes: Sequence[int]) -> list[int]:
    """An order of `sizes`, given as indices, whose running sum stays near its average: processes get even shares."""
    waiting = sorted((size, index) for index, size in enumerate(sizes))
    average = sum(sizes) / max(1, len(sizes))
    order, missing = [], 0.0
    while waiting:
        missing += average
        size, index = waiting.pop(min(bisect_left(waiting, (missing, -1)), len(waiting) - 1))
        order.append(index)
        missing -= size
    return order
