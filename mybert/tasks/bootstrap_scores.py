"""Scores of classes and numbers on many bootstrap samples of the same rows at once.

Shapes: `N` rows, `R` samples, `C` classes. `samples` is (R, N) row indices. Each score is a list of R numbers, as by
scikit-learn or scipy for each sample, but 0 where they are undefined (one class only, no variance), and macro F1 is
always over the same classes. Calling scikit-learn for each sample takes 150 times as long.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np

LABEL_COLUMNS = ("reference", "predicted", "correct", "precision", "recall", "F1")
"""Headers of the fields of `LabelScores`."""
_FEW = 100  # rows
Labelled = Set[tuple[Any, ...]]  # labels, each with the place where it occurs
Scores = dict[str, list[float]]  # of each sample, by metric
Scorer = Callable[[np.ndarray], Scores]
"""From `samples` to their scores. What does not depend on the samples is computed once, since they come in parts."""


class LabelScores(NamedTuple):
    """Scores of a label: how often it is the reference, predicted, and both."""

    true: int
    predicted: int
    right: int
    precision: float
    recall: float
    f1: float


def interval_95(
    values: Sequence[float], rows: int, is_share: bool, score: float | None = None, is_bounded: bool = False
) -> tuple[float, float] | None:
    """The 95% interval of a score from its values on bootstrap samples.

    All samples are equal if, for example, every row is right. The interval of a share of `rows` is then Wilson's, as
    in pretraining; other scores have None.

    Args:
        score: on all rows. Percentiles of fewer than 100 rows are too narrow; if it is given, they are widened as
            Student's t is (Hesterberg 2015).
        is_bounded: whether the score is between 0 and 1. Of few rows, the interval is then at least Wilson's, and that
            of a share is Wilson's.
    """
    from scipy import stats  # here, since predicting does not need it, and its import takes 0.4 s

    few, tail = score is not None and rows < _FEW, 2.5
    if few:
        quantile = stats.t.ppf(tail / 100, max(rows - 1, 1)) * math.sqrt(rows / max(rows - 1, 1))
        tail = 100 * float(stats.norm.cdf(quantile))
    low, high = np.percentile(values, (tail, 100 - tail)).tolist()
    if (is_share and low == high) or (few and is_bounded):
        lowest, highest = _wilson(low if score is None else score, rows, stats.norm.ppf(0.975))
        low, high = (lowest, highest) if is_share else (min(low, lowest), max(high, highest))
    return (low, high) if low < high else None


def _wilson(share: float, rows: int, quantile: float) -> tuple[float, float]:
    """Wilson's interval of a share of `rows`, also of F1, whose product with the rows is no whole number."""
    scale = 2 * (rows + quantile**2)
    middle = (2 * rows * share + quantile**2) / scale
    width = quantile / scale * math.sqrt(4 * rows * share * (1 - share) + quantile**2)
    return middle - width if share > 0 else 0.0, middle + width if share < 1 else 1.0


def single_label(predicted: np.ndarray, true: np.ndarray, classes: int, samples: np.ndarray) -> Scores:
    """Accuracy, F1 (mean over the classes that occur; of class 1 if there are two) and Matthews correlation."""
    right = _counts(np.where(predicted == true, true, classes), classes + 1, samples)[:, :classes]
    of_true, of_predicted = _counts(true, classes, samples), _counts(predicted, classes, samples)
    total = of_true.sum(1)
    f1, occurs = _f1_of_classes(right, of_true, of_predicted)
    scores = {"accuracy": right.sum(1) / total, "f1_macro": f1.sum(1) / max(occurs.sum(), 1)}
    if classes == 2:
        scores["f1"] = f1[:, 1]
    covariance = right.sum(1) * total - (of_true * of_predicted).sum(1)
    variances = [total**2 - (counts**2).sum(1) for counts in (of_true, of_predicted)]
    scores["matthews_correlation"] = _ratio(covariance, np.sqrt(np.prod(variances, axis=0)))
    return _as_lists({name: values[1:] for name, values in scores.items()})


def multi_label(predicted: np.ndarray, true: np.ndarray, samples: np.ndarray) -> Scores:
    """(N, C) booleans → F1 over all labels together, its mean over labels, and the share of rows all right."""
    times = _counts(np.arange(len(true)), len(true), samples)  # (1 + R, N) how often each row is in each sample
    right, of_true, of_predicted = (times @ each.astype(float) for each in (predicted & true, true, predicted))
    scores = {
        "f1_micro": _ratio(2 * right.sum(1), of_true.sum(1) + of_predicted.sum(1)),
        "f1_macro": _f1_of_classes(right, of_true, of_predicted)[0].mean(1),
        "accuracy": times @ (predicted == true).all(1) / times.sum(1),
    }
    return _as_lists({name: values[1:] for name, values in scores.items()})


def regression(predicted: np.ndarray, true: np.ndarray, samples: np.ndarray) -> Scores:
    """(N,) numbers → Pearson's and Spearman's correlation, and the mean squared error."""
    from scipy import stats  # as above

    one, other = predicted[samples], true[samples]
    ranks = stats.rankdata(one, axis=1), stats.rankdata(other, axis=1)
    scores = {"pearson": _correlation(one, other), "spearman": _correlation(*ranks)}
    return _as_lists({**scores, "mse": np.mean((one - other) ** 2, axis=1)})


def means(values: Mapping[str, Sequence[float]], samples: np.ndarray) -> Scores:
    """The mean over rows of each metric, whose values are of rows."""
    return {name: np.asarray(of_rows)[samples].mean(1).tolist() for name, of_rows in values.items()}


def best_cut(keys: np.ndarray, scores: np.ndarray, ends: tuple[float, float], nearest: float) -> float:
    """The number between two keys at which a cut has the highest score; of several, the one nearest to `nearest`.

    Args:
        keys: (n,) ascending. Equal ones are on one side.
        scores: (n + 1,) of a cut after the first 0, 1, …, n keys.
        ends: a number below the first key and one above the last.
    """
    bounds = np.concatenate([ends[:1], keys, ends[1:]])
    candidates = (bounds[:-1] + bounds[1:]) / 2
    possible = np.concatenate([[True], np.diff(keys) > 0, [True]])
    best = possible & np.isclose(scores, scores[possible].max())
    return float(min(candidates[best], key=lambda cut: abs(cut - nearest)))


def best_label_threshold(scores: np.ndarray, chosen: np.ndarray) -> float:
    """The threshold with the best micro F1; of several, the nearest to 0.5.

    `scores` are (rows, labels) probabilities; `chosen` (rows, labels) says whether a row has a label.
    """
    order = np.argsort(-scores, axis=None, kind="stable")
    hits = np.concatenate([[0], np.cumsum(chosen.ravel()[order])])
    f1 = 2 * hits / np.maximum(np.arange(len(hits)) + chosen.sum(), 1)  # if the first n are predicted
    return -best_cut(-scores.ravel()[order], f1, (-1.0, 0.0), nearest=-0.5)


def by_label(predictions: Labelled, references: Labelled) -> dict[str, LabelScores]:
    """The scores of each label, the most frequent first."""
    marks = references, predictions, predictions & references
    of_true, of_predicted, right = (Counter(label for label, *_ in each) for each in marks)
    scores = {}
    for label in sorted(of_true | of_predicted, key=lambda label: (-of_true[label], label)):
        counts = of_true[label], of_predicted[label], right[label]
        precision, recall = counts[2] / max(counts[1], 1), counts[2] / max(counts[0], 1)
        scores[label] = LabelScores(*counts, precision, recall, 2 * counts[2] / (counts[0] + counts[1]))
    return scores


def _counts(ids: np.ndarray, classes: int, samples: np.ndarray) -> np.ndarray:
    """(N,) ids → (1 + R, classes) how often each occurs in all rows, and in each sample."""
    parts = (ids, *(ids[sample] for sample in samples))
    return np.stack([np.bincount(part, minlength=classes) for part in parts]).astype(float)


def _f1_of_classes(right: np.ndarray, of_true: np.ndarray, of_predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(1 + R, C) counts → (1 + R, C) F1, and (C,) which classes occur in all rows.

    A class that a sample lacks has its F1 in all rows: without it, the mean over classes would be one over other
    classes, and the interval might not contain the score.
    """
    occurs = of_true + of_predicted > 0
    f1 = _ratio(2 * right, of_true + of_predicted)
    return np.where(occurs, f1, f1[:1]), occurs[0]


def _correlation(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(R, N), (R, N) → (R,) Pearson's correlation of each row; 0 if a row is constant."""
    constant = (np.ptp(one, axis=1) == 0) | (np.ptp(other, axis=1) == 0)
    one, other = (each - each.mean(1, keepdims=True) for each in (one, other))
    products = [(a * b).sum(1) for a, b in ((one, other), (one, one), (other, other))]
    return np.where(constant, 0.0, _ratio(products[0], np.sqrt(products[1] * products[2])))


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    below = np.asarray(below, dtype=float)
    return np.divide(above, below, out=np.zeros_like(below), where=below > 0)


def _as_lists(scores: dict[str, Any]) -> Scores:
    return {name: np.asarray(values, dtype=float).tolist() for name, values in scores.items()}
