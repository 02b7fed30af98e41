"""Descriptions of metrics for `evaluate`."""

import evaluate
from datasets import Features, Value


def label_metric(description: str, inputs: str = "predictions, references: a label for each row"):
    """A metric of labels that are whole numbers or words."""
    kinds = [Features(dict.fromkeys(("predictions", "references"), Value(kind))) for kind in ("int64", "string")]
    return evaluate.MetricInfo(description=description, citation="", inputs_description=inputs, features=kinds)


def number_metric(description: str):
    """A metric of numbers."""
    return evaluate.MetricInfo(
        description=description,
        citation="",
        inputs_description="predictions, references: a number for each row",
        features=Features(dict.fromkeys(("predictions", "references"), Value("float64"))),
    )
