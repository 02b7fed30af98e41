"""Tokens of the words of a sentence, and windows of a long sentence with the words that each predicts."""

import itertools
from collections.abc import Iterator, Sequence

from transformers import PreTrainedTokenizerBase

from mybert.common.text_windows import cut_windows


def window_words(
    owners: Sequence[int], size: int, stride: int, all_tokens: bool
) -> Iterator[tuple[int, int, list[int]]]:
    """Windows over the tokens of a sentence, and the words that each window predicts.

    Args:
        owners: the word of each token, ascending.
        size, stride: see `cut_windows`. A word is predicted in the window that keeps its first token.
        all_tokens: whether all tokens of a word in that window predict its tag, or its first token.

    Yields:
        The first token, the token after the last, and for each token between them the word that it predicts, or -1.
    """
    is_first = [owner != before for owner, before in zip(owners, [None, *owners], strict=False)]
    for start, end, kept_start, kept_end in cut_windows(len(owners), size, stride):
        kept = slice(kept_start, kept_end)
        words = set(itertools.compress(owners[kept], is_first[kept]))
        tokens = zip(owners[start:end], is_first[start:end], strict=True)
        yield start, end, [owner if owner in words and (first or all_tokens) else -1 for owner, first in tokens]


def tokenize_words(words: list[str], tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Token ids, and the word of each token. A word without tokens, such as a control character, becomes [UNK]."""
    encoded = tokenizer(words, add_special_tokens=False, split_special_tokens=True, return_attention_mask=False)
    tokens = [ids or [tokenizer.unk_token_id] for ids in encoded["input_ids"]]
    return [i for ids in tokens for i in ids], [word for word, ids in enumerate(tokens) for _ in ids]
