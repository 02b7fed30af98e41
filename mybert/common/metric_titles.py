"""Names of metrics in tables and log lines."""

_TITLES = {
    "exact_match": "exact answers",
    "f1": "F1",
    "f1_macro": "macro F1",
    "f1_micro": "micro F1",
    "map": "MAP",
    "matthews_correlation": "Matthews correlation",
    "mrr@10": "MRR@10",
    "ndcg@10": "nDCG@10",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "strict_f1": "strict F1",
    "mse": "mean squared error",
}

RETRIEVAL_SYSTEMS = {
    "model": "the model",
    "bm25": "BM25",
    "start": "start model, mean pooling",
    "hybrid": "model and BM25 fused",
}
"""What an evaluation of retrieval compares: the key in results.json, and its name."""


def metric_title(name: str) -> str:
    """The name of a metric in words: `f1_macro` is `macro F1`, `mlm_loss` is `mlm loss`."""
    return _TITLES.get(name) or name.replace("_", " ")
