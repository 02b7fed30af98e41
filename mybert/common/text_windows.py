"""Sliding windows over a long token sequence."""

import itertools
import math
from typing import NamedTuple


class Window(NamedTuple):
    """A window: the model reads the tokens from `start` to `end`; those from `kept_start` to `kept_end` are used."""

    start: int
    end: int
    kept_start: int
    kept_end: int


def window_count(length: int, size: int, overlap: int) -> int:
    """The number of windows of `cut_windows`."""
    return 1 if length <= size else 1 + math.ceil((length - size) / (size - overlap))


def cut_windows(length: int, size: int, overlap: int) -> list[Window]:
    """Computes overlapping windows over `length` tokens.

    Each token is kept in exactly one window, the one that gives it most context: an overlap is split in the middle.
    The last window is shifted back so that it is full.

    Args:
        length: number of tokens, 0 or more.
        size: maximum number of tokens in a window.
        overlap: number of tokens that a window shares with the next; less than `size`.

    Returns:
        The windows, in order. The kept ranges partition [0, length). An empty text gives one empty window.
    """
    if length <= size:
        return [Window(0, length, 0, length)]
    starts = [*range(0, length - size, size - overlap), length - size]
    bounds = [(start, start + size) for start in starts]
    cuts = [(start + end) // 2 for (_, end), (start, _) in itertools.pairwise(bounds)]
    kept = itertools.pairwise([0, *cuts, length])
    return [Window(*bound, *part) for bound, part in zip(bounds, kept, strict=True)]
