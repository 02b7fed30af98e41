"""Spearman's rank correlation of numbers."""

import evaluate
import numpy as np
from datasets import Features, Value

from mybert.finetuning.evaluation import bootstrap_scores as class_scores


class Spearmanr(evaluate.Metric):
    """`spearmanr`, from -1 to 1; 0 where all predictions or all references are equal."""

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=__doc__,
            citation="",
            inputs_description="predictions, references: a number for each row",
            features=Features({"predictions": Value("float64"), "references": Value("float64")}),
        )

    def _compute(self, predictions: list, references: list) -> dict[str, float]:
        said, true = np.array(predictions), np.array(references)
        return {"spearmanr": class_scores.regression(said, true, class_scores.every_row(true))["spearman"][0]}
