"""Removal of near duplicates: candidates by MinHash and banding, then exact Jaccard similarity.

Signatures are those of the datasketch library (Broder 1997; Leskovec, Rajaraman, Ullman, Mining of Massive Datasets,
chapter 3). Banding may miss a similar pair; it never removes a document below the threshold.
"""

import functools
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from mybert.artifacts.engines import run_tasks
from mybert.common.languages import marks
from mybert.corpus.settings import CorpusSettings
from mybert.corpus.text.document_store import StoredDocuments, in_tasks, read_stored

_WORDS_PER_SEQUENCE = 5
_PERMUTATIONS = 128
_MAX_MISSED = 0.02  # of the pairs at the threshold
_SEQUENCES_PER_CALL = 10_000  # each has _PERMUTATIONS values in memory


def without_near_duplicates(stored: StoredDocuments, documents: np.ndarray, settings: CorpusSettings) -> np.ndarray:
    """Removes the documents linked to an earlier one by a chain of similar pairs. Indices ascend."""
    threshold, folder = settings.deduplicate_near, str(stored.folder)
    assert threshold is not None  # otherwise `select_documents` does not call this
    bands, rows = _banding(threshold)
    tasks = list(enumerate(in_tasks(documents, stored.lengths[documents])))
    write = functools.partial(_write_keys, bands=bands, rows=rows, folder=folder)
    run_tasks(write, tasks, settings, "signatures")
    pairs = documents[_candidates([_keys_file(folder, number) for number, _ in tasks], bands, len(documents))]
    if not len(pairs):
        return documents
    compare = functools.partial(_similarities, folder=folder)
    similarities = run_tasks(compare, in_tasks(pairs, stored.lengths[pairs].sum(1)), settings, "comparisons")
    similar = np.searchsorted(documents, pairs[np.concatenate(similarities) >= threshold])
    links = coo_array((np.ones(len(similar), bool), similar.T), shape=(len(documents), len(documents)))
    _, components = connected_components(links, directed=False)
    return documents[np.sort(np.unique(components, return_index=True)[1])]


def word_sequences(text: str) -> Iterator[str]:
    """The sequences of five lower-case words of a text; all words of a shorter text; a text without words itself.

    In scripts without spaces, the characters between two punctuation marks are a word.
    """
    words = _word().findall(text.lower())
    if len(words) < _WORDS_PER_SEQUENCE:
        return iter([" ".join(words) or text])
    return map(" ".join, zip(*(islice(words, start, None) for start in range(_WORDS_PER_SEQUENCE)), strict=False))


@functools.cache
def _word() -> re.Pattern[str]:
    """A word with its marks."""
    return re.compile(rf"\w[\w{marks()}]*")


def _banding(threshold: float) -> tuple[int, int]:
    """Number of bands and rows per band: the most rows that miss few similar pairs."""
    rows = max(r for r in range(1, 33) if (1 - threshold**r) ** (_PERMUTATIONS // r) <= _MAX_MISSED)
    return _PERMUTATIONS // rows, rows


def _keys_file(folder: str, number: int) -> Path:
    return Path(folder) / f"keys-{number:06d}.npy"


def _write_keys(task: tuple[int, np.ndarray], *, bands: int, rows: int, folder: str) -> None:
    """Writes (bands, documents) keys. Documents with the same key in a band are candidates."""
    number, documents = task
    signatures = np.array([_signature(text) for text in read_stored(folder, documents)], dtype=np.uint64)
    odd = np.random.default_rng(0).integers(1 << 63, size=rows, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    values = signatures[:, : bands * rows].reshape(-1, bands, rows) * odd
    np.save(_keys_file(folder, number), np.ascontiguousarray(values.sum(axis=2, dtype=np.uint64).T))


def _signature(text: str) -> np.ndarray:
    """(_PERMUTATIONS,) MinHash values of a document."""
    signature, sequences = _empty_signature().copy(), word_sequences(text)
    while some := list(islice(sequences, _SEQUENCES_PER_CALL)):
        signature.update_batch(map(str.encode, some))
    return signature.hashvalues


@functools.cache
def _empty_signature() -> Any:
    from datasketch import MinHash

    return MinHash(num_perm=_PERMUTATIONS)


def _candidates(files: list[Path], bands: int, documents: int) -> np.ndarray:
    """(pairs, 2) positions of documents: each with the first and the previous document that share a key with it."""
    pairs = np.empty(0, np.int64)
    for band in range(bands):
        keys = np.concatenate([np.load(file, mmap_mode="r")[band] for file in files])
        order = np.argsort(keys, kind="stable")
        begins = np.flatnonzero(np.diff(keys[order], prepend=~keys[order[:1]]))
        firsts = np.repeat(order[begins], np.diff(begins, append=documents))
        again = np.flatnonzero(firsts != order)
        new_pairs = [earlier * documents + order[again] for earlier in (firsts[again], order[again - 1])]
        pairs = np.unique(np.concatenate([pairs, *new_pairs]))
    return np.stack(np.divmod(pairs, documents), axis=1)


def _similarities(pairs: np.ndarray, *, folder: str) -> np.ndarray:
    """(pairs,) Jaccard similarity of the word sequences of each pair of documents."""
    texts = read_stored(folder, pairs.ravel())
    both = ((set(word_sequences(text)) for text in pair) for pair in zip(texts[::2], texts[1::2], strict=True))
    return np.array([len(one & other) / len(one | other) for one, other in both])
