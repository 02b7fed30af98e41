"""Near duplicates between two splits: exact Jaccard similarity of word pairs.

Two sets with a similarity of at least t share one of the |x| - ceil(t |x|) + 1 rarest elements of each. Only rows that
do are compared (prefix filtering, Chaudhuri et al. 2006).
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Sequence

SIMILAR = 0.7
_LEAST_PAIRS = 10  # of words; shorter texts are similar by chance
_WORDS = 200  # read of each text
_COMPARED = 200  # rows at most, for one row

Row = Sequence[str]
"""The texts of a row, in lower case and without punctuation."""


def nearly_equal(rows: Sequence[Row], others: Sequence[Row]) -> list[bool]:
    """Whether one of `others` is similar to each row in every text: equal, or equal in most of its word pairs."""
    pairs, other_pairs = [_pairs(row) for row in rows], [_pairs(row) for row in others]
    counts = Counter(itertools.chain(*pairs, *other_pairs))
    having = defaultdict(list)
    for number, some in enumerate(other_pairs):
        for pair in _rarest(some, counts):
            having[pair].append(number)
    return [
        any(
            _similar(some, other_pairs[number]) and all(map(_alike, row, others[number]))
            for number in itertools.islice(
                dict.fromkeys(itertools.chain(*(having.get(pair, ()) for pair in _rarest(some, counts)))), _COMPARED
            )
        )
        for row, some in zip(rows, pairs, strict=True)
    ]


def _pairs(row: Row) -> frozenset[tuple]:
    """The word pairs of all texts; empty for a short row."""
    pairs = frozenset(
        (text, *pair) for text, words in enumerate(row) for pair in itertools.pairwise(words.split()[:_WORDS])
    )
    return pairs if len(pairs) >= _LEAST_PAIRS else frozenset()


def _rarest(pairs: frozenset[tuple], counts: Counter) -> list[tuple]:
    size = len(pairs) - math.ceil(SIMILAR * len(pairs)) + 1 if pairs else 0
    return sorted(pairs, key=lambda pair: (counts[pair], pair))[:size]


def _similar(one: frozenset, other: frozenset) -> bool:
    shared = len(one & other)
    return shared >= SIMILAR * (len(one) + len(other) - shared)


def _alike(one: str, other: str) -> bool:
    if one == other:
        return True
    some, others = ({*itertools.pairwise(text.split()[:_WORDS])} for text in (one, other))
    return bool(some and others) and _similar(frozenset(some), frozenset(others))
