"""Metrics as modules of `evaluate`, which load without network.

    import evaluate
    from mybert.finetuning import metrics

    f1 = metrics.load("f1")                          # or evaluate.load(metrics.path("f1"))
    f1.compute(predictions=[0, 1], references=[1, 1])

Arguments and results are named as in the Hub's metrics; the values are those of `mybert evaluate`. Not all options of
the Hub are supported: there are no sample weights and no `labels`; `f1` has no `average="weighted"` or `None`.
Undefined scores are 0. `seqeval` always uses the strict mode and has no scores of single types.
"""

from pathlib import Path

import evaluate

NAMES = (
    *("accuracy", "f1", "matthews_correlation", "multi_label", "pearsonr", "spearmanr"),
    *("seqeval", "squad", "squad_v2"),
)


def path(name: str) -> str:
    """The file of a metric, for `evaluate.load`.

    Raises:
        ValueError: there is no such metric.
    """
    if name not in NAMES:
        raise ValueError(f"expected one of {', '.join(NAMES)}, found {name!r}")
    return str(Path(__file__).with_name(f"{name}.py"))


def load(name: str, **settings) -> evaluate.Metric:
    """Loads a metric.

    Args:
        settings: of `evaluate.load`, such as `experiment_id`.

    Raises:
        ValueError: there is no such metric.
    """
    return evaluate.load(path(name), **settings)
