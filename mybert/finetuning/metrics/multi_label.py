"""Several labels per row: F1 over all labels together, its mean over labels, and the share of correct rows."""

import evaluate
import numpy as np
from datasets import Features, List, Value
from sklearn import metrics


class MultiLabel(evaluate.Metric):
    """`f1_micro`, `f1_macro` and `accuracy`, from 0 to 1. The F1 of a label that does not occur is 0."""

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=__doc__,
            citation="",
            inputs_description="predictions, references: for each row a 1 or 0 for each label",
            features=Features({"predictions": List(Value("int64")), "references": List(Value("int64"))}),
        )

    def _compute(self, predictions: list[list[int]], references: list[list[int]]) -> dict[str, float]:
        """
        Raises:
            ValueError: rows differ in length, or hold something else than 0 and 1.
        """
        for name, rows in (("predictions", predictions), ("references", references)):
            for number, row in enumerate(rows, 1):
                if len(row) != len(references[0]) or not set(row) <= {0, 1}:
                    raise ValueError(f"{name}, row {number}: expected {len(references[0])} times 0 or 1, found {row}")
        pair = np.array(references), np.array(predictions)
        scores = {f"f1_{kind}": metrics.f1_score(*pair, average=kind, zero_division=0) for kind in ("micro", "macro")}
        return {name: float(value) for name, value in {**scores, "accuracy": metrics.accuracy_score(*pair)}.items()}
