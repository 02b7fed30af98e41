"""Scores of classes and numbers on many samples of the same rows at once, for confidence intervals; and on all rows.

Shapes: `N` rows, `R` samples, `C` classes; `samples` is (R, N), row numbers. Each score is a list of R numbers. Scores
that are not defined (one class only, no variance) are 0. Definitions are those of scikit-learn.
"""

from collections import Counter
from collections.abc import Sequence, Set
from typing import NamedTuple

import numpy as np


def every_row(rows: Sequence) -> np.ndarray:
    """The sample (1, N) that has each row once."""
    return np.arange(len(rows))[None]


def score_labels(said: Sequence, true: Sequence, classes: Sequence = ()) -> dict[str, float]:
    """`single_label` on every row, of labels as they are; `classes` are counted even if they do not occur."""
    names, ids = np.unique([*classes, *said, *true], return_inverse=True)
    said, true = ids[len(classes) :].reshape(2, -1)
    return {name: values[0] for name, values in single_label(said, true, len(names), every_row(true)).items()}


def confusion(said: np.ndarray, true: np.ndarray, classes: int, samples: np.ndarray) -> np.ndarray:
    """(N,) classes predicted and true → (R, C, C) counts, true by predicted."""
    cells = true * classes + said
    counts = [np.bincount(cells[sample], minlength=classes**2) for sample in samples]
    return np.stack(counts).reshape(-1, classes, classes)


def single_label(said: np.ndarray, true: np.ndarray, classes: int, samples: np.ndarray) -> dict[str, list[float]]:
    """Accuracy, F1 (of class 1 if there are two; mean over classes that occur), Matthews' correlation (Gorodkin)."""
    hits = _counts(np.where(said == true, true, classes), classes + 1, samples)[:, :classes]  # what is wrong is apart
    trues, saids = _counts(true, classes, samples), _counts(said, classes, samples)
    total = trues.sum(1)
    f1 = _ratio(2 * hits, trues + saids)
    occurs = (trues + saids) > 0
    scores = {"accuracy": hits.sum(1) / total, "f1_macro": f1.sum(1) / occurs.sum(1)}
    if classes == 2:
        scores["f1"] = f1[:, 1]
    covariance = hits.sum(1) * total - (trues * saids).sum(1)
    spread = (total**2 - (trues**2).sum(1)) * (total**2 - (saids**2).sum(1))
    scores["matthews_correlation"] = _ratio(covariance, np.sqrt(spread))
    return _listed(scores)


def _counts(ids: np.ndarray, classes: int, samples: np.ndarray) -> np.ndarray:
    """(N,) → (R, C): how often each class occurs in each sample."""
    return np.stack([np.bincount(ids[sample], minlength=classes) for sample in samples]).astype(float)


def multi_label(said: np.ndarray, true: np.ndarray, samples: np.ndarray) -> dict[str, list[float]]:
    """F1 over all labels together, its mean over labels, and the share of rows with every label right, from (N, C)."""
    weights = _counts(np.arange(len(true)), len(true), samples)  # (R, N)
    # in floating point, which products are made for; counts are exact there
    hits, trues, saids = (weights @ each.astype(float) for each in (said & true, true, said))
    exact = weights @ (said == true).all(1).astype(float)
    scores = {
        "f1_micro": _ratio(2 * hits.sum(1), trues.sum(1) + saids.sum(1)),
        "f1_macro": _ratio(2 * hits, trues + saids).mean(1),
        "accuracy": exact / weights.sum(1),
    }
    return _listed(scores)


class LabelScores(NamedTuple):
    """How often a label is true, was predicted, and was so rightly; and what follows."""

    true: int
    predicted: int
    right: int
    precision: float
    recall: float
    f1: float


def by_label(said: Set[tuple], true: Set[tuple]) -> dict[str, LabelScores]:
    """The scores of each label, the most frequent first.

    Args:
        said, true: what was predicted and what is true, each a label and its place.
    """
    trues, saids, hits = (Counter(label for label, _ in marks) for marks in (true, said, said & true))
    found = {}
    for label in sorted(trues | saids, key=lambda label: (-trues[label], label)):
        hit, is_true, was_said = hits[label], trues[label], saids[label]
        ratios = hit / max(was_said, 1), hit / max(is_true, 1), 2 * hit / (is_true + was_said)
        found[label] = LabelScores(is_true, was_said, hit, *ratios)
    return found


def regression(said: np.ndarray, true: np.ndarray, samples: np.ndarray) -> dict[str, list[float]]:
    """Pearson's and Spearman's correlation and the mean squared error of (N,) numbers."""
    scores = {"pearson": [], "spearman": [], "mse": []}
    places = [np.unique(each, return_inverse=True)[1] for each in (said, true)]
    for sample in samples:
        one, other = said[sample], true[sample]
        scores["pearson"].append(_correlation(one, other))
        scores["spearman"].append(_correlation(*(_ranks(each[sample]) for each in places)))
        scores["mse"].append(np.mean((one - other) ** 2))
    return _listed(scores)


def _ranks(places: np.ndarray) -> np.ndarray:
    """The rank of each, the mean of equals, from their places among all values: counted, since sorting is slow."""
    times = np.bincount(places)
    return (np.cumsum(times) - (times - 1) / 2)[places]


def _correlation(one: np.ndarray, other: np.ndarray) -> np.ndarray | float:
    if not np.ptp(one) or not np.ptp(other):
        return 0.0  # the mean of constants is another number by rounding
    one, other = one - one.mean(), other - other.mean()
    return _ratio(one @ other, np.sqrt((one @ one) * (other @ other)))


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    below = np.asarray(below, dtype=float)
    return np.divide(above, below, out=np.zeros_like(below), where=below > 0)


def _listed(scores: dict) -> dict[str, list[float]]:
    return {name: np.asarray(values, dtype=float).tolist() for name, values in scores.items()}
