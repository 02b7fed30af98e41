"""Accuracy: the share of correct labels."""

import evaluate
from sklearn import metrics

from mybert.finetuning.metrics import information


class Accuracy(evaluate.Metric):
    """`accuracy`, from 0 to 1, of labels that are whole numbers or words."""

    def _info(self) -> evaluate.MetricInfo:
        return information.label_metric(__doc__)

    def _compute(self, predictions: list, references: list) -> dict[str, float]:
        return {"accuracy": float(metrics.accuracy_score(references, predictions))}
