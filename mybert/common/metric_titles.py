"""Names of metrics in tables and log lines."""

_TITLES = {
    "exact_match": "exact answers",
    "f1": "F1",
    "f1_macro": "macro F1",
    "f1_micro": "micro F1",
    "matthews_correlation": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "strict_f1": "strict F1",
    "mse": "mean squared error",
}


def metric_title(name: str) -> str:
    """The name of a metric in words: `f1_macro` is `macro F1`, `mlm_loss` is `mlm loss`."""
    return _TITLES.get(name) or name.replace("_", " ")
