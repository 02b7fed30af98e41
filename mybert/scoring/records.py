"""Output lines of `mybert score` and their totals, for texts, minimal pairs and masked words."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from mybert.io.stored_texts import rename_taken
from mybert.scoring.scorer import Scorer, TextScore, bits_per_character
from mybert.scoring.settings import ScoreSettings

_DIGITS = 6
_OF_PAIRS = ("text_number", "source", "line", "correct")
Scored = tuple[dict[str, Any], dict[str, float]]
"""The columns of a line, and its contributions to the totals."""


def scored_lines(
    settings: ScoreSettings, scorer: Scorer, texts: list[str], others: Sequence[dict], first_number: int
) -> Iterator[Scored]:
    """
    Args:
        texts: of consecutive input rows.
        others: the other columns of these rows. The column with the second text of a pair is removed from them.
        first_number: the number of the first text.
    """
    if settings.masking == "whole-word":
        return _of_words(scorer, texts, first_number)
    within_word = settings.masking == "within-word"
    if settings.pairs is None:
        return _of_texts(scorer, texts, within_word)
    good, bad = settings.pairs.split(",")
    return _of_pairs(scorer, {good: texts, bad: [row.pop(bad) for row in others]}, within_word)


def _of_texts(scorer: Scorer, texts: list[str], within_word: bool) -> Iterator[Scored]:
    for text, found in zip(texts, scorer.texts(texts, within_word), strict=True):
        record = {
            "text": text,
            "log_probability": round(found.log_probability, _DIGITS),
            "bits_per_character": round(found.bits_per_character, _DIGITS),
            "tokens": found.tokens,
            "token_log_probabilities": found.log_probabilities.round(_DIGITS).tolist(),
        }
        yield record, _sums(found)


def _of_pairs(scorer: Scorer, texts: dict[str, list[str]], within_word: bool) -> Iterator[Scored]:
    (good, goods), (bad, bads) = texts.items()
    scores = scorer.texts([*goods, *bads], within_word)
    taken = (*_OF_PAIRS, f"{good}_log_probability", f"{bad}_log_probability")
    for one, two, *pair in zip(scores, scores[len(goods) :], goods, bads, strict=False):
        correct = one.log_probability > two.log_probability
        record = {
            **rename_taken(dict(zip(texts, pair, strict=True)), taken),
            f"{good}_log_probability": round(one.log_probability, _DIGITS),
            f"{bad}_log_probability": round(two.log_probability, _DIGITS),
            "correct": correct,
        }
        sums = {name: value + _sums(two)[name] for name, value in _sums(one).items()}
        yield record, sums | {"decided": 1, "correct": int(correct)}


def _of_words(scorer: Scorer, texts: list[str], first_number: int) -> Iterator[Scored]:
    for text, found in zip(texts, scorer.masked_words(texts, first_number), strict=True):
        bits = found.bits_per_character
        record = {
            "text": text,
            "log_probability": round(found.log_probability, _DIGITS),
            "bits_per_character": None if bits is None else round(bits, _DIGITS),
            "words": found.words,
            "word_log_probabilities": found.log_probabilities.round(_DIGITS).tolist(),
            "correct": found.correct.tolist(),
        }
        counts = {"words": len(found.words), "unknown_words": found.unknown, "characters": found.characters}
        decisions = {"decided": len(found.words), "correct": int(found.correct.sum())}
        yield record, counts | decisions | {"nats": -found.log_probability}


def _sums(found: TextScore) -> dict[str, float]:
    return {"tokens": len(found.tokens), "characters": found.characters, "nats": -found.log_probability}


def corpus_metrics(sums: Counter) -> dict[str, float]:
    """The scores of all texts together.

    Returns:
        accuracy: of pairs or masked words.
        perplexity: of whole texts, the exponential of the mean negative log-probability of a token: the
            pseudo-perplexity of Salazar et al. 2020, section 2.3.
        bits_per_character: of the texts or of the masked words.
    """
    metrics = {}
    if sums["decided"]:
        metrics["accuracy"] = sums["correct"] / sums["decided"]
    if sums["tokens"]:
        metrics["perplexity"] = math.exp(min(sums["nats"] / sums["tokens"], 700))
    if sums["characters"]:
        metrics["bits_per_character"] = bits_per_character(-sums["nats"], sums["characters"])
    return metrics
