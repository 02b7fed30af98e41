"""Hybrid scores, and the metrics of rankings as trec_eval defines them."""

from collections.abc import Mapping, Sequence

import numpy as np

METRICS = ("ndcg@10", "mrr@10", "recall@10", "recall@100", "map")


def combined(cosines: np.ndarray, by_words: np.ndarray, weight: float, spread: float | None = None) -> np.ndarray:
    """Hybrid scores of the passages for one query: cosines in standard deviations, and BM25 as a share of its best.

    Unlike reciprocal ranks, this keeps how sure each ranking is.

    Args:
        cosines, by_words: (R,), of the same passages.
        weight: of the best BM25 score; see `balance`.
        spread: standard deviation of the cosines of all passages, if these are not all.
    """
    spread = float(cosines.std()) if spread is None else spread
    return cosines / max(spread, 1e-3) + weight * by_words / max(float(by_words.max(initial=0.0)), 1e-6)


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
