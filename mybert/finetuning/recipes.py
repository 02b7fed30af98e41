"""The runs of a fine-tuning: one recipe or a published grid of recipes, each with one or several seeds."""

import copy
import itertools
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from mybert.common.metrics import metric_of, metric_title
from mybert.common.tables import print_table
from mybert.finetuning.arguments import FinetuningArguments
from mybert.finetuning.settings import SWEEPS, FinetuneSettings


class Recipe(NamedTuple):
    """The hyperparameters that a sweep varies; the batch size is per device."""

    learning_rate: float
    batch_size: int
    epochs: float

    @property
    def name(self) -> str:
        return f"lr{self.learning_rate:g}-batch{self.batch_size}-epochs{self.epochs:g}"


class Run(NamedTuple):
    """One training run."""

    recipe: Recipe
    seed: int

    @property
    def name(self) -> str:
        return f"{self.recipe.name}-seed{self.seed}"

    def arguments(self, arguments: FinetuningArguments, folder: str) -> FinetuningArguments:
        """The arguments of the command with the recipe, seed and folder of this run."""
        own = copy.deepcopy(arguments)
        own.learning_rate, own.num_train_epochs = self.recipe.learning_rate, self.recipe.epochs
        own.per_device_train_batch_size, own.seed = self.recipe.batch_size, self.seed
        own.output_dir = folder
        return own


def planned_runs(settings: FinetuneSettings, arguments: FinetuningArguments) -> list[Run]:
    """All runs, grouped by recipe."""
    if settings.sweep is not None:
        values: Any = itertools.product(*SWEEPS[settings.sweep].values())
        recipes = [Recipe(*some) for some in values]
    else:
        rate, epochs = arguments.learning_rate, arguments.num_train_epochs
        batch_size = arguments.per_device_train_batch_size
        assert rate is not None and epochs is not None and batch_size is not None  # chosen by now
        recipes = [Recipe(rate, batch_size, float(epochs))]
    seeds = range(arguments.seed, arguments.seed + settings.seeds)
    return [Run(recipe, seed) for recipe in recipes for seed in seeds]


class Summary(NamedTuple):
    """The scores of a recipe over its seeds.

    Attributes:
        mean, deviation: mean and sample standard deviation of the metric; None for one seed.
        best: the run with the best score.
    """

    recipe: Recipe
    mean: float
    deviation: float | None
    best: Run


def summarise(scores: dict[Run, float], metric: str) -> list[Summary]:
    """One summary per recipe, the best mean first; equal means keep their order."""
    sign = -1 if metric_of(metric).is_loss else 1
    summaries = []
    for recipe, group in itertools.groupby(scores, key=lambda run: run.recipe):
        runs = list(group)
        values = [scores[run] for run in runs]
        deviation = statistics.stdev(values) if len(values) > 1 else None
        best = max(runs, key=lambda run: sign * scores[run])
        summaries.append(Summary(recipe, statistics.mean(values), deviation, best))
    return sorted(summaries, key=lambda summary: -sign * summary.mean)


def runs_to_keep(scores: dict[Run, float], planned: Sequence[Run], metric: str) -> set[Run]:
    """Runs whose models may be the best in the end: the best of the best finished recipe and of unfinished ones."""
    finished = {run.recipe for run in planned} - {run.recipe for run in planned if run not in scores}
    done = summarise({run: score for run, score in scores.items() if run.recipe in finished}, metric)
    unfinished = summarise({run: score for run, score in scores.items() if run.recipe not in finished}, metric)
    return {summary.best for summary in (*done[:1], *unfinished)}


def print_summaries(summaries: Sequence[Summary], metric: str) -> None:
    rows = []
    for one in summaries:
        rate, epochs = f"{one.recipe.learning_rate:g}", f"{one.recipe.epochs:g}"
        mean, deviation = map(metric_of(metric).cell, (one.mean, one.deviation))
        rows.append((rate, one.recipe.batch_size, epochs, mean, deviation, one.best.seed))
    columns = ("learning rate", "batch", "epochs", f"{metric_title(metric)}, mean", "deviation", "best seed")
    print_table("Runs, best first", rows, columns)
