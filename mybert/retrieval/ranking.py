"""Hybrid scores, and the metrics of rankings as trec_eval defines them."""

from collections.abc import Mapping, Sequence

import numpy as np

from mybert.tasks.bootstrap_scores import interval_95

METRICS = ("ndcg@10", "mrr@10", "recall@10", "recall@100", "map")
_DEVIATIONS, _LEAST_UNIT = 6.0, 0.6  # of `words_unit`
RERANKED = 100
"""Passages that a reranker sorts."""


def words_unit(by_words: np.ndarray) -> float:
    """The unit of the BM25 scores of a query: six standard deviations of those above 0, which is about the best score.

    It is smaller if few texts are much better than the others, as for a query with rare words, so that BM25 counts
    more; but at least 0.6 of the best score.
    """
    scores = by_words[by_words > 0]
    return max(_DEVIATIONS * float(scores.std()), _LEAST_UNIT * float(scores.max())) if len(scores) else 1.0


def combined(
    cosines: np.ndarray, by_words: np.ndarray, weight: float, spread: float | None = None, unit: float | None = None
) -> np.ndarray:
    """Hybrid scores of the passages for one query: cosines in standard deviations, and BM25 in units.

    Unlike reciprocal ranks, this keeps how sure each ranking is.

    Args:
        cosines, by_words: (R,), of the same passages.
        weight: of BM25; see `balance`.
        spread: standard deviation of the cosines of all passages, if these are not all.
        unit: `words_unit` of all passages, if these are not all.
    """
    spread = float(cosines.std()) if spread is None else spread
    unit = words_unit(by_words) if unit is None else unit
    return cosines / max(spread, 1e-3) + weight * by_words / unit


def reranked(first: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Scores of the passages that were found: the reranker's logit, and the first score in standard deviations.

    The sum is better than the reranker alone (as in Birch, Akkalyoncu Yilmaz et al. 2019): a reranker of few queries
    is often unsure, its logits are small then, and the first score decides.

    Args:
        first: (R,) scores by which the passages were found, best first. Mean and deviation are those of the first
            `RERANKED`, so that a score does not depend on how many others are asked for.
        logits: (R,) of `Reranker`.
    """
    first = first.astype(np.float64)  # equal scores differ from their mean by less than 1e-6
    best = first[:RERANKED]
    return logits + (first - best.mean()) / max(best.std(), 1e-6) if len(first) else first


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


def shown_interval(interval: Sequence[float] | None) -> str:
    """An interval in a printed table."""
    return "-" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"


def interval_of_mean(
    values: np.ndarray, samples: int, seed: int, is_bounded: bool = True
) -> tuple[float, float] | None:
    """The `interval_95` of the mean of a metric over queries, or of a difference, which is not bounded by 0 and 1."""
    if not samples:
        return None
    random, count = np.random.default_rng(seed), len(values)
    means = [values[random.integers(count, size=count)].mean() for _ in range(samples)]
    return interval_95(means, count, is_share=False, score=values.mean(), is_bounded=is_bounded)
