"""The threshold above which a label of several is predicted."""

import numpy as np


def best_label_threshold(scores: np.ndarray, chosen: np.ndarray) -> float:
    """The threshold with the best micro F1; of several, the nearest to 0.5.

    Args:
        scores: (rows, labels) probabilities.
        chosen: (rows, labels) whether a row has a label.
    """
    order = np.argsort(-scores, axis=None, kind="stable")
    ranked = scores.ravel()[order]
    hits = np.concatenate([[0], np.cumsum(chosen.ravel()[order])])
    f1 = 2 * hits / np.maximum(np.arange(len(hits)) + chosen.sum(), 1)  # if the first n are predicted
    bounds = np.concatenate([[1.0], ranked, [0.0]])
    possible = np.concatenate([[True], ranked[1:] < ranked[:-1], [True]])  # equal scores are on one side
    candidates = (bounds[:-1] + bounds[1:])[possible] / 2
    best = np.isclose(f1[possible], f1[possible].max())
    return float(min(candidates[best], key=lambda threshold: abs(threshold - 0.5)))
