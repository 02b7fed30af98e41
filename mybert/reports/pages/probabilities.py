"""Sections on the probabilities of a classifier: calibration, precision and recall, thresholds."""

import itertools
import json
from collections.abc import Mapping
from typing import Any

from mybert.common.metrics import percent
from mybert.reports.charts import Line, line_chart
from mybert.reports.components import Chart, Section, Share, Table, Thresholds, printable

_LINES = 5  # labels in the chart of precision and recall
_THRESHOLDS = (
    "What a threshold for the probability of a label gives on these rows. --threshold LABEL=NUMBER of predict, "
    "evaluate and finetune sets one; check it on rows that did not choose it."
)


def probability_sections(analysis: Mapping[str, Any], results: Mapping[str, Any], named: str) -> list[Section]:
    """Whether probabilities can be trusted, and what thresholds give; `named` ends the titles."""
    curves = [_calibration(analysis), _precision_recall(analysis, named)]
    return [
        Section(f"Probabilities{named}", curves, "How far the probabilities of the model can be trusted."),
        Section(f"Thresholds{named}", _thresholds(analysis, results), _THRESHOLDS),
    ]


def _calibration(analysis: Mapping[str, Any]) -> Chart | None:
    calibration = analysis.get("calibration")
    if not calibration:
        return None
    bins = calibration["bins"]
    note = (
        f"The model is {percent(calibration['confidence'])} sure on average and right in "
        f"{percent(calibration['accuracy'])}. "
        "Where its curve is below the dashed line, it is too sure; above it, too cautious. The mean distance from the "
        f"line, the expected calibration error, is {percent(calibration['expected_calibration_error'])}."
    )
    rows = [
        (f"{b['from']:.0%} to {b['to']:.0%}", b["rows"], *(Share(b[name]) for name in ("confidence", "accuracy")))
        for b in bins
    ]
    table = Table("Reliability", ["confidence", "predictions", "mean confidence", "accuracy"], rows, folded=True)
    lines = {"confidence": [Line("accuracy", {b["confidence"]: b["accuracy"] for b in bins}, marked=True)]}
    axes: dict[str, Any] = {"diagonal": "perfect", "as_share": True, "x_as_share": True, "from_zero": True}
    return line_chart("Are its probabilities right?", lines, note=note, table=table, **axes)


def _precision_recall(analysis: Mapping[str, Any], named: str) -> Chart | None:
    curves = analysis.get("precision_recall")
    if not curves:
        return None
    lines = []
    for name, curve in itertools.islice(curves.items(), _LINES):
        points = dict(zip(curve["recall"], curve["precision"], strict=True))
        lines.append(Line(f"{name} (AP {curve['average_precision']:.3g})", points))
    note = "For each of the most frequent labels: to find a larger share of its rows (recall), the model must accept "
    note += "less sure predictions, of which fewer are right (precision). AP, the average precision, is 1 at best."
    title, y_label = f"Precision and recall{named}", "precision"
    return line_chart(title, {"recall": lines}, y_label=y_label, as_share=True, x_as_share=True, note=note)


def _thresholds(analysis: Mapping[str, Any], results: Mapping[str, Any]) -> list[Any]:
    """A control that shows precision, recall and F1 of a label at a threshold, and the best thresholds."""
    labels = results.get("labels") or {}
    rows, tried = [], []
    for name, curve in (analysis.get("precision_recall") or {}).items():
        now = (labels.get(name) or {}).get("f1")
        rows.append((name, curve["best_threshold"], Share(curve["best_f1"]), "-" if now is None else Share(now)))
        if name in labels:
            numbers = {key: curve[key] for key in ("threshold", "precision", "recall")}
            tried.append({"name": printable(name), "rows": labels[name]["true"], **numbers})
    columns = ["label", "threshold with the best F1", "F1 there", "F1 in the scores above"]
    control = Thresholds("Try a threshold", json.dumps(tried)) if tried else None
    return [control, Table("Best thresholds", columns, rows)] if rows else []
