"""Near duplicates between two splits: exact Jaccard similarity of word pairs.

Two sets with a similarity of at least t share one of the |x| - ceil(t |x|) + 1 rarest elements of each. Only rows that
do are compared (prefix filtering, Chaudhuri et al. 2006).
"""

import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

SIMILAR = 0.7
_LEAST_PAIRS = 10  # of words; shorter texts are similar by chance
_WORDS = 200  # read of each text
_COMPARED = 200  # rows at most, for one row
_NOT_WORDS = re.compile(r"[\W_]+")

Row = tuple[str, ...]
"""The texts of a row, in lower case and without punctuation."""


def plain_text(text: str) -> str:
    """A text of a `Row`."""
    return _NOT_WORDS.sub(" ", text.lower()).strip()


class SimilarRows:
    """Rows among which those similar to another one are found: equal in most word pairs, all texts and each.

    Args:
        rows: those that will be added, whose word pairs are counted.
    """

    def __init__(self, rows: Iterable[Row]):
        self._pairs = {row: _pairs(row) for row in rows}
        self._counts = Counter(itertools.chain.from_iterable(self._pairs.values()))
        self._rows: list[Row] = []
        self._having: dict[Any, list[int]] = defaultdict(list)  # rows by their rarest pairs

    def add(self, row: Row) -> None:
        for pair in _rarest(self._pairs[row], self._counts):
            self._having[pair].append(len(self._rows))
        self._rows.append(row)

    def similar(self, row: Row) -> list[int]:
        """The numbers of similar rows; of very many that share rare word pairs, some are compared."""
        pairs = self._pairs[row] if row in self._pairs else _pairs(row)
        candidates = {number for pair in _rarest(pairs, self._counts) for number in self._having.get(pair, ())}
        compared = [(number, self._rows[number]) for number in itertools.islice(candidates, _COMPARED)]
        return [n for n, other in compared if _similar(pairs, self._pairs[other]) and all(map(_alike, other, row))]


def nearly_equal(rows: Sequence[Row], others: Iterable[Row]) -> list[bool]:
    """Whether one of `others`, which are read once and may be many, is similar to each row."""
    known, found = SimilarRows(rows), set[int]()
    for row in rows:
        known.add(row)
    for other in others:
        found.update(known.similar(other))
    return [number in found for number in range(len(rows))]


def _pairs(row: Row) -> frozenset[tuple[Any, ...]]:
    """The word pairs of all texts; empty for a short row."""
    pairs = frozenset(
        (text, *pair) for text, words in enumerate(row) for pair in itertools.pairwise(words.split()[:_WORDS])
    )
    return pairs if len(pairs) >= _LEAST_PAIRS else frozenset()


def _rarest(pairs: frozenset[tuple[Any, ...]], counts: Counter[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rarest pairs, without those that are not in `counts`, which are the rarest of all."""
    known = [pair for pair in pairs if pair in counts]
    size = len(known) - math.ceil(SIMILAR * len(pairs)) + 1
    return sorted(known, key=lambda pair: (counts[pair], pair))[:size] if size > 0 else []


def _similar(one: frozenset[Any], other: frozenset[Any]) -> bool:
    shared = len(one & other)
    return shared >= SIMILAR * (len(one) + len(other) - shared)


def _alike(one: str, other: str) -> bool:
    if one == other:
        return True
    some, others = ({*itertools.pairwise(text.split()[:_WORDS])} for text in (one, other))
    return bool(some and others) and _similar(frozenset(some), frozenset(others))
