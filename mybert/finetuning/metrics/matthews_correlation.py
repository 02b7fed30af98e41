"""Matthews correlation coefficient of classes."""

import evaluate
from sklearn import metrics

from mybert.finetuning.metrics import information


class MatthewsCorrelation(evaluate.Metric):
    """`matthews_correlation`, from -1 to 1, of labels that are whole numbers or words; 0 if all labels are equal."""

    def _info(self) -> evaluate.MetricInfo:
        return information.label_metric(__doc__)

    def _compute(self, predictions: list, references: list) -> dict[str, float]:
        return {"matthews_correlation": float(metrics.matthews_corrcoef(references, predictions))}
