"""Accuracy: the share of labels that are right."""

import evaluate
from datasets import Features, Value

from mybert.finetuning.evaluation import bootstrap_scores as class_scores


class Accuracy(evaluate.Metric):
    """`accuracy`, from 0 to 1, of labels that are whole numbers or words."""

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
        return {"accuracy": class_scores.score_labels(predictions, references)["accuracy"]}
