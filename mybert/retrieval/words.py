"""BM25: the words of texts, where they occur, and the scores of texts for a query.

The formula and its numbers are those of bm25s and Lucene. bm25s stores finished scores, which change with every text
that is added. Here counts are stored, so that parts with texts of their own can be added, merged and memory mapped.

Shapes: `R` texts, `W` different words, `P` postings (pairs of a word and a text that has it).
"""

import contextlib
import functools
import hashlib
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.lib.format import open_memmap

from mybert.common.errors import UserError, needing
from mybert.common.languages import FORMATS, marks

K1, B = 0.9, 0.4
"""Of BM25, as in Anserini."""
_LISTS = {  # stop words of bm25s, stemmer of Snowball
    "en": ("EN", "porter"),
    "de": ("GERMAN", "german"),
    "nl": ("DUTCH", "dutch"),
    "fr": ("FRENCH", "french"),
    "es": ("SPANISH", "spanish"),
    "pt": ("PORTUGUESE", "portuguese"),
    "it": ("ITALIAN", "italian"),
    "ru": ("RUSSIAN", "russian"),
    "sv": ("SWEDISH", "swedish"),
    "no": ("NORWEGIAN", "norwegian"),
    "da": ("DANISH", "danish"),
    "tr": ("TURKISH", "turkish"),
    "fi": (None, "finnish"),
    "hu": (None, "hungarian"),
    "ro": (None, "romanian"),
    "ca": (None, "catalan"),
    "cs": (None, "czech"),
    "pl": (None, "polish"),
    "el": (None, "greek"),
    "id": (None, "indonesian"),
    "ar": (None, "arabic"),
    "hi": (None, "hindi"),
    "any": (None, None),
}
LANGUAGES = tuple(_LISTS)
"""Languages of `Analyzer`; `any` has neither stop words nor a stemmer."""
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_BRAHMIC = (  # letters and marks of Thai, Lao, Burmese and Khmer, which have no spaces between words
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ebd\u0ec0-\u0ece\u0edc-\u0edf"
    "\u1000-\u103f\u1050-\u108f\u109a-\u109d\ua9e0-\ua9ef\uaa60-\uaa7f\u1780-\u17d3\u17d7\u17dc\u17dd"
)
_LETTER = rf"(?:(?![{marks()}])[{_BRAHMIC}][{marks()}]*)"
"""A letter of these scripts with its marks."""
_PIECE = re.compile(rf"(?:[{_CJK}]|{_LETTER}|[^\s{_CJK}{_BRAHMIC}]+)\s*")
_SPACED = rf"[^\W{_CJK}{_BRAHMIC}]+(?:[{marks()}]+[^\W{_CJK}{_BRAHMIC}]*)*"
"""A word of a script with spaces between words, with its marks."""
_SPACED_WORD = re.compile(_SPACED)
_WORD = re.compile(rf"{_SPACED}|[{_CJK}]")
_WORD_OR_PAIR = re.compile(rf"{_WORD.pattern}|(?=({_LETTER}{_LETTER})){_LETTER}|(?<![{_BRAHMIC}{FORMATS}]){_LETTER}")
_HAS_PAIRS = re.compile(f"[{_BRAHMIC}]")
_FORMATS = re.compile(f"[{FORMATS}]")
_SAMPLE, _SAMPLE_CHARACTERS = 500, 2000  # texts from which a language is guessed
_LEAST_DIFFERENT = 4  # stop words; "dog" is one in Danish
_LEAST_SHARE = 0.05  # of stop words, below which texts are in none of the languages
_REMEMBERED = 1_000_000  # words
_ASCII_WORD = re.compile(r"\w+")  # several times as fast
_BLOCK = 1 << 20  # postings that are merged at once
_NO_HASHES = np.array([], dtype=np.uint64)


@functools.cache
def stop_words(name: str | None) -> frozenset[str]:
    """A list of bm25s; empty for None."""
    with needing("retrieval", "BM25"), _without_jax():
        import bm25s.stopwords
    return frozenset(getattr(bm25s.stopwords, f"STOPWORDS_{name}") if name else ())


@contextlib.contextmanager
def _without_jax() -> Iterator[None]:
    """Imports here do not find jax, which bm25s tries, and which then reserves most of the memory of a GPU."""
    has_jax = "jax" in sys.modules
    if not has_jax:
        sys.modules["jax"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if not has_jax:
            del sys.modules["jax"]


class Analyzer:
    """From a text to the hashes of its words: lower-cased, without stop words, stemmed.

    In scripts without spaces, each Chinese or Japanese character is a word, and each pair of neighbouring letters in
    Thai, Lao, Khmer and Burmese. Soft hyphens, ligatures and composed letters make no difference.

    Args:
        language: one of `LANGUAGES`.
    """

    def __init__(self, language: str):
        if language not in _LISTS:
            raise UserError(f"--language {language}: expected {', '.join(LANGUAGES)}")
        with needing("retrieval", "BM25"):
            import Stemmer
        self.language = language
        name, stemmer = _LISTS[language]
        self._stop_words = stop_words(name)
        self._stem = Stemmer.Stemmer(stemmer).stemWord if stemmer else str
        self._hashes: dict[str, int | None] = {}

    def hashes(self, text: str) -> list[int]:
        """The hash of each word that is no stop word."""
        known = self._hashes
        hashes = [known[word] if word in known else self._hash(word) for word in all_words(text)]
        return [value for value in hashes if value is not None]

    def spans(self, text: str, query: str) -> list[tuple[int, int]]:
        """Start and end of each word of `text` that is also in `query`, in any of its forms."""
        wanted = set(self.hashes(query))
        spans: list[tuple[int, int]] = []
        for match in _WORD_OR_PAIR.finditer(text):
            start, end = match.span(1) if match[1] else match.span()
            if not wanted.isdisjoint(self.hashes(text[start:end])):
                if spans and start < spans[-1][1]:  # pairs of letters overlap
                    start, _ = spans.pop()
                spans.append((start, end))
        return spans

    def _hash(self, word: str) -> int | None:
        lower = unicodedata.normalize("NFKC", _FORMATS.sub("", word)).lower()
        value = None
        if lower not in self._stop_words:
            digest = hashlib.blake2b(self._stem(lower).encode(errors="surrogatepass"), digest_size=8).digest()
            value = int.from_bytes(digest, "little")
        if len(self._hashes) < _REMEMBERED:
            self._hashes[word] = value
        return value


def all_words(text: str) -> list[str]:
    """The words of a text as they are written, as `Analyzer` sees them."""
    if text.isascii():
        return _ASCII_WORD.findall(text)
    if _HAS_PAIRS.search(text):
        return [match[1] or match[0] for match in _WORD_OR_PAIR.finditer(text)]
    return _WORD.findall(text)


def split_words(text: str) -> list[str]:
    """The words of a text as they are written, each with the space after it.

    In scripts without spaces, a character with its marks.
    """
    return _PIECE.findall(text)


def count_words(text: str) -> int:
    """The number of `split_words`."""
    return len(text.split() if text.isascii() else split_words(text))


def spaced_words(text: str) -> list[str]:
    """The words in lower case without punctuation, of scripts with spaces between words."""
    return (_ASCII_WORD if text.isascii() else _SPACED_WORD).findall(text.lower().replace("_", " "))


def guess_language(texts: Sequence[str]) -> str:
    """The language with the most stop words in the first texts; `any` if there are few."""
    words = [word for text in texts[:_SAMPLE] for word in text[:_SAMPLE_CHARACTERS].lower().split()]
    best, most = "any", _LEAST_SHARE * len(words)
    for language, (name, _) in _LISTS.items():
        listed = stop_words(name)
        matches = [word for word in words if word in listed]
        if len(matches) > most and len(set(matches)) >= _LEAST_DIFFERENT:
            best, most = language, len(matches)
    return best


class Postings(NamedTuple):
    """In which texts each word occurs, as arrays in memory or in mapped files.

    Attributes:
        hashes: (W,) uint64, ascending.
        starts: (W + 1,) int64: `rows[starts[w] : starts[w + 1]]` are the texts of word w.
        rows: (P,) int32, ascending within a word.
        counts: (P,) uint16: how often the word occurs in the text.
        lengths: (R,) int32: number of words of each text.
    """

    hashes: np.ndarray
    starts: np.ndarray
    rows: np.ndarray
    counts: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, texts: Iterable[str], analyzer: Analyzer) -> "Postings":
        """Counts the words of texts."""
        lengths, text_hashes = [], []
        for text in texts:
            text_hashes.append(np.array(analyzer.hashes(text), dtype=np.uint64))
            lengths.append(len(text_hashes[-1]))
        hashes, words = np.unique(np.concatenate([*text_hashes, _NO_HASHES]), return_inverse=True)
        rows = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
        pairs, counts = np.unique(words * max(len(lengths), 1) + rows, return_counts=True)
        words, rows = np.divmod(pairs, max(len(lengths), 1))
        starts = np.concatenate([[0], np.cumsum(np.bincount(words, minlength=len(hashes)))]).astype(np.int64)
        counts = np.minimum(counts, np.iinfo(np.uint16).max).astype(np.uint16)
        return cls(hashes, starts, rows.astype(np.int32), counts, np.array(lengths, dtype=np.int32))

    @classmethod
    def merged(cls, parts: Sequence["Postings"], kept: Sequence[np.ndarray], folder: Path) -> "Postings":
        """The postings of several parts, one after the other; saved, with memory for one block of postings only.

        Args:
            kept: the rows of each part that stay.
            folder: see `load`.
        """
        hashes = np.unique(np.concatenate([part.hashes for part in parts]))
        totals = np.zeros(len(hashes), dtype=np.int64)
        for words, *_ in _blocks_of_postings(parts, kept, hashes):
            totals += np.bincount(words, minlength=len(hashes))
        free = np.cumsum(totals) - totals  # the place of the next posting of each word
        used = totals > 0
        lengths = np.concatenate([part.lengths[stay] for part, stay in zip(parts, kept, strict=True)])
        size = (int(totals.sum()),)
        postings = cls(
            hashes[used],
            np.concatenate([[0], np.cumsum(totals[used])]).astype(np.int64),
            open_memmap(_path(folder, "rows"), "w+", np.int32, size),
            open_memmap(_path(folder, "counts"), "w+", np.uint16, size),
            lengths.astype(np.int32),
        )
        for words, rows, counts in _blocks_of_postings(parts, kept, hashes):
            numbers, begins, sizes = np.unique(words, return_index=True, return_counts=True)
            places = np.arange(len(words)) + np.repeat(free[numbers] - begins, sizes)
            postings.rows[places], postings.counts[places] = rows, counts
            free[numbers] += sizes
        for name in ("hashes", "starts", "lengths"):
            np.save(_path(folder, name), getattr(postings, name))
        return postings

    def save(self, folder: Path) -> None:
        for name, array in self._asdict().items():
            np.save(_path(folder, name), array)

    @classmethod
    def load(cls, folder: Path) -> "Postings":
        """The arrays in the files of `save`, memory mapped."""
        return cls(*(np.load(_path(folder, name), mmap_mode="r") for name in cls._fields))

    def places(self, word: int) -> slice:
        """The postings of the word with this hash."""
        place = int(np.searchsorted(self.hashes, np.uint64(word)))
        if place == len(self.hashes) or int(self.hashes[place]) != word:
            return slice(0, 0)
        return slice(int(self.starts[place]), int(self.starts[place + 1]))


def _path(folder: Path, name: str) -> Path:
    return folder / f"words_{name}.npy"


def _blocks_of_postings(
    parts: Sequence[Postings], kept: Sequence[np.ndarray], hashes: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields word, merged row and count of the postings that stay, a block at a time; words are places in `hashes`."""
    before = 0
    for part, stay in zip(parts, kept, strict=True):
        merged_row = np.full(len(part.lengths), -1, dtype=np.int32)
        merged_row[stay] = np.arange(before, before + len(stay))
        merged_word = np.searchsorted(hashes, part.hashes)
        for start in range(0, len(part.rows), _BLOCK):
            block = slice(start, min(start + _BLOCK, len(part.rows)))
            rows = merged_row[part.rows[block]]
            words = merged_word[np.searchsorted(part.starts, np.arange(block.start, block.stop), side="right") - 1]
            yield words[rows >= 0], rows[rows >= 0], part.counts[block][rows >= 0]
        before += len(stay)


@dataclass
class Words:
    """BM25 over one or several parts, whose texts are numbered one part after the other."""

    analyzer: Analyzer
    parts: Sequence[Postings]

    def __post_init__(self) -> None:
        self.count = sum(len(part.lengths) for part in self.parts)
        total = sum(int(part.lengths.sum(dtype=np.int64)) for part in self.parts)
        self._mean_length = max(total / max(self.count, 1), 1e-9)
        self._norms = [(K1 * (1 - B + B * part.lengths / self._mean_length)).astype(np.float32) for part in self.parts]

    @classmethod
    def of(cls, texts: Sequence[str], language: str | None = None) -> "Words":
        """BM25 over texts in memory.

        Args:
            language: one of `LANGUAGES`; None: that of most stop words.
        """
        analyzer = Analyzer(language or guess_language(texts))
        return cls(analyzer, [Postings.of(texts, analyzer)])

    def scores(self, query: str) -> np.ndarray:
        """(R,) float32: the score of each text; 0 if it has no word of the query."""
        scores = [np.zeros(len(part.lengths), dtype=np.float32) for part in self.parts]
        for word, times in Counter(self.analyzer.hashes(query)).items():
            places = [part.places(word) for part in self.parts]
            document_frequency = sum(place.stop - place.start for place in places)
            weight = np.float32(times * np.log1p((self.count - document_frequency + 0.5) / (document_frequency + 0.5)))
            for score, part, norm, place in zip(scores, self.parts, self._norms, places, strict=True):
                rows, counts = part.rows[place], part.counts[place].astype(np.float32)
                score[rows] += weight * counts / (counts + norm[rows])
        return scores[0] if len(scores) == 1 else np.concatenate([*scores, np.array([], dtype=np.float32)])


def best_rows(scores: np.ndarray, count: int) -> np.ndarray:
    """The places of the highest scores, best first; of equal scores the first."""
    if count < len(scores):
        least = np.partition(scores, len(scores) - count)[len(scores) - count]
        rows = np.flatnonzero(scores >= least)
    else:
        rows = np.arange(len(scores))
    return rows[np.argsort(-scores[rows], kind="stable")[:count]]


def best_positive(scores: np.ndarray, count: int) -> np.ndarray:
    """`best_rows` of the scores above 0, which are few of many."""
    rows = np.flatnonzero(scores)
    return rows[best_rows(scores[rows], count)]
