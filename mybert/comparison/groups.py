"""Where two sides differ: by label, by values of a column, by length, and row by row."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mybert.comparison.paired import differences
from mybert.comparison.sides import Rows
from mybert.finetuning.evaluation.bootstrap_scores import by_label
from mybert.finetuning.tasks.base import LOWER_IS_BETTER, Task

_VALUES = 12  # groups of a column; the other values are one group
_QUARTILES = ("shortest quarter", "second quarter", "third quarter", "longest quarter")
_LEAST = 20  # rows; the scores of fewer say nothing
_PERMUTATIONS = 1000


def labels(task: Task, one: Sequence[Rows], other: Sequence[Rows]) -> list[dict[str, Any]]:
    """The F1 of each label on both sides (means over runs), the most frequent first; empty without labels."""
    sides = []
    for runs in (one, other):
        spans = [task.labelled_spans(rows.predictions, rows.references) for rows in runs]
        if spans[0] is None:
            return []
        sides.append([by_label(*pair) for pair in spans])
    names = dict.fromkeys(name for runs in sides for run in runs for name in run)
    found = []
    for name in names:
        f1 = [float(np.mean([run[name].f1 if name in run else 0.0 for run in runs])) for runs in sides]
        count = max(run[name].true for runs in sides for run in runs if name in run)
        found.append({"label": name, "count": count, "f1": f1, "difference": f1[1] - f1[0]})
    return sorted(found, key=lambda entry: (-entry["count"], entry["label"]))


def slices(
    task: Task, metric: str, one: Sequence[Rows], other: Sequence[Rows], columns: Sequence[str], seed: int
) -> dict[str, list[dict[str, Any]]]:
    """The metric of both sides on the rows of each value of `columns`, and on quarters of the rows by length."""
    return {
        column: [_group(task, metric, one, other, value, rows, seed) for value, rows in _groups(one[0].inputs, column)]
        for column in ("length in characters", *columns)
    }


def _groups(inputs: Sequence[Mapping[str, Any]], column: str) -> Iterator[tuple[str, list[int]]]:
    if column not in inputs[0]:  # the length
        lengths = np.array([sum(len(str(value)) for value in row.values()) for row in inputs])
        quarters = np.searchsorted(np.quantile(lengths, (0.25, 0.5, 0.75)), lengths)
        for number, name in enumerate(_QUARTILES):
            yield name, np.flatnonzero(quarters == number).tolist()
        return
    values = [str(row[column]) for row in inputs]
    frequent = [value for value, _ in Counter(values).most_common(_VALUES)]
    for value in frequent:
        yield value, [place for place, found in enumerate(values) if found == value]
    yield "others", [place for place, found in enumerate(values) if found not in frequent]


def _group(
    task: Task, metric: str, one: Sequence[Rows], other: Sequence[Rows], value: str, places: list[int], seed: int
) -> dict[str, Any]:
    if len(places) < _LEAST:
        return {"group": value, "rows": len(places)}
    sides = [[rows.select(places) for rows in runs] for runs in (one, other)]
    scores = [
        float(np.mean([task.score(rows.predictions, rows.references)[metric] for rows in runs])) for runs in sides
    ]
    found = differences(task, *sides, _PERMUTATIONS, seed)[metric]
    return {"group": value, "rows": len(places), "scores": scores, "difference": found.difference, "p": found.p}


def changes(task: Task, one: Sequence[Rows], other: Sequence[Rows]) -> list[dict[str, Any]]:
    """The rows whose prediction became right or wrong; of numbers, those whose error changed.

    With several runs, a row is right in a run or not; its error is the share of wrong runs.
    """
    before, after = (np.mean([errors_of(task, rows) for rows in runs], axis=0) for runs in (one, other))
    found = []
    for place in np.argsort(-np.abs(after - before), kind="stable").tolist():
        if before[place] == after[place]:
            break
        better = "right" if after[place] < before[place] else "wrong"
        found.append(
            {
                "became": better,
                "row": one[0].places[place],
                "reference": one[0].references[place],
                "errors": [float(before[place]), float(after[place])],
                "predictions": [runs[0].predictions[place] for runs in (one, other)],
                "input": one[0].inputs[place],
            }
        )
    return found


def errors_of(task: Task, rows: Rows) -> list[float]:
    """0 for a right prediction, 1 for a wrong one; of numbers the absolute error."""
    if task.main_metric in ("pearson", *LOWER_IS_BETTER):
        return task.errors(rows.predictions, rows.references)
    return [float(not _is_right(task, *pair)) for pair in zip(rows.predictions, rows.references, strict=True)]


def _is_right(task: Task, prediction: Mapping[str, Any], reference: Any) -> bool:
    if "choice" in prediction:
        return prediction["choice"] == reference
    if "answer" in prediction:
        return task.errors([prediction], [reference]) == [0.0]
    if isinstance(reference, list) and task.name == "text-classification":
        return set(prediction["labels"]) == set(reference)
    return (prediction["tags"] if task.name == "token-classification" else prediction["label"]) == reference
