"""Rankings: their fusion, and the metrics of retrieval, as trec_eval defines them."""

from collections.abc import Mapping, Sequence

import numpy as np

METRICS = ("ndcg@10", "mrr@10", "recall@10", "recall@100", "map")
_RANK_CONSTANT = 60  # Cormack, Clarke and Büttcher 2009


def fused(rankings: Sequence[np.ndarray], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Reciprocal rank fusion: the best texts of several rankings of rows, best first, and the sums of 1 / (60 + rank).

    Of equal sums the one that is earlier in the first ranking comes first.
    """
    rows = np.concatenate(rankings)
    shares = np.concatenate([1 / (_RANK_CONSTANT + np.arange(1, len(one) + 1)) for one in rankings])
    found, first, places = np.unique(rows, return_index=True, return_inverse=True)
    sums = np.bincount(places, shares, minlength=len(found))
    order = np.lexsort((first, -sums))[:count]
    return found[order], sums[order]


def score_ranking(ranked: Sequence[str], grades: Mapping[str, int]) -> dict[str, float]:
    """The metrics of one query.

    Args:
        ranked: ids of documents, best first; `map` and the recalls read as many as there are.
        grades: grade by document; 0 is not relevant.
    """
    gains = np.array([grades.get(key, 0) for key in ranked], dtype=np.float64)
    ideal = np.sort([grade for grade in grades.values() if grade > 0])[::-1]
    hits, relevant = gains > 0, len(ideal)
    first = np.flatnonzero(hits[:10])
    precisions = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return {
        "ndcg@10": float(_discounted(gains[:10]) / _discounted(ideal[:10])),
        "mrr@10": 1 / (1 + int(first[0])) if len(first) else 0.0,
        "recall@10": float(hits[:10].sum() / relevant),
        "recall@100": float(hits[:100].sum() / relevant),
        "map": float(precisions[hits].sum() / relevant),
    }


def _discounted(gains: np.ndarray) -> float:
    return float((gains / np.log2(np.arange(2, len(gains) + 2))).sum())
