"""Documents are cut into passages: whole sentences up to a number of tokens, with an overlap."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from mybert.common.progress import Bar
from mybert.corpus.text.sentences import sentence_spans
from mybert.embedding.embedder import Embedder
from mybert.retrieval.collections import Texts, joined
from mybert.retrieval.encoder import Encoder
from mybert.retrieval.settings import IndexSettings

_CHARACTERS, _TEXTS = 200_000, 1000  # that are tokenised at once


def passage_sizes(tokens: int, overlap: int, encoder: Encoder) -> tuple[int, int]:
    """The tokens of a passage and of its overlap; at most a fifth if the model reads fewer than `tokens`."""
    if tokens <= encoder.room:
        return tokens, overlap
    return encoder.room, min(overlap, encoder.room // 5)


class PassageCutter:
    """Cuts texts into passages.

    Args:
        most: tokens of a passage, title included and special tokens not.
        overlap: tokens at the end of a passage, at most, that the next one begins with; whole sentences.
        language: of the sentence splitter; `any` has the rules of English.
    """

    def __init__(self, embedder: Embedder, most: int, overlap: int, language: str):
        self._backend, self._most, self._overlap, self._language = embedder.backend, most, overlap, language

    def of_documents(self, documents: Sequence[tuple[str, str]]) -> Iterator[list[tuple[int, int]]]:
        """Start and end of each passage of each document, a title and a text; one for a text that fits or is empty."""
        titles = self._lengths([title for title, _ in documents])
        lengths = self._lengths([text if len(text) < _CHARACTERS else "" for _, text in documents])
        for (_, text), of_title, length in zip(documents, titles, lengths, strict=True):
            room = max(self._most - of_title, self._most // 2)
            fits = len(text) < _CHARACTERS and length <= room
            yield [(0, len(text))] if fits else self._of_sentences(text, room)

    def title(self, title: str) -> str:
        """The beginning of a title that is encoded with each passage: at most half of its tokens."""
        most = self._most // 2
        if len(title) <= most:
            return title
        offsets = self._backend.encode(title, add_special_tokens=False).offsets
        return title[: offsets[most][0]] if len(offsets) > most else title

    def _of_sentences(self, text: str, room: int) -> list[tuple[int, int]]:
        pieces = list(self._pieces(text, room))
        spans, first = [], 0
        while first < len(pieces):
            last, total = first, 0
            while last < len(pieces) and (last == first or total + pieces[last][2] <= room):
                total += pieces[last][2]
                last += 1
            spans.append((pieces[first][0], pieces[last - 1][1]))
            if last == len(pieces):
                break
            following, shared = last, pieces[last - 1][2]
            while following - 1 > first and shared <= self._overlap:
                following -= 1
                shared += pieces[following - 1][2]
            first = following
        return spans or [(0, len(text))]

    def _pieces(self, text: str, room: int) -> Iterator[tuple[int, int, int]]:
        """Start, end and tokens of each sentence; those of more than `room` tokens are cut."""
        spans = sentence_spans(text, self._language)
        while batch := list(itertools.islice(spans, _TEXTS)):
            lengths = self._lengths([text[start:end] for start, end in batch])
            for (start, end), length in zip(batch, lengths, strict=True):
                if length <= room:
                    yield start, end, length
                else:
                    yield from self._cut(text, start, end, room)

    def _cut(self, text: str, start: int, end: int, room: int) -> Iterator[tuple[int, int, int]]:
        offsets = self._backend.encode(text[start:end], add_special_tokens=False).offsets
        bounds = [start, *(start + offsets[place][0] for place in range(room, len(offsets), room)), end]
        for number, (first, last) in enumerate(itertools.pairwise(bounds)):
            if last > first:
                yield first, last, min(room, len(offsets) - number * room)

    def _lengths(self, texts: Sequence[str]) -> list[int]:
        lengths = []
        for start in range(0, len(texts), _TEXTS):
            encoded = self._backend.encode_batch_fast(texts[start : start + _TEXTS], add_special_tokens=False)
            lengths += [len(one.ids) for one in encoded]
        return lengths


def cut_documents(
    encoder: Encoder, documents: Sequence[tuple[str, str]], sizes: tuple[int, int], language: str
) -> tuple[list[list[tuple[int, int]]], list[str]]:
    """Start and end of each passage of each document, a title and a text, and what the encoder reads of each passage.

    Args:
        sizes: of `passage_sizes`.
    """
    cutter = PassageCutter(encoder.embedder, *sizes, language)
    spans = list(cutter.of_documents(documents))
    titles = [cutter.title(title) for title, _ in documents]
    return spans, [
        joined(title, text[start:end])
        for title, (_, text), places in zip(titles, documents, spans, strict=True)
        for start, end in places
    ]


class DocumentVectors:
    """The vectors of all passages of documents, cut as `mybert index` cuts them by default.

    Args:
        language: of the sentence splitter.
    """

    def __init__(self, encoder: Encoder, documents: Texts, language: str):
        sizes = passage_sizes(IndexSettings.passage_tokens, IndexSettings.overlap, encoder)
        pairs = list(zip(documents.titles, documents.texts, strict=True))
        spans, passages = cut_documents(encoder, pairs, sizes, language)
        with Bar(total=len(passages), desc="encoding", unit="passages", leave=False) as bar:
            self._vectors = encoder.passages(passages, bar.update)
        self._firsts = list(itertools.accumulate(map(len, spans[:-1]), initial=0))

    def cosines(self, queries: np.ndarray) -> np.ndarray:
        """(Q, H) vectors of queries → (Q, documents): the cosine of the best passage (Dai and Callan 2019, MaxP)."""
        return np.maximum.reduceat(queries @ self._vectors.T, self._firsts, axis=1)
