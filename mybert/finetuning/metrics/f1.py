"""F1: the harmonic mean of precision and recall, of one class, of all together, or on average over them."""

import evaluate
from datasets import Features, Value

from mybert.finetuning.evaluation import bootstrap_scores as class_scores


class F1(evaluate.Metric):
    """`f1`, from 0 to 1, of labels that are whole numbers or words."""

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=__doc__,
            citation="",
            inputs_description="""predictions, references: a label for each row
average: binary, the F1 of `pos_label`; macro, the mean over the classes that occur; micro, of all classes together
pos_label: one of two labels""",
            features=[
                Features({"predictions": Value(kind), "references": Value(kind)}) for kind in ("int64", "string")
            ],
        )

    def _compute(
        self, predictions: list, references: list, average: str = "binary", pos_label: int | str = 1
    ) -> dict[str, float]:
        """
        Raises:
            ValueError: `average` is unknown, or there are other labels than `pos_label` and one more.
        """
        if average == "binary":
            labels = {*predictions, *references, pos_label}
            if len(labels) > 2:
                shown = ", ".join(sorted(map(repr, labels))[:10])
                raise ValueError(
                    f"average='binary' with pos_label={pos_label!r} expects two labels, found {shown}; "
                    "name one of two, or choose average='micro' or 'macro'"
                )
            said, true = ([int(label == pos_label) for label in column] for column in (predictions, references))
            return {"f1": class_scores.score_labels(said, true, classes=(0, 1))["f1"]}
        # every wrong label is one false positive and one false negative, so that micro F1 is accuracy
        names = {"macro": "f1_macro", "micro": "accuracy"}
        if average not in names:
            raise ValueError(f"average: expected binary, micro or macro, found {average!r}")
        return {"f1": class_scores.score_labels(predictions, references)[names[average]]}
