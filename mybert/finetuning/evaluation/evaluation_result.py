"""The result of an evaluation: predictions of labelled rows and their scores."""

from typing import NamedTuple

from mybert.finetuning.evaluation.bootstrap_scores import LabelScores
from mybert.finetuning.tasks.base import Matrix


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
        matrix: the confusion matrix; None for tasks without labels.
        lengths: tokens of each row as the model read them, in all its windows.
        truncated: whether each row was truncated to `max_length`.
        seconds: wall time of tokenization and inference.
    """

    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    baselines: dict[str, float]
    simple: dict[str, dict[str, float]]
    predictions: list[dict]
    references: list
    errors: list[float]
    worst: dict[int, list[str]]
    labels: dict[str, LabelScores]
    matrix: Matrix | None
    lengths: list[int]
    truncated: list[bool]
    seconds: float

    @property
    def cut(self) -> int:
        """Number of truncated rows."""
        return sum(self.truncated)

    def results(self) -> dict:
        """Numbers for results.json."""
        return {
            "metrics": self.metrics,
            "intervals_95": self.intervals,
            "constant_baselines": self.baselines,
            "simple_baselines": self.simple,
            "labels": {name: scores._asdict() for name, scores in self.labels.items()},
            "rows": len(self.predictions),
            "rows_cut": self.cut,
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(len(self.predictions) / max(self.seconds, 1e-6), 1),
        }
