"""Scorer: the pseudo-log-likelihood of texts and of masked words under a masked language model.

A model that predicts masked tokens gives no probability of a text directly. Its pseudo-log-likelihood is the sum over
the tokens of log P(token | all other tokens), each predicted from a copy of the text in which it is masked (Salazar et
al. 2020, section 2). Copies are batched without padding, and the vocabulary projection runs on the scored tokens only.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Unpack

import numpy as np
import torch

from modeling_mybert import MyBertForMaskedLM
from modeling_mybert.words_mybert import AddedTokens
from mybert.common.errors import NOT_FINITE, UserError
from mybert.inference.batches import batches, packed_inputs, token_limit
from mybert.inference.checkpoint import open_checkpoint
from mybert.inference.checkpoint_tokenizer import check_max_length, trained_tokens
from mybert.scoring.masked_copies import Copy, is_masked, split_words, token_copies, word_copies
from mybert.scoring.settings import ScoringSettings
from mybert.settings.calls import settings_of, text_list

if TYPE_CHECKING:
    from mybert.settings.keywords import ScorerKeywords


@dataclass(frozen=True, eq=False)
class _Score:
    """
    Attributes:
        log_probabilities: natural logarithms, one for each token or masked word.
        characters: of the text or of the masked words.
    """

    log_probabilities: np.ndarray
    characters: int

    @property
    def log_probability(self) -> float:
        """Natural logarithm, summed over the tokens or words."""
        return float(self.log_probabilities.sum())

    @property
    def bits_per_character(self) -> float | None:
        """None without tokens or words."""
        return bits_per_character(self.log_probability, self.characters) if len(self.log_probabilities) else None


@dataclass(frozen=True, eq=False)
class TextScore(_Score):
    """The score of a text. `log_probabilities` are (tokens,)."""

    tokens: list[str]


@dataclass(frozen=True, eq=False)
class MaskedWordsScore(_Score):
    """The score of the masked words of a text.

    Attributes:
        log_probabilities: (words,) summed over the tokens of each word.
        correct: (words,) whether all tokens of the word have the highest probability; a word of unknown tokens is not.
        unknown: number of words that contain [UNK].
    """

    words: list[str]
    correct: np.ndarray
    unknown: int


def bits_per_character(log_probability: float, characters: float) -> float:
    return -log_probability / math.log(2) / characters


class Scorer:
    """A masked language model that scores texts.

    Texts contain no control tokens: `[MASK]` is read as a bracket, a word and a bracket.

    Args:
        model: folder or Hub name of a MyBERT or BERT checkpoint, or `ScoringSettings`.
        options: fields of `ScoringSettings`, where `model` is a name.

    Attributes:
        tokens_read: number of tokens read by the model so far, over all masked copies.

    Raises:
        UserError: the checkpoint has no masked-language-model head, or it or an option cannot be used.

    Example:
        >>> scorer = Scorer("model")
        >>> good, bad = scorer.texts(["The cats sleep.", "The cats sleeps."])
        >>> good.log_probability > bad.log_probability
        True
    """

    def __init__(self, model: str | PathLike[str] | ScoringSettings, **options: Unpack["ScorerKeywords"]):
        self.settings = model = settings_of(ScoringSettings, model, options)
        name = model.model
        opened = open_checkpoint(name, MyBertForMaskedLM, new_head=True, device=model.device, dtype=model.dtype)
        if opened.missing:
            raise UserError(
                f"checkpoint {name} has no masked-language-model head, which scores need; name a pretrained "
                "checkpoint, or train its head with `mybert pretrain --init-from`"
            )
        self.model, self.tokenizer = opened.model, opened.tokenizer
        check_max_length(model.max_length, self.model.config, name)
        self.backend = self.tokenizer.plain_text_backend()
        self.special_ids = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        self.size = (model.max_length or trained_tokens(self.model.config, self.tokenizer)) - 2
        self.max_tokens_per_batch = token_limit(model.max_tokens_per_batch, self.model.device)
        self.tokens_read = 0

    def texts(self, texts: Iterable[str], within_word: bool = False) -> list[TextScore]:
        """Scores every token of each text.

        Args:
            within_word: mask the later tokens of a token's word too (Kauf & Ivanova 2023), so that the first pieces of
                a rare word are not predicted from the last ones.

        Returns:
            The scores, in the order of `texts`. Equal tokens give equal scores. A text without tokens has none.
        """
        texts = text_list(texts)
        encodings = self.backend.encode_batch(texts, add_special_tokens=False)
        distinct = {tuple(encoding.ids): encoding for encoding in encodings}  # or rounding orders equal texts
        rows = dict(zip(distinct, np.cumsum([0, *map(len, distinct)]).tolist(), strict=False))
        copies: list[Copy] = []
        for ids, encoding in distinct.items():
            word_ids = encoding.word_ids if within_word else None
            copies += token_copies(ids, word_ids, self.special_ids, self.size, rows[ids]) if ids else ()
        scores, _ = self._score(copies, sum(map(len, distinct)))
        starts = [rows[tuple(encoding.ids)] for encoding in encodings]
        return [
            TextScore(scores[start : start + len(encoding)].copy(), len(text), encoding.tokens)
            for text, encoding, start in zip(texts, encodings, starts, strict=True)
        ]

    def masked_words(self, texts: Iterable[str], first_number: int = 0) -> list[MaskedWordsScore]:
        """Masks 15% of the words of each text with all their tokens, and scores them.

        Words and masks do not depend on the vocabulary, so that models with different vocabularies are compared on the
        same words; only tokens that a user added are words as well. The context is a window of 64 words.

        Args:
            first_number: the number of the first text, from which the hash chooses words.

        Returns:
            The scores, in the order of `texts`.
        """
        added = AddedTokens(self.tokenizer)
        words = [split_words(text, added) for text in text_list(texts)]
        copies, owners, bounds = list[Copy](), list[int](), [0]
        for number, text in enumerate(words, first_number):
            encodings = self.backend.encode_batch(text, add_special_tokens=False)
            masked = [is_masked(number, place) for place in range(len(text))]
            for copy, of in word_copies([e.ids for e in encodings], masked, self.special_ids, self.size, len(owners)):
                copies.append(copy)
                owners += of
            bounds.append(len(owners))
        scores, correct = self._score(copies, len(owners))
        return [
            _by_word(text, np.array(owners[start:end], dtype=np.int64), scores[start:end], correct[start:end])
            for text, start, end in zip(words, bounds, bounds[1:], strict=False)
        ]

    @torch.inference_mode()
    def _score(self, copies: Sequence[Copy], count: int) -> tuple[np.ndarray, np.ndarray]:
        """(count,) float64 log-probabilities; (count,) whether the token has the highest probability: 1, 0, or -1 for
        [UNK], which stands for any unknown token.
        """
        scores, hits = np.zeros(count), np.zeros(count, dtype=np.int8)
        for batch in batches(copies, lambda copy: len(copy.ids), self.max_tokens_per_batch):
            sequences, places, targets, rows, start = [], [], [], list[int](), 0
            for ids, masked, scored, row in batch:
                sequence = ids.copy()
                sequence[list(masked)] = self.tokenizer.mask_token_id
                sequences.append(sequence)
                places += [start + place for place in masked[:scored]]
                targets += ids[list(masked[:scored])].tolist()
                rows += range(row, row + scored)
                start += len(ids)
            self.tokens_read += start
            wanted = torch.tensor(targets, device=self.model.device)
            inputs = packed_inputs(sequences, self.model.device)
            states = self.model.bert(**inputs, tokens_to_keep=torch.tensor(places)).last_hidden_state
            logits = self.model.cls.predictions(states).float()
            log_probabilities = logits.gather(1, wanted[:, None])[:, 0] - logits.logsumexp(1)
            scores[rows] = log_probabilities.cpu().double().numpy()
            unknown = wanted == self.tokenizer.unk_token_id
            hits[rows] = torch.where(unknown, -1, (logits.argmax(1) == wanted).int()).cpu().numpy()
        if not np.isfinite(scores).all():
            raise UserError(f"{self.settings.model} gives NaN or infinite values; {NOT_FINITE}")
        return scores, hits


def _by_word(words: list[str], owners: np.ndarray, scores: np.ndarray, hits: np.ndarray) -> MaskedWordsScore:
    """Joins the scores of tokens to those of words; `owners` is the word of each token, ascending."""
    masked, first = np.unique(owners, return_index=True)
    lowest = np.minimum.reduceat(hits, first)
    names = [words[word] for word in masked.tolist()]
    characters, unknown = sum(map(len, names)), int((lowest == -1).sum())
    return MaskedWordsScore(np.add.reduceat(scores, first), characters, names, lowest == 1, unknown)
