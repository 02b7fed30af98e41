"""Byte-pair merging of word counts, exact and deterministic.

As for other WordPiece vocabularies of the Hugging Face ecosystem, merging starts from characters and repeatedly joins
the most frequent pair of neighbours (Sennrich et al. 2016, algorithm 1). Google never published BERT's own trainer.
The trainer of the tokenizers library is not deterministic (ties follow a hash map) and cannot start from word counts.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

PREFIX = "##"


def merge_pairs(words: Iterable[tuple[list[str], int]], min_frequency: int) -> Iterator[str]:
    """Yield the pieces created by merging, each once, in the order of creation.

    Every step joins the most frequent pair; ties are broken by code point order (left piece, then right piece). The
    order of `words` has no effect.

    Args:
        words: distinct words as lists of pieces (`p`, `##i`, `##e`, …), which are modified, with their counts.
        min_frequency: minimum count of a pair that is joined.
    """
    state = _Pairs(words)
    known = set(state.pieces)
    heap = [(-n, *state.names(pair), pair) for pair, n in state.counts.items() if n >= min_frequency]
    heapq.heapify(heap)
    while heap:
        negative, _, _, pair = heapq.heappop(heap)
        count = state.counts.get(pair, 0)
        if count != -negative:  # outdated: the count has changed since
            if min_frequency <= count < -negative:
                heapq.heappush(heap, (-count, *state.names(pair), pair))
            continue
        left, right = state.names(pair)
        piece = left + right.removeprefix(PREFIX)
        for gained in state.join(pair, piece):
            if state.counts[gained] >= min_frequency:
                heapq.heappush(heap, (-state.counts[gained], *state.names(gained), gained))
        if piece not in known:  # "ab" + "##c" and "a" + "##bc" give the same piece
            known.add(piece)
            yield piece


class _Pairs:
    """Words as lists of piece numbers, with counts and locations of each pair of neighbours.

    Attributes:
        pieces: text of each piece number.
        counts: pair → count in the whole corpus.
        places: pair → indices of words that contain it, or contained it earlier.
    """

    def __init__(self, words: Iterable[tuple[list[str], int]]):
        self.pieces: list[str] = []
        self._numbers: dict[str, int] = {}
        self._words: list[list[int]] = []
        self._frequencies: list[int] = []
        self.counts: dict[tuple[int, int], int] = defaultdict(int)
        self.places: dict[tuple[int, int], list[int]] = defaultdict(list)
        for index, (pieces, frequency) in enumerate(words):
            word = [self._number(piece) for piece in pieces]
            self._words.append(word)
            self._frequencies.append(frequency)
            for pair in pairwise(word):
                self.counts[pair] += frequency
                self.places[pair].append(index)

    def names(self, pair: tuple[int, int]) -> tuple[str, str]:
        return self.pieces[pair[0]], self.pieces[pair[1]]

    def _number(self, piece: str) -> int:
        number = self._numbers.setdefault(piece, len(self.pieces))
        if number == len(self.pieces):
            self.pieces.append(piece)
        return number

    def join(self, pair: tuple[int, int], piece: str) -> list[tuple[int, int]]:
        """Replace `pair` by `piece` in every word, from left to right; return the pairs whose counts rose."""
        joined = self._number(piece)
        changes: dict[tuple[int, int], int] = defaultdict(int)
        for index in self.places[pair]:
            self._join_in_word(index, pair, joined, changes)
        changes[pair] = -self.counts[pair]  # none remains, even if occurrences overlapped
        for changed, change in changes.items():
            self.counts[changed] += change
            if not self.counts[changed]:
                del self.counts[changed]
                self.places.pop(changed, None)
        return [changed for changed, change in changes.items() if change > 0]

    def _join_in_word(
        self, index: int, pair: tuple[int, int], joined: int, changes: dict[tuple[int, int], int]
    ) -> None:
        left, right = pair
        word, frequency = self._words[index], self._frequencies[index]
        at = 0
        while at < len(word) - 1:
            if word[at] == left and word[at + 1] == right:
                word[at : at + 2] = [joined]
                if at:
                    before = word[at - 1]
                    changes[before, left] -= frequency
                    changes[before, joined] += frequency
                    self.places[before, joined].append(index)
                if at + 1 < len(word):
                    after = word[at + 1]
                    changes[right, after] -= frequency
                    changes[joined, after] += frequency
                    self.places[joined, after].append(index)
            at += 1
