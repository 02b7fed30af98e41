"""Shorter sequences from stored examples: a random window of each, a pure function of (seed, epoch, index)."""

import dataclasses

import numpy as np

from mybert.pretraining.data.batching import Examples
from mybert.pretraining.data.counter_based_random import RandomWords

_LEAST = 2
"""Minimum tokens of each segment in a window of a pair, if the segment has as many."""


def cut_randomly(examples: Examples, length: int, random: RandomWords) -> Examples:
    """Cuts the examples that are longer than `length` tokens to a contiguous window of their text.

    A window of a pair always contains the end of A and the start of B. So the next-sentence label holds, and the model
    learns from pairs at every length. The window of a single segment can be anywhere.

    Args:
        examples: `N` sequences with `T` tokens in all.
        length: tokens of a sequence, special tokens included; at least 8.
        random: words of the purpose `WINDOWS`.

    Returns:
        The same sequences, with at most `length` tokens each.
    """
    lengths = examples.lengths
    count = len(lengths)
    if lengths.max(initial=0) <= length:
        return examples
    rows = np.repeat(np.arange(count), lengths)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    second = examples.token_type_ids == 1
    size_b = np.maximum(np.bincount(rows, weights=second, minlength=count).astype(np.int64) - 1, 0)
    is_pair = size_b > 0
    specials = np.where(is_pair, 3, 2)
    size_a = lengths - size_b - specials
    kept = np.minimum(lengths, length) - specials

    least_a, least_b = np.where(is_pair, np.minimum(size_a, _LEAST), kept), np.minimum(size_b, _LEAST)
    first = np.where(is_pair, np.maximum(size_a + least_b - kept, 0), 0)
    last = np.minimum(size_a - least_a, size_a + size_b - kept)
    words = random.ragged(np.ones(count, dtype=np.int64), examples.epochs, examples.indices)
    start = first + (words % (last - first + 1).astype(np.uint64)).astype(np.int64)

    content = place - 1 - second  # position in A followed by B
    is_special = (place == 0) | (place == (size_a + 1)[rows]) | (place == (lengths - 1)[rows])
    keep = is_special | ((content >= start[rows]) & (content < (start + kept)[rows]))
    return dataclasses.replace(
        examples,
        input_ids=examples.input_ids[keep],
        token_type_ids=examples.token_type_ids[keep],
        lengths=np.minimum(lengths, length),
    )
