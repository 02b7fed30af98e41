"""F1, the harmonic mean of precision and recall: of one class, of all classes together, or their mean."""

import evaluate
from sklearn import metrics

from mybert.finetuning.metrics import information

_INPUTS = """predictions, references: a label for each row
average: binary, the F1 of `pos_label`; macro, the mean over the classes that occur; micro, of all classes together
pos_label: one of two labels"""


class F1(evaluate.Metric):
    """`f1`, from 0 to 1, of labels that are whole numbers or words."""

    def _info(self) -> evaluate.MetricInfo:
        return information.label_metric(__doc__, _INPUTS)

    def _compute(
        self, predictions: list, references: list, average: str = "binary", pos_label: int | str = 1
    ) -> dict[str, float]:
        """
        Raises:
            ValueError: `average` is unknown, or there are more labels than `pos_label` and another one.
        """
        labels = sorted({*predictions, *references}, key=repr)
        if average == "binary" and len({*labels, pos_label}) > 2:
            shown = ", ".join(map(repr, labels[:10]))
            raise ValueError(
                f"average='binary' with pos_label={pos_label!r} expects two labels, found {shown}; "
                "name one of two, or choose average='micro' or 'macro'"
            )
        if average == "binary":
            pair = [[label == pos_label for label in column] for column in (references, predictions)]
            return {"f1": float(metrics.f1_score(*pair, zero_division=0))}
        if average not in ("micro", "macro"):
            raise ValueError(f"average: expected binary, micro or macro, found {average!r}")
        return {"f1": float(metrics.f1_score(references, predictions, average=average, zero_division=0))}
