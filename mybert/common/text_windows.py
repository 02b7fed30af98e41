"""A text of any length as sequences that fit the model, each of its pieces kept in exactly one of them."""

import itertools
from typing import NamedTuple


class Window(NamedTuple):
    """Some consecutive pieces of a text.

    Attributes:
        start, end: the pieces that the model sees.
        kept_start, kept_end: those whose hidden states count.
    """

    start: int
    end: int
    kept_start: int
    kept_end: int


def cut_windows(length: int, size: int, overlap: int) -> list[Window]:
    """Windows over `length` pieces.

    Each piece is kept where it has most context: neighbouring windows are parted in the middle of what they share. The
    last window is moved back so that it is full too.

    Args:
        length: pieces of the text, 0 or more.
        size: pieces of a window at most.
        overlap: pieces that a window shares with the next, less than `size`.

    Returns:
        One window for a text that fits, an empty one for an empty text; the kept ranges part [0, length).
    """
    starts = [*range(0, max(length - size, 0), size - overlap), max(length - size, 0)]
    bounds = [(start, min(start + size, length)) for start in starts]
    cuts = [(start + end) // 2 for (_, end), (start, _) in itertools.pairwise(bounds)]
    kept = itertools.pairwise([0, *cuts, length])
    return [Window(*bound, *part) for bound, part in zip(bounds, kept, strict=True)]
