"""Which tokens a model must guess: BERT's masking, exact in number and reproducible example by example.

Shapes: `N` sequences, `T` real tokens of all of them end to end, `W` words of all of them, `V` vocabulary.
"""

import re
from dataclasses import dataclass, field

import numpy as np
from transformers import PreTrainedTokenizerBase

from mybert.common.errors import UserError
from mybert.pretraining.data.counter_based_random import MASKS, RandomWords

IGNORED = -100
"""The label of a token that is not to be guessed (torch's cross-entropy leaves it out)."""
_UNUSED = re.compile(r"\[unused\d+\]")


@dataclass(frozen=True)
class Masker:
    """Devlin et al. 2019, appendix A.1: 15 % of the tokens; 80 % of them become [MASK], 10 % another token.

    Of a sequence of n real tokens, special ones counted as in the reference implementation, exactly round(n ×
    `probability`) are labelled (Python's `round`), at least one, at most `max_predictions` and never more than may be
    labelled. Special tokens ([UNK] included) are never labelled. A replacement is drawn from the whole vocabulary but
    the special and [unusedN] tokens; like the reference's, it may be the original by chance.

    With `whole_words` a word's pieces are labelled together or not at all. A word is a piece and the `##` pieces that
    follow it; BERT's pre-tokeniser makes each punctuation mark and each CJK character a word of its own. Words are
    taken in random order and one that would exceed the number is passed over, so that fewer tokens may be labelled;
    if every word is too long, the first one's leading pieces are. The 80/10/10 rule is then applied piece by piece.

    The result is a pure function of (seed, epoch, index of the example, its tokens).

    Attributes:
        maskable: (V,) bool, tokens that may be labelled.
        continues: (V,) bool, `##` pieces.
        replacements: (R,) int64, tokens to replace others by.
        mask_token_id: the id of [MASK].
        probability: share of the real tokens, in (0, 1).
        max_predictions: most labels of one sequence, None for no limit.
        whole_words: label words instead of single pieces.
        seed: in [0, 2**64).
    """

    maskable: np.ndarray
    continues: np.ndarray
    replacements: np.ndarray
    mask_token_id: int
    probability: float = 0.15
    max_predictions: int | None = None
    whole_words: bool = False
    seed: int = 0
    _words: RandomWords = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        object.__setattr__(self, "_words", RandomWords(self.seed, MASKS))

    @classmethod
    def from_tokenizer(cls, tokenizer: PreTrainedTokenizerBase, **rules) -> "Masker":
        """Reads the vocabulary's special, unused and `##` tokens.

        Raises:
            UserError: the tokenizer has no [MASK], or no ordinary token at all.
        """
        if tokenizer.mask_token_id is None:
            raise UserError("the tokenizer has no mask token; build the corpus with a BERT tokenizer")
        pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
        special = np.zeros(len(pieces), dtype=bool)
        special[tokenizer.all_special_ids] = True
        unused = np.array([bool(_UNUSED.fullmatch(piece)) for piece in pieces])
        replacements = np.flatnonzero(~special & ~unused)
        if not len(replacements):
            raise UserError("the tokenizer's vocabulary has special tokens only")
        continues = np.array([piece.startswith("##") for piece in pieces]) & ~special
        return cls(~special, continues, replacements, tokenizer.mask_token_id, **rules)

    def __call__(
        self, input_ids: np.ndarray, lengths: np.ndarray, epochs: np.ndarray, indices: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """
        Args:
            input_ids: (T,) the sequences end to end, special tokens included, without padding.
            lengths: (N,) tokens of each sequence.
            epochs, indices: (N,) which pass over the corpus, and which of its examples.

        Returns:
            Masked ids and labels, both (T,) int64; labels are `IGNORED` where nothing is to be guessed.
        """
        random = self._words.ragged(2 * lengths, epochs, indices).reshape(-1, 2)
        chosen = self._choose(input_ids, lengths, random[:, 0])
        labels = np.where(chosen, input_ids, IGNORED).astype(np.int64)
        masked = input_ids.astype(np.int64)
        masked[chosen] = self._replace(masked[chosen], random[chosen, 1])
        return masked, labels

    def _choose(self, input_ids: np.ndarray, lengths: np.ndarray, priority: np.ndarray) -> np.ndarray:
        """(T,) bool: the tokens to be guessed."""
        rows = np.repeat(np.arange(len(lengths)), lengths)
        candidates = self.maskable[input_ids]
        starts = candidates.copy()
        if self.whole_words:
            inside = self.continues[input_ids[1:]] & candidates[:-1] & (rows[1:] == rows[:-1])
            starts[1:] &= ~inside
        word_of = np.cumsum(starts) - 1
        first = np.flatnonzero(starts)  # (W,)
        size = np.bincount(word_of[candidates], minlength=len(first))

        budget = np.maximum(np.rint(lengths * self.probability), 1).astype(np.int64)
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
        """80 % [MASK], 10 % another token, 10 % the original; high bits decide which, low bits the token."""
        action, draw = random >> np.uint64(32), random & np.uint64(0xFFFFFFFF)
        replaced = self.replacements[(draw * np.uint64(len(self.replacements))) >> np.uint64(32)]
        tenth = 2**32 / 10
        return np.where(action < 8 * tenth, self.mask_token_id, np.where(action < 9 * tenth, replaced, originals))


def _take_words(rows: np.ndarray, priority: np.ndarray, size: np.ndarray, budget: np.ndarray) -> np.ndarray:
    """Takes words in order of priority while they fit into what is left of their sequence's budget.

    Args:
        rows, priority, size: (W,) the sequence, random word and number of pieces of each word.
        budget: (N,) pieces to take; above 0 for each sequence that has a word.

    Returns:
        (W,) bool; at least one word of each sequence that has any, even if it is larger than the budget.
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
