"""Paired tests of two sides on the same rows, and where they differ: by label, by group, and row by row.

Shapes: `N` rows, `R` samples, `K` runs of a side.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from mybert.comparison.sides import Rows
from mybert.evaluation.analysis import chunks, groups_of_column, quarters, rows_by_group
from mybert.tasks.base import Task

RANDOMISATION = "approximate randomisation"
WELCH = "Welch's t test over rows and runs"
_LEAST, _PERMUTATIONS = 20, 1000  # of a group: rows, since the scores of fewer say nothing


class Difference(NamedTuple):
    """The difference of a metric between two sides, the second minus the first.

    Attributes:
        interval: of 95%.
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

    Of two runs, the interval is that of a bootstrap that draws the same rows for both (Efron and Tibshirani 1993,
    chapter 16). p is that of approximate randomisation (Noreen 1989; Yeh 2000), which exchanges the predictions of
    random rows: the share of exchanges with a difference at least as large. Sides with several runs have the interval
    and the p value of a t test with the variance between rows and runs; see `_error`.
    """
    rng = np.random.default_rng(seed)
    observed, drawn = [scores(task, runs) for runs in (one, other)], _bootstrap(task, one, other, samples, rng)
    single = len(one) == len(other) == 1
    null = _exchanged(task, one[0], other[0], samples, rng) if single else {}
    by_metric = {}
    for name in observed[0][0]:
        first, second = (np.array([run[name] for run in runs]) for runs in observed)  # (K,)
        value = float(second.mean() - first.mean())
        if single:
            low, high = np.percentile(drawn[1][name][0] - drawn[0][name][0], (2.5, 97.5)).tolist()
            unchanged, *exchanged = np.abs(null[name])
            p = (1 + int((np.array(exchanged) >= unchanged - 1e-12).sum())) / (1 + samples)
            by_metric[name] = Difference(value, (low, high), p, RANDOMISATION)
        else:
            error, freedom = _error(first, second, [side[name] for side in drawn], len(one[0].places))
            width = float(stats.t.ppf(0.975, freedom)) * error
            p = 2 * float(stats.t.sf(abs(value) / error, freedom)) if error else float(value == 0)
            p = max(p, 2 ** (1 - len(one[0].places)))  # that of the sign test, if all rows are better
            by_metric[name] = Difference(value, (value - width, value + width), p, WELCH)
    return by_metric


def _error(first: np.ndarray, second: np.ndarray, drawn: Sequence[np.ndarray], rows: int) -> tuple[float, float]:
    """The standard error of the difference of two means over runs, and its degrees of freedom (Satterthwaite 1946).

    The variance is that of the mean runs over bootstrap samples of rows, plus that between runs without what the rows
    add to it. A side with one run has the variance between the runs of the other.

    Args:
        first, second: (K,) the scores of the runs of each side.
        drawn: of each side (K, R), its scores on samples of rows.
    """
    freedom = max(rows - 1, 1)
    of_rows = float(np.var(drawn[1].mean(0) - drawn[0].mean(0))) * rows / freedom
    squares, of_runs = of_rows**2 / freedom, 0.0
    several = [side for side in zip((first, second), drawn, strict=True) if len(side[0]) > 1]
    for values, samples in several:
        weight = 1 / len(values) if len(several) == 2 else 1 / len(first) + 1 / len(second)
        by_rows = np.var(samples - samples.mean(0), axis=1).sum() / (len(values) - 1) * rows / freedom
        between = np.var(values, ddof=1)
        of_runs += weight * float(between - by_rows)
        squares += (weight * float(between)) ** 2 / (len(values) - 1)
    variance = of_rows + max(0.0, of_runs)
    return variance**0.5, max(1.0, variance**2 / squares) if squares else freedom


def scores(task: Task, runs: Sequence[Rows]) -> list[dict[str, float]]:
    """Every metric of each run."""
    return [task.score(rows.predictions, rows.references) for rows in runs]


def _bootstrap(
    task: Task, one: Sequence[Rows], other: Sequence[Rows], samples: int, rng: np.random.Generator
) -> list[dict[str, np.ndarray]]:
    """(K, R) each metric of the runs of each side, on the same samples of rows."""
    parts: list[list[dict[str, np.ndarray]]] = []
    scorers = [[task.scorer(run.predictions, run.references) for run in runs] for runs in (one, other)]
    for count in chunks(samples, len(one[0].places)):
        rows = rng.integers(len(one[0].places), size=(count, len(one[0].places)))
        runs_of = [[scorer(rows) for scorer in of_side] for of_side in scorers]
        parts.append([{name: np.array([run[name] for run in runs]) for name in runs[0]} for runs in runs_of])
    return [
        {name: np.concatenate([part[side][name] for part in parts], 1) for name in parts[0][side]} for side in (0, 1)
    ]


def _exchanged(task: Task, one: Rows, other: Rows, samples: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """(1 + R,) differences of each metric without an exchange, and after predictions of random rows were exchanged."""
    size = len(one.places)
    scorer = task.scorer([*one.predictions, *other.predictions], [*one.references, *other.references])
    parts: list[dict[str, np.ndarray]] = []
    for count in chunks(samples, size):
        swapped = rng.integers(2, size=(count, size)).astype(bool)
        swapped = swapped if parts else np.insert(swapped, 0, values=False, axis=0)
        place = np.arange(size)
        sides = (np.where(chosen, place + size, place) for chosen in (swapped, ~swapped))
        first, second = map(scorer, sides)
        parts.append({name: np.subtract(second[name], first[name]) for name in first})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def labels(task: Task, one: Sequence[Rows], other: Sequence[Rows]) -> list[dict[str, Any]]:
    """The F1 of each label on both sides (means over runs), the most frequent first; empty without labels."""
    sides = [[task.label_scores(rows.predictions, rows.references) for rows in runs] for runs in (one, other)]
    names = dict.fromkeys(name for runs in sides for run in runs for name in run)
    entries = []
    for name in names:
        f1 = [float(np.mean([run[name].f1 if name in run else 0.0 for run in runs])) for runs in sides]
        count = max(run[name].true for runs in sides for run in runs if name in run)
        entries.append({"label": name, "count": count, "f1": f1, "difference": f1[1] - f1[0]})
    return sorted(entries, key=lambda entry: (-entry["count"], entry["label"]))


def slices(
    task: Task, metric: str, one: Sequence[Rows], other: Sequence[Rows], columns: Sequence[str], seed: int
) -> dict[str, list[dict[str, Any]]]:
    """The metric of both sides on the groups of rows that `mybert evaluate` forms by `columns`, and by length."""
    inputs = one[0].inputs
    groups = {"length in characters": quarters([sum(len(str(value)) for value in row.values()) for row in inputs])}
    groups |= {column: groups_of_column(inputs, column) for column in columns}
    return {
        name: [
            _group(task, metric, one, other, value, rows, seed) for value, rows in rows_by_group(row_groups).items()
        ]
        for name, row_groups in groups.items()
    }


def _group(
    task: Task, metric: str, one: Sequence[Rows], other: Sequence[Rows], value: str, places: list[int], seed: int
) -> dict[str, Any]:
    if len(places) < _LEAST:
        return {"group": value, "rows": len(places)}
    one, other = ([rows.select(places) for rows in runs] for runs in (one, other))
    means = [float(np.mean([run[metric] for run in scores(task, runs)])) for runs in (one, other)]
    estimate = differences(task, one, other, _PERMUTATIONS, seed)[metric]
    return {"group": value, "rows": len(places), "scores": means, "difference": estimate.difference, "p": estimate.p}


def changes(task: Task, one: Sequence[Rows], other: Sequence[Rows]) -> list[dict[str, Any]]:
    """The rows whose prediction became right or wrong; of numbers, better or worse.

    With several runs, a row is right in a run or not; its error is the share of wrong runs.
    """
    are_numbers = task.main_metric == "pearson"
    by_side = [[np.array(task.errors(run.predictions, run.references)) for run in runs] for runs in (one, other)]
    before, after = (np.mean([errors if are_numbers else errors > 0 for errors in runs], axis=0) for runs in by_side)
    good, bad = ("better", "worse") if are_numbers else ("right", "wrong")
    changed = []
    for place in np.argsort(-np.abs(after - before), kind="stable").tolist():
        if before[place] == after[place]:
            break
        changed.append(
            {
                "became": good if after[place] < before[place] else bad,
                "row": one[0].places[place],
                "reference": one[0].references[place],
                "errors": [float(before[place]), float(after[place])],
                "predictions": [runs[0].predictions[place] for runs in (one, other)],
                "input": one[0].inputs[place],
            }
        )
    return changed
