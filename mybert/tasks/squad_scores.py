"""SQuAD's published scores (Rajpurkar et al. 2016 and 2018), and the best threshold for "no answer"."""

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    """Lower case, without punctuation and articles, words separated by one space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """1 if the prediction equals one of `answers`, else 0. `answers` is empty or [""] for no answer."""
    return float(any(normalise(prediction) == normalise(answer) for answer in _normalisable(answers)))


def f1(prediction: str, answers: Sequence[str]) -> float:
    """The highest F1 of the words of the prediction and of one of `answers`; two empty texts have 1."""
    return max(_overlap(normalise(prediction).split(), normalise(answer).split()) for answer in _normalisable(answers))


def _normalisable(answers: Sequence[str]) -> list[str]:
    """The answers with more than articles and punctuation."""
    return [answer for answer in answers if normalise(answer)] or [""]


def _overlap(predicted: list[str], true: list[str]) -> float:
    if not predicted or not true:
        return float(predicted == true)
    common = sum((Counter(predicted) & Counter(true)).values())
    return 2 * common / (len(predicted) + len(true))


def best_threshold(margins: Sequence[float], answered: Sequence[float], unanswered: Sequence[float]) -> float:
    """The threshold with the highest sum of scores. "No answer" is predicted if the margin exceeds it.

    Args:
        margins: for each question, the score of "no answer" minus that of the best span.
        answered, unanswered: for each question, the score of predicting the best span, and of "no answer".

    Returns:
        The threshold nearest to 0 among equally good ones. Thresholds are midpoints between margins.
    """
    order = np.argsort(margins, kind="stable")
    sorted_margins = np.asarray(margins, dtype=float)[order]
    gains = np.cumsum((np.asarray(answered, dtype=float) - np.asarray(unanswered, dtype=float))[order])
    gains = np.concatenate([[0.0], gains])  # entry i: the i smallest margins are answered
    bounds = np.concatenate([[sorted_margins[0] - 1], sorted_margins, [sorted_margins[-1] + 1]])
    candidates = (bounds[:-1] + bounds[1:]) / 2
    possible = np.concatenate([[True], np.diff(sorted_margins) > 0, [True]])
    best = np.flatnonzero(possible & np.isclose(gains, gains[possible].max()))
    return float(min(candidates[best], key=abs))
