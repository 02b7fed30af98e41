"""Scores of a cross-encoder for pairs of a query and a passage."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mybert.common.errors import UserError
from mybert.inference.predictor import Predictor
from mybert.tasks.settings import PredictorSettings


class Reranker:
    """A checkpoint of text-classification with one score, or two classes of which the second is relevant.

    Args:
        options: `device` and `dtype` of `PredictorSettings`.
    """

    def __init__(self, model: str, **options: Any):
        self._predictor = Predictor(PredictorSettings(model=model, **options))
        task = self._predictor.task
        labels = task.config.num_labels if task.name == "text-classification" else 0
        if labels not in (1, 2):
            found = f"{labels} classes" if labels else f"the task {task.name}"
            raise UserError(
                f"--reranker {model}: expected one score or two classes for a pair of texts, found {found}"
            )
        self._relevant = task.config.id2label[1] if labels == 2 else None

    def scores(self, query: str, passages: Sequence[str]) -> np.ndarray:
        """(passages,) higher for those that answer the query; probabilities for two classes."""
        found = self._predictor([(query, passage) for passage in passages])
        if self._relevant is None:
            return np.array([one["score"] for one in found])
        return np.array([one["scores"][self._relevant] for one in found])
