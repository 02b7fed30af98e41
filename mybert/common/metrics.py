"""Metrics: their names, what they mean, which values are better, and how values are written."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from mybert.common.quantities import counted
from mybert.common.tables import format_cell


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
        return format_cell(self.cell(value))

    def cell(self, value: float | None) -> str | float | None:
        """`81.0%`, or the number, which `print_table` aligns and writes."""
        return percent(value) if self.is_share and value is not None else value

    def interval(self, low: float, high: float) -> str:
        return f"{self.written(low)} to {self.written(high)}"

    def change(self, difference: float) -> str:
        """A difference of two values with its sign: `+1.5 points` of percent, or four digits."""
        if not self.is_share:
            return f"{difference:+.4g}"
        points = 100 * difference
        return f"{round(points, 1 if abs(points) >= 1 else 2) or 0.0:+g} points"

    def beats(self, value: float, other: float) -> bool:
        return value < other if self.is_loss else value > other


_METRICS: dict[str, tuple[Any, ...]] = {  # the fields of `Metric`
    "accuracy": ("accuracy", "share of correct predictions", True),
    "exact_match": ("exact answers", "share of answers that equal a reference", True),
    "f1": ("F1", "harmonic mean of precision and recall", True),
    "f1_macro": ("macro F1", "mean F1 of the labels: rare ones count the same", True),
    "f1_micro": ("micro F1", "F1 over all labels: each occurrence counts the same", True),
    "map": ("MAP",),
    "matthews_correlation": ("Matthews correlation", "0 for a constant prediction, 1 for no error"),
    "mrr@10": ("MRR@10",),
    "mse": ("mean squared error", "0 for no error", False, True),
    "ndcg@10": ("nDCG@10",),
    "pearson": ("Pearson correlation", "linear correlation: 0 for none, 1 for a rising line"),
    "precision": ("precision", "share of the predictions that are correct", True),
    "recall": ("recall", "share of the references that are predicted", True),
    "spearman": ("Spearman correlation", "rank correlation: 0 for none, 1 for the same order"),
    "strict_f1": ("strict F1", "F1 of entities whose tags follow the scheme", True),
}


def metric_title(name: str) -> str:
    """The name of a metric in words: `f1_macro` is `macro F1`, `mlm_loss` is `mlm loss`."""
    return _METRICS[name][0] if name in _METRICS else name.replace("_", " ")


def metric_of(name: str) -> Metric:
    """The metric, whose title begins with a capital letter."""
    title = metric_title(name)
    return Metric(title[:1].upper() + title[1:], *_METRICS.get(name, ())[1:])


def interval_of(results: Mapping[str, Any], name: str) -> tuple[float, float] | None:
    """The 95% interval of a metric in results; None where all bootstrap samples are equal, as for rows all right."""
    interval = results.get("intervals_95", {}).get(name)
    return (interval[0], interval[1]) if interval and interval[0] != interval[1] else None


def percent(share: float) -> str:
    """A share with one digit after the point, more for small ones: `45.1%`."""
    text = f"{100 * share:.1f}"
    return f"{100 * share:.2g}%" if text in ("0.0", "-0.0") and share else f"{text}%"


SURE = 0.05
"""A p value below it is no chance."""


def verdict(entry: Mapping[str, Any], metric: str) -> str:
    """The result of a comparison of two runs in one sentence; `entry` is one of `comparisons` in results.json."""
    comparison, (first, second), named = entry["metrics"][metric], entry["runs"], metric_of(metric)
    if comparison["difference"] == 0:
        return f"{first} and {second} have the same {metric_title(metric)}."
    if comparison["p"] >= SURE:
        both = f"{first} and {second}"
        return f"{named.title}: the difference between {both} may be chance (p = {comparison['p']:.3g})."
    better, worse = (second, first) if (comparison["difference"] > 0) != named.is_loss else (first, second)
    size = named.change(abs(comparison["difference"])).lstrip("+")
    return f"{better} is better than {worse}: {metric_title(metric)} differs by {size} (p = {comparison['p']:.3g})."


def changed_rows(entry: Mapping[str, Any]) -> str:
    """How many rows became right or wrong; of numbers, better or worse."""
    good, bad = ("better", "worse") if "pearson" in entry["metrics"] else ("right", "wrong")
    return f"{counted(entry['became_right'], 'row')} became {good}, {entry['became_wrong']:,} {bad}"
