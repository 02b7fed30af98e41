"""Long texts: windows of tokens, and pairs whose ends no model reads."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from mybert.common.errors import UserError

if TYPE_CHECKING:  # its import takes seconds
    from transformers import BatchEncoding, PreTrainedTokenizerBase


class Window(NamedTuple):
    """A window: the model reads the tokens from `start` to `end`; those from `kept_start` to `kept_end` are used."""

    start: int
    end: int
    kept_start: int
    kept_end: int


def stride_below(room: int, given: int | None, default: int) -> int:
    """The tokens that windows with `room` tokens of text share: `given`, or the default if it is None.

    Raises:
        UserError: `given` is `room` or more.
    """
    if given is not None and given >= room:
        raise UserError(f"--stride {given}: expected less than the {room} tokens of a window's text")
    return default if given is None else given


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


_CHARACTERS = 32  # read at first for each token


def encode_pairs(
    firsts: Sequence[str], seconds: Sequence[str], tokenizer: PreTrainedTokenizerBase, length: int
) -> BatchEncoding:
    """Pairs of texts, truncated to `length` tokens. A literal [SEP] in a text is text."""
    pairs = [without_unread_end(*pair, tokenizer, length) for pair in zip(firsts, seconds, strict=True)]
    firsts, seconds = map(list, zip(*pairs, strict=True))
    return tokenizer(firsts, seconds, truncation=True, max_length=length, split_special_tokens=True)


def without_unread_end(first: str, second: str, tokenizer: PreTrainedTokenizerBase, tokens: int) -> tuple[str, str]:
    """Shortens one text of a pair; truncation to `tokens` tokens ("longest first") still gives the same result.

    The tokenizers library stores the truncated tokens, for a pair in every combination of its parts, so two texts of a
    megabyte would take minutes and gigabytes. Shortening one text is enough. It is the one with fewer tokens, because
    the longer text gets the odd token. The text is cut at a space, across which the tokenisation is independent, or
    not at all.
    """
    if min(len(first), len(second)) <= 2 * _CHARACTERS * tokens or tokenizer.truncation_side != "right":
        return first, second
    if any(" " in token or "\n" in token for token in tokenizer.get_added_vocab()):
        return first, second
    if _count(first, tokenizer) <= _count(second, tokenizer):
        return _begin(first, tokenizer, tokens), second
    return first, _begin(second, tokenizer, tokens)


def _begin(text: str, tokenizer: PreTrainedTokenizerBase, tokens: int) -> str:
    """The beginning of a text up to a space; it has more than `tokens` tokens."""
    size = _CHARACTERS * tokens
    while 2 * size < len(text):
        ends = [end for end in (text.find(" ", size), text.find("\n", size)) if end >= 0]
        if not ends:
            return text
        begin = text[: min(ends)]
        if _count(begin, tokenizer) > tokens:
            return begin
        size *= 4
    return text


def _count(text: str, tokenizer: PreTrainedTokenizerBase) -> int:
    return len(tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])
