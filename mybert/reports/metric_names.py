"""Metrics in the reader's words: meaning, and how a value is written."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from mybert.common.tables import format_cell, metric_title


class Metric(NamedTuple):
    """
    Attributes:
        meaning: a few words for a reader who does not know the metric.
        is_share: whether it is a share from 0 to 1, written in percent.
        is_loss: whether lower values are better.
    """

    title: str
    meaning: str = ""
    is_share: bool = False
    is_loss: bool = False

    def written(self, value: float | None) -> str:
        """`81.0%`, or four digits."""
        return percent(value) if self.is_share and value is not None else format_cell(value)

    def interval(self, low: float, high: float) -> str:
        return f"{self.written(low)} to {self.written(high)}"

    def beats(self, value: float, other: float) -> bool:
        return value < other if self.is_loss else value > other


_METRICS = {  # meaning, is_share, is_loss
    "accuracy": ("share of correct predictions", True),
    "f1": ("harmonic mean of precision and recall", True),
    "f1_macro": ("mean F1 of the labels: rare ones count the same", True),
    "f1_micro": ("F1 over all labels: each occurrence counts the same", True),
    "precision": ("share of the predictions that are correct", True),
    "recall": ("share of the references that are predicted", True),
    "exact_match": ("share of answers that equal a reference", True),
    "matthews_correlation": ("0 for a constant prediction, 1 for no error",),
    "pearson": ("linear correlation: 0 for none, 1 for a rising line",),
    "spearman": ("rank correlation: 0 for none, 1 for the same order",),
    "mse": ("0 for no error", False, True),
}


def metric_of(name: str) -> Metric:
    title = metric_title(name)
    return Metric(title[:1].upper() + title[1:], *_METRICS.get(name, ()))


def interval_of(found: Mapping[str, Any], name: str) -> tuple[float, float] | None:
    """The 95% interval of a metric in results; None where all bootstrap samples are equal, as for rows all right."""
    low, high = found.get("intervals_95", {}).get(name) or (None, None)
    return None if low == high else (low, high)


def percent(share: float) -> str:
    """A share with one digit after the point, more for small ones: `45.1%`."""
    text = f"{100 * share:.1f}"
    return f"{100 * share:.2g}%" if text in ("0.0", "-0.0") and share else f"{text}%"


SURE = 0.05
"""A p value below it is no chance."""


def verdict(entry: Mapping[str, Any], metric: str) -> str:
    """The result of a comparison of two runs in one sentence; `entry` is one of `comparisons` in results.json."""
    found, (first, second), named = entry["metrics"][metric], entry["runs"], metric_of(metric)
    if found["difference"] == 0:
        return f"{first} and {second} have the same {named.title}."
    if found["p"] >= SURE:
        return f"The difference between {first} and {second} may be chance (p = {found['p']:.3g})."
    better, worse = (second, first) if (found["difference"] > 0) != named.is_loss else (first, second)
    size, p = abs(found["difference"]), found["p"]
    return f"{better} is better than {worse}: {named.title} differs by {size:.4g} (p = {p:.3g})."
