"""Paired tests of two sides on the same rows, and where they differ: by label, by group, and row by row.

Shapes: `N` rows, `R` samples, `K` runs of a side.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mybert.comparison.sides import Rows
from mybert.evaluation.analysis import groups_of_column, quarters, rows_by_group
from mybert.tasks.base import Task
from mybert.tasks.bootstrap_scores import by_label

RANDOMISATION = "approximate randomisation"
BOOTSTRAP = "paired bootstrap over rows and runs"
_CELLS = 4_000_000  # of an array of samples
_LEAST, _PERMUTATIONS = 20, 1000  # of a group: rows, since the scores of fewer say nothing


class Difference(NamedTuple):
    """The difference of a metric between two sides, the second minus the first.

    Attributes:
        interval: of 95%, from the paired bootstrap.
        p: two-sided.
        test: the name of the test of `p`.
    """

    difference: float
    interval: tuple[float, float]
    p: float
    test: str


def differences(
    task: Task, one: Sequence[Rows], other: Sequence[Rows], samples: int, seed: int
) -> dict[str, Difference]:
    """The paired difference of every metric of the task.

    The interval is that of a bootstrap that draws the same rows for both sides (Efron and Tibshirani 1993, chapter 16)
    and, of a side with several runs, the runs too. p is that of approximate randomisation (Noreen 1989; Yeh 2000),
    which exchanges the predictions of random rows: the share of exchanges with a difference at least as large. Sides
    with several runs have the p value of the bootstrap, which also knows the variation between runs.
    """
    observed = difference_of_means(task, one, other)
    rng = np.random.default_rng(seed)
    drawn = _bootstrap(task, one, other, samples, rng)
    single = len(one) == len(other) == 1
    null = _exchanged(task, one[0], other[0], samples, rng) if single else {}
    found = {}
    for name, value in observed.items():
        low, high = np.percentile(drawn[name], (2.5, 97.5)).tolist()
        if single:
            unchanged, *exchanged = np.abs(null[name])
            at_least = np.array(exchanged) >= unchanged - 1e-12
            p = (1 + int(at_least.sum())) / (1 + samples)
        else:
            sides = (np.mean(drawn[name] <= 0), np.mean(drawn[name] >= 0))
            p = min(1.0, max(2 * float(min(sides)), 1 / samples))
        found[name] = Difference(value, (low, high), p, RANDOMISATION if single else BOOTSTRAP)
    return found


def scores(task: Task, runs: Sequence[Rows]) -> list[dict[str, float]]:
    """Every metric of each run."""
    return [task.score(rows.predictions, rows.references) for rows in runs]


def difference_of_means(task: Task, one: Sequence[Rows], other: Sequence[Rows]) -> dict[str, float]:
    """The mean of each metric over the runs of `other`, minus that of `one`."""
    first, second = scores(task, one), scores(task, other)
    return {
        name: float(np.mean([run[name] for run in second]) - np.mean([run[name] for run in first]))
        for name in first[0]
    }


def _bootstrap(
    task: Task, one: Sequence[Rows], other: Sequence[Rows], samples: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """(R,) differences of each metric on samples of rows, and of runs."""
    parts: list[dict[str, np.ndarray]] = []
    for count in _chunks(samples, len(one[0].places)):
        rows = rng.integers(len(one[0].places), size=(count, len(one[0].places)))
        means = []
        for runs in (one, other):
            values = [task.bootstrap(run.predictions, run.references, rows) for run in runs]
            weights = rng.multinomial(len(runs), [1 / len(runs)] * len(runs), size=count) / len(runs)  # (R, K)
            means.append({name: (np.stack([v[name] for v in values], 1) * weights).sum(1) for name in values[0]})
        parts.append({name: means[1][name] - means[0][name] for name in means[0]})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _exchanged(task: Task, one: Rows, other: Rows, samples: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """(1 + R,) differences of each metric without an exchange, and after predictions of random rows were exchanged."""
    size = len(one.places)
    predictions, references = [*one.predictions, *other.predictions], [*one.references, *other.references]
    parts = []
    for count in _chunks(samples, size):
        swapped = rng.integers(2, size=(count, size)).astype(bool)
        swapped = swapped if parts else np.insert(swapped, 0, values=False, axis=0)
        place = np.arange(size)
        sides = (np.where(chosen, place + size, place) for chosen in (swapped, ~swapped))
        first, second = (task.bootstrap(predictions, references, rows) for rows in sides)
        parts.append({name: np.subtract(second[name], first[name]) for name in first})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _chunks(samples: int, rows: int) -> list[int]:
    """`samples` in parts whose arrays fit the memory."""
    most = max(1, _CELLS // rows)
    return [min(most, samples - start) for start in range(0, samples, most)]


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
    """The metric of both sides on the groups of rows that `mybert evaluate` forms by `columns`, and by length."""
    inputs = one[0].inputs
    groups = {"length in characters": quarters([sum(len(str(value)) for value in row.values()) for row in inputs])}
    groups |= {column: groups_of_column(inputs, column) for column in columns}
    return {
        name: [_group(task, metric, one, other, value, rows, seed) for value, rows in rows_by_group(found).items()]
        for name, found in groups.items()
    }


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
    errors = task.errors(rows.predictions, rows.references)
    return errors if task.main_metric == "pearson" else [float(error > 0) for error in errors]
