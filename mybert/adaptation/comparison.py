"""Comparison of two models with different vocabularies on the same held-out text, and its tables."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.functional import normalize

from mybert.common.quantities import counted
from mybert.common.tables import print_table
from tokenization import MyBertTokenizer, vocabulary_report
from tokenization.new_words import count_uses
from tokenization.vocabulary_change import UNUSED

_SHOWN = 20
_SCORES = {
    "tokens_per_word": "tokens per word",
    "unknown_rate": "unknown words",
    "bits_per_character": "bits per character",
    "masked_word_accuracy": "masked-word accuracy",
}


def held_out_scores(
    tokenizer: MyBertTokenizer, scorer: Any | None, texts: Iterable[str], sample: Sequence[str]
) -> dict[str, float | None]:
    """Scores of a model on held-out text, comparable between models with different vocabularies.

    Args:
        scorer: a `mybert.scoring.scorer.Scorer`; None without a head.
        texts: their words are counted.
        sample: passages of them, which are scored.

    Returns:
        tokens_per_word, unknown_rate: of `texts`.
        bits_per_character: from the pseudo-log-likelihood with within-word masking (Kauf & Ivanova 2023); None without
            a scorer.
        masked_word_accuracy: share of masked words whose tokens all have the highest probability; None without a
            scorer.
    """
    uses = count_uses(texts, tokenizer.backend_tokenizer)
    report = vocabulary_report({word: use.count for word, use in uses.items()}, tokenizer.backend_tokenizer)
    scores = {"tokens_per_word": report["tokens per word"], "unknown_rate": report["unknown rate"]}
    bits, accuracy = None, None
    if scorer is not None and sample:
        likelihood = scorer.texts(sample, within_word=True)
        correct = np.concatenate([score.correct for score in scorer.masked_words(sample)])
        nats = -sum(score.log_probability for score in likelihood)
        bits = nats / np.log(2) / sum(score.characters for score in likelihood)
        accuracy = float(correct.mean()) if len(correct) else None
    return scores | {"bits_per_character": bits, "masked_word_accuracy": accuracy}


def nearest_tokens(
    table: torch.Tensor, tokenizer: MyBertTokenizer, ids: Sequence[int], count: int = 5
) -> dict[str, list[str]]:
    """The nearest neighbours (cosine) of some tokens in an embedding matrix (V, H)."""
    names = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    rows = normalize(table[: len(names)].detach().float(), dim=1)
    similar = rows[list(ids)] @ rows.T
    similar[range(len(ids)), list(ids)] = -torch.inf
    similar[:, [UNUSED.fullmatch(name) is not None for name in names]] = -torch.inf
    best = similar.topk(min(count, len(names) - 1)).indices.tolist()
    return {names[index]: [names[neighbour] for neighbour in row] for index, row in zip(ids, best, strict=True)}


def print_adaptation(adaptation: dict[str, Any]) -> None:
    """Prints the entry `adaptation` of results.json."""
    if words := adaptation["new_words"]:
        words = sorted(words, key=lambda word: -word["saved"])  # those of --words come first otherwise
        rows = [(word["piece"], " ".join(word["pieces"]), word["saved"]) for word in words[:_SHOWN]]
        most = f"; the {_SHOWN} that save most" if len(words) > _SHOWN else ""
        print_table(counted(len(words), "new word") + most, rows, ("word", "former word pieces", "tokens saved"))
    if nearest := adaptation.get("nearest_tokens"):
        rows = [(word, *(" ".join(values[when]) for when in ("before", "after"))) for word, values in nearest.items()]
        print_table("Nearest tokens of new words", rows, ("word", "before training", "after training"))
    rows = [
        (f"{text}: {title}", *(values[when].get(name) for when in ("before", "after")))
        for text, values in adaptation.get("held_out", {}).items()
        for name, title in _SCORES.items()
    ]
    if rows:
        print_table("Held-out text", rows, ("score", "before", "after"))
    if "domain" not in adaptation.get("held_out", {}):
        print(
            "the domain was not scored: no document is held out (give at least two, and a --validation-share above 0)"
        )
    if "general" not in adaptation.get("held_out", {}):
        print("forgetting was not measured: give general text by --general, or two documents or more by --replay")
