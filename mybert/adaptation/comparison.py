"""Comparison of two models with different vocabularies on the same held-out text."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch.nn.functional import normalize

from tokenization import MyBertTokenizer, vocabulary_report
from tokenization.new_words import count_uses
from tokenization.vocabulary_change import UNUSED


class ScoresTexts(Protocol):
    """The method of `mybert.scoring.scorer.Scorer` that is used here."""

    def texts(self, texts: Sequence[str], within_word: bool = False) -> Sequence[Any]: ...
    def masked_words(self, texts: Sequence[str]) -> Sequence[Any]: ...


@dataclass(frozen=True)
class HeldOutScores:
    """Scores of a model on held-out text, comparable between models with different vocabularies.

    Attributes:
        bits_per_character: from the pseudo-log-likelihood with within-word masking (Kauf & Ivanova 2023); None without
            a head.
        masked_word_accuracy: share of masked words whose tokens all have the highest probability; None without a head.
    """

    tokens_per_word: float
    unknown_rate: float
    bits_per_character: float | None = None
    masked_word_accuracy: float | None = None


def held_out_scores(
    tokenizer: MyBertTokenizer, scorer: ScoresTexts | None, texts: Iterable[str], sample: Sequence[str]
) -> HeldOutScores:
    """Counts the words of `texts`, and scores `sample`, passages of them, if a model with a head scores texts."""
    uses = count_uses(texts, tokenizer.backend_tokenizer)
    found = vocabulary_report({word: use.count for word, use in uses.items()}, tokenizer.backend_tokenizer)
    scores = HeldOutScores(found["pieces per word"], found["unknown rate"])
    if scorer is None or not sample:
        return scores
    likelihood = scorer.texts(sample, within_word=True)
    correct = np.concatenate([score.correct for score in scorer.masked_words(sample)])
    bits = -sum(score.log_probability for score in likelihood) / np.log(2)
    return dataclasses.replace(
        scores,
        bits_per_character=bits / sum(score.characters for score in likelihood),
        masked_word_accuracy=float(correct.mean()) if len(correct) else None,
    )


def nearest_tokens(
    table: torch.Tensor, tokenizer: MyBertTokenizer, ids: Sequence[int], count: int = 5
) -> dict[str, list[str]]:
    """The nearest neighbours (cosine) of some tokens in an embedding matrix (V, H)."""
    names = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    rows = normalize(table[: len(names)].detach().float(), dim=1)
    similar = rows[list(ids)] @ rows.T
    similar[range(len(ids)), list(ids)] = -torch.inf
    similar[:, [UNUSED.fullmatch(name) is not None for name in names]] = -torch.inf
    best = similar.topk(min(count, len(names) - 1)).indices.tolist()
    return {names[index]: [names[found] for found in row] for index, row in zip(ids, best, strict=True)}
