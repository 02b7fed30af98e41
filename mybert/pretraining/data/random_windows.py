"""Shorter sequences from stored examples: a random window of each, a pure function of (seed, epoch, index)."""

import dataclasses

import numpy as np

from mybert.pretraining.data.batching import Examples
from mybert.pretraining.data.counter_based_random import RandomWords
from mybert.pretraining.data.masking import IGNORED

_LEAST = 3
"""Minimum tokens of a segment in a window; shorter parts are dropped."""


def cut_randomly(examples: Examples, length: int, random: RandomWords) -> Examples:
    """Cuts the examples that are longer than `length` tokens.

    A pair is cut to a contiguous window of A followed by B, with all special tokens. A window that contains
    parts of both keeps its next-sentence label: the end of A and the start of B follow each other as in the whole
    pair. A window of one segment only is [CLS] segment [SEP], and its label is ignored.

    Args:
        examples: `N` sequences with `T` tokens in all.
        length: tokens of a sequence, special tokens included.
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
    has_b = size_b > 0
    size_a = lengths - size_b - np.where(has_b, 3, 2)
    kept = np.where(lengths > length, length - np.where(has_b, 3, 2), size_a + size_b)
    words = random.ragged(np.ones(count, dtype=np.int64), examples.epochs, examples.indices)
    start = (words % (size_a + size_b - kept + 1).astype(np.uint64)).astype(np.int64)
    from_a, from_b = np.clip(size_a - start, 0, kept), np.clip(start + kept - size_a, 0, size_b)
    is_cut = lengths > length
    drops_a, drops_b = is_cut & (from_a < _LEAST) & has_b, is_cut & (from_b < _LEAST) & has_b

    content = place - 1 - second  # position in A followed by B; special tokens are handled below
    keep = (content >= start[rows]) & (content < (start + kept)[rows])
    keep &= ~np.where(second, drops_b[rows], drops_a[rows])
    end_a, end_b = place == (size_a + 1)[rows], place == (lengths - 1)[rows]
    keep = np.where(end_a, ~(drops_a | drops_b)[rows], keep)  # one [SEP] is enough for one segment
    keep = np.where(end_b | (place == 0), True, keep)

    token_types = examples.token_type_ids.copy()
    token_types[(drops_a | drops_b)[rows]] = 0
    labels = examples.next_sentence_label
    if labels is not None:
        labels = np.where(drops_a | drops_b, IGNORED, labels)
    return dataclasses.replace(
        examples,
        input_ids=examples.input_ids[keep],
        token_type_ids=token_types[keep],
        lengths=np.bincount(rows[keep], minlength=count),
        next_sentence_label=labels,
    )
