"""Masked-language-model masking: exact token counts, deterministic per example.

Shapes: `N` sequences, `T` real tokens of all of them end to end, `W` words of all of them, `V` vocabulary, `R`
replacements.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from mybert.common.errors import UserError
from mybert.pretraining.data.counter_based_random import MASKS, RandomStreams
from tokenization.vocabulary_change import UNUSED

IGNORED = -100
"""The label of tokens that are not predicted; torch's cross-entropy ignores it."""


@dataclass(frozen=True)
class Masker:
    """Devlin et al. 2019, appendix A.1: 15% of the tokens are masked; 80% of these become [MASK], 10% another
    token.

    In a sequence of n real tokens, including special tokens as in the reference implementation, exactly round(n ×
    `mlm_probability`) tokens are masked (Python's `round`), at least one and at most `max_predictions`. Special tokens
    ([UNK] included) are never masked. Replacements are drawn from the vocabulary without special and [unusedN]
    tokens; as in the reference implementation, a replacement can equal the original.

    With `whole_words` all tokens of a word are masked or none. A word is a token and the `##` tokens that follow it;
    BERT's pre-tokenizer makes each punctuation mark and CJK character a word. Words are taken in random order; one
    that would exceed the number is skipped, so fewer tokens may be masked. If every word is too long, the first
    tokens of the first word are masked. The 80/10/10 rule then applies to each token.

    The result depends only on seed, epoch, example index and tokens.

    Attributes:
        maskable: (V,) bool, tokens that may be masked.
        continues: (V,) bool, `##` tokens.
        replacements: (R,) int64, tokens that replace others.
        mlm_probability: share of the real tokens, in (0, 1).
        max_predictions: maximum number of masked tokens per sequence, None for no limit.
        whole_words: mask words instead of single tokens.
        seed: in [0, 2**64).
    """

    maskable: np.ndarray
    continues: np.ndarray
    replacements: np.ndarray
    mask_token_id: int
    mlm_probability: float = 0.15
    max_predictions: int | None = None
    whole_words: bool = False
    seed: int = 0
    _random: RandomStreams = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_random", RandomStreams(self.seed, MASKS))

    @classmethod
    def from_tokenizer(cls, tokenizer: PreTrainedTokenizerBase, **rules: Any) -> "Masker":
        """Takes special, unused and `##` tokens from the vocabulary."""
        if tokenizer.mask_token_id is None:
            raise UserError("the tokenizer has no mask token; build the corpus with a BERT tokenizer")
        pieces = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        special = np.zeros(len(pieces), dtype=bool)
        special[tokenizer.all_special_ids] = True
        unused = np.array([bool(UNUSED.fullmatch(piece)) for piece in pieces])
        replacements = np.flatnonzero(~special & ~unused)
        if not len(replacements):
            raise UserError("the vocabulary has special tokens only")
        continues = np.array([piece.startswith("##") for piece in pieces]) & ~special
        return cls(~special, continues, replacements, tokenizer.mask_token_id, **rules)

    def __call__(
        self,
        input_ids: np.ndarray,
        lengths: np.ndarray,
        epochs: np.ndarray,
        indices: np.ndarray,
        mlm_probability: float | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """
        Args:
            input_ids: (T,) the sequences concatenated, with special tokens, without padding.
            lengths: (N,) tokens of each sequence.
            epochs, indices: (N,) epoch and index of each example.
            mlm_probability: in place of that of the masker.

        Returns:
            Masked ids and labels, both (T,) int64; labels are `IGNORED` where nothing is predicted.
        """
        random = self._random.ragged(2 * lengths, epochs, indices).reshape(-1, 2)
        chosen = self._choose(input_ids, lengths, random[:, 0], mlm_probability or self.mlm_probability)
        labels = np.where(chosen, input_ids, IGNORED).astype(np.int64)
        masked = input_ids.astype(np.int64)
        masked[chosen] = self._replace(masked[chosen], random[chosen, 1])
        return masked, labels

    def _choose(
        self, input_ids: np.ndarray, lengths: np.ndarray, priority: np.ndarray, mlm_probability: float
    ) -> np.ndarray:
        """(T,) bool: the tokens to label."""
        rows = np.repeat(np.arange(len(lengths)), lengths)
        candidates = self.maskable[input_ids]
        starts = candidates.copy()
        if self.whole_words:
            inside = self.continues[input_ids[1:]] & candidates[:-1] & (rows[1:] == rows[:-1])
            starts[1:] &= ~inside
        word_of = np.cumsum(starts) - 1
        first = np.flatnonzero(starts)  # (W,)
        size = np.bincount(word_of[candidates], minlength=len(first))

        budget = np.maximum(np.rint(lengths * mlm_probability), 1).astype(np.int64)
        if self.max_predictions is not None:
            budget = np.minimum(budget, self.max_predictions)
        budget = np.minimum(budget, np.bincount(rows[candidates], minlength=len(lengths)))

        taken = _take_words(rows[first], priority[first], size, budget)
        chosen = np.zeros(len(input_ids), dtype=bool)
        words = word_of[candidates]
        offset = np.flatnonzero(candidates) - first[words]  # within its word
        chosen[candidates] = taken[words] & (offset < budget[rows[candidates]])
        return chosen

    def _replace(self, originals: np.ndarray, random: np.ndarray) -> np.ndarray:
        """80% [MASK], 10% another token, 10% the original; high bits choose the action, low bits the token."""
        action, draw = random >> np.uint64(32), random & np.uint64(0xFFFFFFFF)
        replaced = self.replacements[(draw * np.uint64(len(self.replacements))) >> np.uint64(32)]
        tenth = 2**32 / 10
        return np.where(action < 8 * tenth, self.mask_token_id, np.where(action < 9 * tenth, replaced, originals))


def _take_words(rows: np.ndarray, priority: np.ndarray, size: np.ndarray, budget: np.ndarray) -> np.ndarray:
    """Takes words in order of priority while they fit into the rest of their sequence's budget.

    Args:
        rows, priority, size: (W,) sequence, random number and number of tokens of each word.
        budget: (N,) tokens to take; above 0 for each sequence that has a word.

    Returns:
        (W,) bool; at least one word of each sequence that has one, even if it exceeds the budget.
    """
    counts = np.bincount(rows, minlength=len(budget))
    columns = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    shape = (len(budget), int(counts.max(initial=0)))
    priorities = np.full(shape, np.iinfo(np.uint64).max)
    sizes = np.zeros(shape, dtype=np.int64)
    priorities[rows, columns], sizes[rows, columns] = priority, size
    order = np.argsort(priorities, axis=1)
    ranked = np.take_along_axis(sizes, order, axis=1)

    taken = np.zeros(shape, dtype=bool)
    left = budget.copy()
    for rank in range(shape[1]):
        fits = (ranked[:, rank] <= left) & (ranked[:, rank] > 0)
        taken[:, rank] = fits
        left -= ranked[:, rank] * fits
        if not left.any():
            break
    if shape[1]:
        taken[:, 0] |= (left == budget) & (budget > 0)
    unranked = np.zeros(shape, dtype=bool)
    np.put_along_axis(unranked, order, taken, axis=1)
    return unranked[rows, columns]
