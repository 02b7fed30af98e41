"""Paired tests of two sides on the same rows.

Shapes: `N` rows, `R` samples, `K` runs of a side.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mybert.comparison.sides import Rows
from mybert.finetuning.tasks.base import Task

RANDOMISATION = "approximate randomisation"
BOOTSTRAP = "paired bootstrap over rows and runs"
_CELLS = 4_000_000  # of an array of samples


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
