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

Row = Sequence[str]
"""The texts of a row, in lower case and without punctuation."""


def plain_text(text: str) -> str:
    """A text of a `Row`."""
    return _NOT_WORDS.sub(" ", text.lower()).strip()


def nearly_equal(rows: Sequence[Row], others: Iterable[Row]) -> list[bool]:
    """Whether one of `others` is similar to each row in every text: equal, or equal in most of its word pairs.

    `others` are read once and may be many: only the word pairs of `rows` are kept in memory.
    """
    pairs = [_pairs(row) for row in rows]
    counts = Counter(itertools.chain(*pairs))
    having: dict[tuple[Any, ...], set[int]] = defaultdict(set)  # rows that have not been found, by their rarest pairs
    for number, some in enumerate(pairs):
        for pair in _rarest(some, counts):
            having[pair].add(number)
    similar, compared = [False] * len(rows), [0] * len(rows)
    for other in others:
        some = _pairs(other)
        for number in set().union(*(having.get(pair, ()) for pair in _rarest(some, counts))):
            similar[number] = _similar(some, pairs[number]) and all(map(_alike, rows[number], other))
            compared[number] += 1
            if similar[number] or compared[number] == _COMPARED:
                for pair in _rarest(pairs[number], counts):
                    having[pair].remove(number)
    return similar


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
