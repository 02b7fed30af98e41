"""Masked copies of texts for scoring."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from modeling_mybert.words_mybert import AddedTokens, WordSplitter
from mybert.common.text_windows import cut_windows

WORDS_PER_WINDOW = 64
"""Context of `whole-word` masking: a number of words, not of tokens, so that it is the same for every vocabulary."""

_MASKED_SHARE = 0.15


class Copy(NamedTuple):
    """A sequence with masked tokens.

    Attributes:
        ids: (L,) ids of the tokens before masking, [CLS] and [SEP] included; copies of one text share it.
        masked: positions of the masked tokens.
        scored: number of positions in `masked` that are scored, from the first on.
        row: index of the first score in the output; the others follow.
    """

    ids: np.ndarray
    masked: Sequence[int]
    scored: int
    row: int


def token_copies(
    ids: Sequence[int], word_ids: Sequence[int] | None, special_ids: tuple[int, int], size: int, row: int
) -> Iterator[Copy]:
    """One copy for each token of a text.

    Args:
        ids: token ids without special tokens.
        word_ids: number of the word of each token, to also mask the later tokens of the word (Kauf & Ivanova 2023).
            None masks each token alone (Salazar et al. 2020).
        special_ids: of [CLS] and [SEP].
        size: maximum number of text tokens of a copy; a longer text is cut into windows that overlap by half.
        row: index of the score of the first token in the output.
    """
    for start, end, kept_start, kept_end in cut_windows(len(ids), size, size // 2):
        window = np.array([special_ids[0], *ids[start:end], special_ids[1]], dtype=np.int64)
        for token in range(kept_start, kept_end):
            last = token + 1
            while word_ids is not None and last < end and word_ids[last] == word_ids[token]:
                last += 1
            yield Copy(window, range(1 + token - start, 1 + last - start), 1, row + token)


def split_words(text: str, added: AddedTokens | None = None) -> list[str]:
    """Splits a text into words at spaces, punctuation and CJK ideographs, independent of the vocabulary.

    A token that a user added is a word.
    """
    return [text[start:end] for start, end in WordSplitter(None, added)(text)]


def is_masked(document: int, word: int) -> bool:
    """Whether whole-word masking chooses this word: a hash of text number and position selects 15%."""
    digest = hashlib.sha256(f"{document} {word}".encode()).digest()
    return int.from_bytes(digest[:4], "big") < _MASKED_SHARE * 2**32


def word_copies(
    ids: Sequence[Sequence[int]], masked: Sequence[bool], special_ids: tuple[int, int], size: int, row: int
) -> Iterator[tuple[Copy, list[int]]]:
    """Windows of consecutive words in which all chosen words are masked at once.

    Args:
        ids: the token ids of each word.
        masked: whether each word is chosen. A word of no tokens, or of more than `size`, cannot be masked.
        special_ids, size, row: see `token_copies`. A window of more than `size` tokens is halved.

    Yields:
        A copy, and the word of each of its scores.
    """
    windows = [range(first, min(first + WORDS_PER_WINDOW, len(ids))) for first in range(0, len(ids), WORDS_PER_WINDOW)]
    while windows:
        window = windows.pop(0)
        if sum(len(ids[word]) for word in window) > size:
            middle = len(window) // 2
            windows[:0] = [window[:middle], window[middle:]] if middle else []
            continue
        tokens = [token for word in window for token in ids[word]]
        owners = [word for word in window for _ in ids[word]]
        places = [place for place, word in enumerate(owners, 1) if masked[word]]
        if places:
            sequence = np.array([special_ids[0], *tokens, special_ids[1]], dtype=np.int64)
            yield Copy(sequence, places, len(places), row), [owners[place - 1] for place in places]
            row += len(places)
