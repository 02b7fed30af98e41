"""The tokens of words: their ids, windows over them, and the logits of a word from those of its tokens."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from mybert.common.text_windows import cut_windows
from mybert.tasks.features import ROW

WORDS = "words"
"""Column of features: for each token the word whose tag it predicts, or -1."""


def tokenize_words(words: list[str], tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Token ids, and the word of each token. A word without tokens, such as a control character, becomes [UNK]."""
    encoded = tokenizer(words, add_special_tokens=False, split_special_tokens=True, return_attention_mask=False)
    tokens = [ids or [tokenizer.unk_token_id] for ids in encoded["input_ids"]]
    return [i for ids in tokens for i in ids], [word for word, ids in enumerate(tokens) for _ in ids]


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


def encode_words(
    words: list[str], tokenizer: PreTrainedTokenizerBase, length: int, stride: int, all_tokens: bool
) -> Iterator[tuple[list[int], list[int]]]:
    """For each window of a sentence, its ids with special tokens, and the column `WORDS`; see `window_words`."""
    ids, owners = tokenize_words(words, tokenizer)
    for start, end, predicted in window_words(owners, length - 2, stride, all_tokens):
        yield [tokenizer.cls_token_id, *ids[start:end], tokenizer.sep_token_id], [-1, *predicted, -1]


def word_logits(
    logits: Sequence[np.ndarray], features: Dataset, sentences: Sequence[Sequence[str]], classes: int
) -> list[np.ndarray]:
    """For each sentence (words, classes): the mean logits of the tokens that predict a word."""
    summed = [np.zeros((len(words), classes)) for words in sentences]
    counts = [np.zeros((len(words), 1)) for words in sentences]
    for row, words, outputs in zip(features[ROW][:], map(np.asarray, features[WORDS][:]), logits, strict=True):
        places = np.flatnonzero(words >= 0)
        np.add.at(summed[row], words[places], outputs[places].astype(np.float64))
        np.add.at(counts[row], words[places], 1)
    return [total / count for total, count in zip(summed, counts, strict=True)]
