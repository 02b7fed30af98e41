"""Metrics as `evaluate.Metric`, one module a file, which load without network.

    import evaluate
    from mybert.finetuning import metrics

    f1 = metrics.load("f1")                          # or evaluate.load(metrics.path("f1"))
    f1.compute(predictions=[0, 1], references=[1, 1])

What they take and give is named as in the Hub's metrics; the numbers are those that fine-tuning is scored by. Not all
options are here: no weights of rows, no `labels`, for `f1` no `average="weighted"` or `None`. Scores that are not
defined are 0. `seqeval` is always strict, the Hub's only if told so, and gives no numbers for single types.
"""

from pathlib import Path

import evaluate

NAMES = (
    *("accuracy", "f1", "matthews_correlation", "multi_label", "pearsonr", "spearmanr"),
    *("seqeval", "squad", "squad_v2"),
)


def path(name: str) -> str:
    """The file that `evaluate.load` takes.

    Raises:
        ValueError: there is no such metric.
    """
    if name not in NAMES:
        raise ValueError(f"expected one of {', '.join(NAMES)}, found {name!r}")
    return str(Path(__file__).with_name(f"{name}.py"))


def load(name: str, **settings) -> evaluate.Metric:
    """The metric of that name.

    Args:
        settings: of `evaluate.load`, such as `experiment_id`.

    Raises:
        ValueError: there is no such metric.
    """
    return evaluate.load(path(name), **settings)
