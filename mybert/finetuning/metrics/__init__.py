"""Metrics of `evaluate` that load without a network. A new metric is a function and an entry in `METRICS`.

    from mybert.finetuning import metrics

    metrics.load("f1").compute(predictions=[0, 1], references=[1, 1])

Arguments and results have the names of the Hub's metrics; the values are those of `mybert evaluate`. Undefined scores
are 0. Options of scikit-learn, such as `average` and `sample_weight`, are passed on. `seqeval` uses the strict mode.
"""

from typing import Any

import evaluate

from mybert.finetuning.metrics.scores import METRICS


def load(name: str, **settings: Any) -> evaluate.Metric:
    """The metric with this name in `METRICS`; `settings` are of `evaluate.Metric`, such as `experiment_id`."""
    if name not in METRICS:
        raise ValueError(f"expected one of {', '.join(METRICS)}, found {name!r}")
    function, features, inputs = METRICS[name]
    info = evaluate.MetricInfo(function.__doc__, "", features, inputs_description=inputs)
    members = {"_info": lambda self: info, "_compute": lambda self, **options: function(**options)}
    return type(name, (evaluate.Metric,), members)(**settings)
