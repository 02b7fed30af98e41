"""Spearman's rank correlation of numbers."""

import evaluate
import numpy as np
from scipy import stats

from mybert.finetuning.metrics import information


class Spearmanr(evaluate.Metric):
    """`spearmanr`, from -1 to 1; 0 if all predictions or all references are equal."""

    def _info(self) -> evaluate.MetricInfo:
        return information.number_metric(__doc__)

    def _compute(self, predictions: list, references: list) -> dict[str, float]:
        constant = not (np.ptp(predictions) and np.ptp(references))
        return {"spearmanr": 0.0 if constant else float(stats.spearmanr(predictions, references).statistic)}
