"""Word counts of a stream of texts, after a tokenizer's normalisation and splitting."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from tokenizers import Tokenizer

from .processes import map_unordered

Item = TypeVar("Item")
_BATCH_CHARACTERS = 4_000_000  # per job of counting, about a second
_SLICE_CHUNKS = 50_000  # per job of splitting, about a second
_MOST_CHUNKS = 3_000_000  # held in memory, about 400 MB


def count_words(
    texts: Iterable[str],
    backends: Sequence[Tokenizer],
    *,
    beyond_ascii: Sequence[Tokenizer] = (),
    num_proc: int = 1,
    progress: Callable[[int], object] | None = None,
) -> list[Counter[str]]:
    """Count the words of `texts` for each of `backends`.

    The result does not depend on the order of texts or the number of processes. Memory grows with the number of
    distinct words. Strings between spaces are counted first, then each distinct one is normalised and split once; this
    is exact because normalisation never reaches across a space.

    Args:
        texts: documents of any length, read lazily.
        backends: tokenizers with BERT's pre-tokeniser; their normalisers may differ.
        beyond_ascii: more tokenizers, for the strings between spaces that have other characters than ASCII.
        num_proc: number of processes; 1: this process.
        progress: called with each number of characters read.

    Returns:
        One counter per backend, then one per backend of `beyond_ascii`.

    Raises:
        concurrent.futures.process.BrokenProcessPool: a process was killed.
    """
    pipelines = [(backend.normalizer, backend.pre_tokenizer, True) for backend in backends]
    pipelines += [(backend.normalizer, backend.pre_tokenizer, False) for backend in beyond_ascii]
    totals: list[Counter[str]] = [Counter() for _ in pipelines]
    chunks: Counter[str] = Counter()
    for _, (characters, counts) in map_unordered(_count_chunks, batches(texts, len, _BATCH_CHARACTERS), num_proc):
        chunks.update(counts)
        if len(chunks) > _MOST_CHUNKS:
            _split_all(chunks, pipelines, totals, num_proc)
        if progress is not None:
            progress(characters)
    _split_all(chunks, pipelines, totals, num_proc)
    return totals


def batches(items: Iterable[Item], size: Callable[[Item], int], limit: int) -> Iterator[list[Item]]:
    """Consecutive items; the last item of a batch brings the sum of their sizes to `limit` or above."""
    batch, total = [], 0
    for item in items:
        batch.append(item)
        total += size(item)
        if total >= limit:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


def _count_chunks(texts: list[str]) -> tuple[int, dict[str, int]]:
    """Count the strings of `split_at_spaces`."""
    chunks: Counter[str] = Counter()
    for text in texts:
        chunks.update(split_at_spaces(text))
    del chunks[""]
    return sum(map(len, texts)), dict(chunks)


def split_at_spaces(text: str) -> list[str]:
    """The strings between spaces, tabs and line ends, also empty ones.

    The pre-tokeniser splits them at rarer spaces. `str.split` also splits at control characters, which the normaliser
    removes.
    """
    return text.replace("\t", " ").replace("\n", " ").replace("\r", " ").split(" ")


def _split_all(
    chunks: Counter[str], pipelines: list[tuple[Any, Any, bool]], totals: list[Counter[str]], num_proc: int
) -> None:
    """Split all `chunks` into words and add them to `totals`, one per pipeline."""
    items = list(chunks.items())
    chunks.clear()
    jobs = ((items[at : at + _SLICE_CHUNKS], pipelines) for at in range(0, len(items), _SLICE_CHUNKS))
    for _, counts in map_unordered(_split_chunks, jobs, num_proc):
        for total, words in zip(totals, counts, strict=True):
            total.update(words)


def _split_chunks(job: tuple[Sequence[tuple[str, int]], list[tuple[Any, Any, bool]]]) -> list[dict[str, int]]:
    chunks, pipelines = job
    counts = []
    for normalizer, pre_tokenizer, takes_ascii in pipelines:
        words: Counter[str] = Counter()
        for chunk, n in chunks:
            if not takes_ascii and chunk.isascii():
                continue
            normalized = normalizer.normalize_str(chunk)
            if normalized.isascii() and normalized.isalnum():  # one word, the most frequent case
                words[normalized] += n
            else:
                for word, _ in pre_tokenizer.pre_tokenize_str(normalized):
                    words[word] += n
        counts.append(dict(words))
    return counts
