"""SQuAD's published scores (Rajpurkar et al. 2016 and 2018), and the best threshold of no answer."""

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    """Lower case, without punctuation and articles, one space between words."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(said: str, answers: Sequence[str]) -> float:
    """1 if the answer is one of `answers`, which are [""] or empty where there is none, else 0."""
    return float(any(normalise(said) == normalise(answer) for answer in _wanted(answers)))


def f1(said: str, answers: Sequence[str]) -> float:
    """The best overlap of words with one of `answers`; without words, 1 where both are without."""
    return max(_overlap(normalise(said).split(), normalise(answer).split()) for answer in _wanted(answers))


def _wanted(answers: Sequence[str]) -> list[str]:
    """Those that are more than articles and punctuation."""
    return [answer for answer in answers if normalise(answer)] or [""]


def _overlap(said: list[str], true: list[str]) -> float:
    if not said or not true:
        return float(said == true)
    common = sum((Counter(said) & Counter(true)).values())
    return 2 * common / (len(said) + len(true))


def matched(predictions: Sequence[dict], references: Sequence[dict]) -> list[tuple[dict, dict]]:
    """Each reference with the prediction of the same `id`.

    Raises:
        ValueError: a reference has no prediction.
    """
    by_id = {one["id"]: one for one in predictions}
    missing = [one["id"] for one in references if one["id"] not in by_id]
    if missing:
        raise ValueError(f"{len(missing)} questions have no prediction, such as {missing[0]!r}")
    return [(by_id[one["id"]], one) for one in references]


def best_threshold(margins: Sequence[float], answered: Sequence[float], unanswered: Sequence[float]) -> float:
    """The threshold with the best sum of scores: no answer is given where the margin is above it.

    Args:
        margins: by how much no answer scores above the best span, of each question.
        answered, unanswered: the score of each question's best span, and of no answer.

    Returns:
        Of several that are equally good the one nearest 0; a threshold lies midway between two margins.
    """
    order = np.argsort(margins, kind="stable")
    sorted_margins = np.asarray(margins, dtype=float)[order]
    gains = np.cumsum((np.asarray(answered, dtype=float) - np.asarray(unanswered, dtype=float))[order])
    gains = np.concatenate([[0.0], gains])  # with so many of the least margins answered
    bounds = np.concatenate([[sorted_margins[0] - 1], sorted_margins, [sorted_margins[-1] + 1]])
    candidates = (bounds[:-1] + bounds[1:]) / 2
    possible = np.concatenate([[True], np.diff(sorted_margins) > 0, [True]])
    best = np.flatnonzero(possible & np.isclose(gains, gains[possible].max()))
    return float(min(candidates[best], key=abs))
