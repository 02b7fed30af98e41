"""Predictions of labelled rows and their scores, and analysis.json.

It has confusions, calibration, precision and recall, scores of groups of rows, and suspicious labels.
"""

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import average_precision_score, confusion_matrix, precision_recall_curve

from mybert.common.errors import UserError, short_list
from mybert.common.metrics import metric_of
from mybert.common.quantities import evenly
from mybert.evaluation.confidence import Suspect, confidences, reliability
from mybert.rows.splits import Split
from mybert.tasks.base import Task
from mybert.tasks.bootstrap_scores import LabelScores, interval_95

_CURVES, _CURVE_POINTS = 200, 60
_GROUPS = 12  # of a column
_SAMPLES, _DRAWS = 200, 4_000_000  # bootstrap samples of a group, and row indices of all samples
_INDICES_AT_ONCE = 4_000_000  # of bootstrap samples; 32 MB
_SUSPECTS = 50


class Matrix(NamedTuple):
    """A confusion matrix: the labels, and (labels, labels) integers whose rows are references, columns predictions."""

    names: list[str]
    counts: np.ndarray

    @classmethod
    def of(cls, task: Task, predictions: Sequence[Mapping[str, Any]], references: Sequence[Any]) -> "Matrix | None":
        """That of a task with one class for each text or word; None for other targets."""
        if task.classes is None:
            return None
        answers = [one["tags"] if "tags" in one else [one["label"]] for one in predictions]
        expected = [one if isinstance(one, list) else [one] for one in references]
        names = [name for _, name in sorted(task.id2label.items())]
        true, predicted = (list(itertools.chain.from_iterable(each)) for each in (expected, answers))
        return cls(names, confusion_matrix(true, predicted, labels=names))


class Evaluation(NamedTuple):
    """Predictions for labelled rows and their scores.

    Attributes:
        metrics: scores on all rows.
        intervals: metric → bounds of its 95% interval (see `interval_95`); empty without bootstrap samples.
        baselines: metric → score of the best constant prediction.
        simple: name of a simple model that learned from the training rows → its scores; empty without these rows.
        predictions, references, errors: one for each row; see `Task`.
        worst: the rows with the largest errors, largest first, and what `Task.describe_error` returns for each.
        labels: the scores of each label; empty for targets without labels.
        matrix: the confusion matrix; None without classes.
        lengths: tokens of each row as the model read them, in all its windows.
        truncated: whether each row was truncated to `max_length`.
        seconds: wall time of tokenization and inference; None if the predictions were known.
        tag_probabilities: of `Task.tag_probabilities`.
    """

    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    baselines: dict[str, float]
    simple: dict[str, dict[str, float]]
    predictions: list[dict[str, Any]]
    references: list[Any]
    errors: list[float]
    worst: dict[int, list[str]]
    labels: dict[str, LabelScores]
    matrix: Matrix | None
    lengths: list[int]
    truncated: list[bool]
    seconds: float | None
    tag_probabilities: list[np.ndarray] | None = None

    @property
    def cut(self) -> int:
        """Number of truncated rows."""
        return sum(self.truncated)

    def results(self) -> dict[str, Any]:
        """Numbers for results.json."""
        rate = None if self.seconds is None else round(len(self.predictions) / max(self.seconds, 1e-6), 1)
        return {
            "metrics": self.metrics,
            "intervals_95": self.intervals,
            "constant_baselines": self.baselines,
            "simple_baselines": self.simple,
            "labels": {name: scores._asdict() for name, scores in self.labels.items()},
            "rows": len(self.predictions),
            "rows_cut": self.cut,
            "seconds": None if self.seconds is None else round(self.seconds, 3),
            "rows_per_second": rate,
        }


def analyse(
    task: Task,
    evaluation: Evaluation,
    numbers: Sequence[int],
    given: Sequence[Mapping[str, Any]],
    slices: Sequence[str],
    metric: str,
    suspects: Sequence[Suspect] = (),
) -> dict[str, Any]:
    """
    Args:
        numbers: places of the rows in the file, from 0.
        given: the rows as in the file, with all columns.
        slices: columns whose groups of equal or similar values are scored.
        metric: the score of the groups.
        suspects: of `find_suspects`.

    Returns:
        `confusion`, `calibration`, `precision_recall` by label, `slices` by name, the worst `suspects` and the number
        of all, `suspect_rows`; those that the task has.
    """
    groups = {"length in tokens": quarters(evaluation.lengths)}
    if evaluation.cut:
        groups["truncated"] = ["yes" if cut else "no" for cut in evaluation.truncated]
    for column in slices:
        groups[column] = groups_of_column(given, column)
    pairs = confidences(evaluation.predictions, evaluation.references)
    return {
        "confusion": evaluation.matrix
        and {"names": evaluation.matrix.names, "counts": evaluation.matrix.counts.tolist()},
        "calibration": pairs and reliability(*pairs),
        "precision_recall": _curves(evaluation),
        "slices": {name: _scores(task, evaluation, values, metric) for name, values in groups.items()},
        "suspects": [_suspect(suspect, numbers) for suspect in suspects[:_SUSPECTS]],
        "suspect_rows": len(suspects),
    }


def check_slices(splits: Sequence[Split], slices: Sequence[str]) -> None:
    """
    Raises:
        UserError: no split has a column of --slices.
    """
    if not slices:
        return
    columns = dict.fromkeys(name for split in splits for row in split.given() for name in row)
    for name in slices:
        if name not in columns:
            sources = " or ".join(dict.fromkeys(split.source for split in splits)) or "validation or test rows"
            raise UserError(f"--slices {name}: expected a column of {sources}: {short_list(list(columns))}")


def groups_of_column(given: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    """A group for each row: the value, its range if there are many different numbers, or `missing` beside ranges."""
    values = [row.get(name) for row in given]
    numbers = [_number(value) for value in values]
    read = [number for number in numbers if number is not None]
    known = [number for number in read if math.isfinite(number)]
    if len(set(known)) > _GROUPS and len(read) == len(numbers):
        groups = iter(quarters(known))
        return [next(groups) if math.isfinite(number) else "missing" for number in read]
    return _frequent([value if isinstance(value, str) else repr(value) for value in values])


def _frequent(texts: Sequence[str]) -> list[str]:
    """The most frequent texts, and one group for the rest."""
    kept = {text for text, _ in Counter(texts).most_common(_GROUPS)}
    return [text if text in kept else "(other)" for text in texts]


def _number(value: Any) -> float | None:
    """The number; NaN for a missing value and for infinity, None for text."""
    try:
        number = float(value) if value not in (None, "") else math.nan
    except (TypeError, ValueError):
        return None
    except OverflowError:  # a whole number that is too large for a float
        return math.nan
    return number if math.isfinite(number) else math.nan


def quarters(values: Sequence[float]) -> list[str]:
    """The quarter that each value lies in, named by its bounds; frequent values if most are equal."""
    numbers = np.asarray(values, dtype=float)
    edges = np.unique(np.percentile(numbers, (0, 25, 50, 75, 100), method="nearest"))
    if len(edges) < 3:
        return _frequent([_written(number) for number in numbers.tolist()])
    places = np.clip(np.searchsorted(edges, numbers, side="left"), 1, len(edges) - 1)
    first, *others = itertools.pairwise(map(_written, edges.tolist()))
    names = [f"{first[0]} to {first[1]}", *(f"above {low} to {high}" for low, high in others)]
    return [names[place - 1] for place in places.tolist()]


def _written(number: float) -> str:
    return repr(number).removesuffix(".0")


def _scores(task: Task, evaluation: Evaluation, groups: Sequence[str], metric: str) -> list[dict[str, Any]]:
    """Rows, score and 95% interval of each group."""
    generator, scores = np.random.default_rng(0), []
    for name, rows in rows_by_group(groups).items():
        predictions = [evaluation.predictions[row] for row in rows]
        references = [evaluation.references[row] for row in rows]
        samples = max(20, min(_SAMPLES, _DRAWS // len(rows)))
        interval = intervals(task, predictions, references, samples, generator).get(metric)
        value = task.score(predictions, references)[metric]
        scores.append({"value": name, "rows": len(rows), "metric": metric, "score": value, "interval": interval})
    return scores


def intervals(
    task: Task, predictions: Sequence[Any], references: Sequence[Any], samples: int, generator: np.random.Generator
) -> dict[str, tuple[float, float]]:
    """The interval of each metric that has one, from bootstrap `samples` of the rows."""
    rows, drawn, scorer = len(references), dict[str, list[float]](), task.scorer(predictions, references)
    for count in chunks(samples, rows):
        indices = generator.integers(rows, size=(count, rows))
        for name, values in scorer(indices).items():
            drawn.setdefault(name, []).extend(values)
    scores = scorer(np.arange(rows)[None])
    by_metric = {
        name: interval_95(values, rows, name in task.row_shares, scores[name][0], metric_of(name).is_share)
        for name, values in drawn.items()
    }
    return {name: interval for name, interval in by_metric.items() if interval is not None}


def chunks(samples: int, rows: int) -> list[int]:
    """`samples` of that many rows in parts whose indices fit the memory."""
    most = max(1, _INDICES_AT_ONCE // rows)
    return [min(most, samples - start) for start in range(0, samples, most)]


def rows_by_group(groups: Sequence[str]) -> dict[str, list[int]]:
    """The rows of each group, in the order of `_order`."""
    grouped: dict[str, list[int]] = {}
    for row, group in enumerate(groups):
        grouped.setdefault(group, []).append(row)
    return {name: grouped[name] for name in sorted(grouped, key=_order)}


def _order(name: str) -> tuple[bool, float, str]:
    """Ranges by their upper bound, other names by the alphabet."""
    number = _number(name.rpartition(" to ")[2])
    if number is None or math.isnan(number):
        return True, 0.0, name
    return False, number, name


def _curves(evaluation: Evaluation) -> dict[str, dict[str, Any]]:
    """Precision and recall of each label at every threshold of its probability; of the most frequent ones if they are
    very many."""
    first = evaluation.predictions[0] if evaluation.predictions else {}
    if not isinstance(first.get("scores"), Mapping):
        return {}
    several = "labels" in first
    curves = {}
    for label in list(evaluation.labels)[:_CURVES]:
        true = np.array([label in one if several else label == one for one in evaluation.references])
        if not true.any() or true.all():
            continue
        scores = np.array([prediction["scores"][label] for prediction in evaluation.predictions])
        precision, recall, thresholds = precision_recall_curve(true, scores)
        f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
        best = int(f1[:-1].argmax())  # the last one has no threshold
        below = thresholds[best - 1] if best else 0.0
        places = evenly(len(recall), _CURVE_POINTS)
        curves[label] = {
            "precision": precision[places].round(4).tolist(),
            "recall": recall[places].round(4).tolist(),
            "threshold": np.append(thresholds, 1.0)[places].round(4).tolist(),
            "best_threshold": round(float(below + thresholds[best]) / 2, 4),  # scores above it are predicted
            "best_f1": float(f1[best]),
            "average_precision": float(average_precision_score(true, scores)),
        }
    return curves


def _suspect(suspect: Suspect, numbers: Sequence[int]) -> dict[str, Any]:
    row, answer = suspect.row, suspect.answer
    word = f"{answer.word}: " if answer.word else ""
    names = {True: "yes", False: "no"} if isinstance(answer.reference, bool) else {}
    return {
        "row": numbers[row] + 1,
        "reference": f"{word}{names.get(answer.reference, answer.reference)}",
        "prediction": str(names.get(answer.predicted, answer.predicted)),
        "probability": answer.own,
        "confidence": answer.score,
    }
