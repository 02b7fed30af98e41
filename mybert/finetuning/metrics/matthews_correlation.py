"""Matthews' correlation of labels that were said and labels that are true, for two or more classes (Gorodkin 2004)."""

import evaluate
from datasets import Features, Value

from mybert.finetuning.evaluation import bootstrap_scores as class_scores


class MatthewsCorrelation(evaluate.Metric):
    """`matthews_correlation`, from -1 to 1; 0 where all predictions or all references are one class."""

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=__doc__,
            citation="",
            inputs_description="predictions, references: a label for each row",
            features=[
                Features({"predictions": Value(kind), "references": Value(kind)}) for kind in ("int64", "string")
            ],
        )

    def _compute(self, predictions: list, references: list) -> dict[str, float]:
        return {"matthews_correlation": class_scores.score_labels(predictions, references)["matthews_correlation"]}
