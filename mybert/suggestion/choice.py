"""Which of the uncertain rows to label: rows that stand for many others and are unlike each other.

Filtered active submodular selection (Wei, Iyer and Bilmes 2015): of a pool of the most uncertain rows, the greedy
algorithm chooses those with the largest gain in facility location. It needs no random numbers.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

POOL = 10  # rows for each row that is chosen
_LEAST_POOL = 500


def pool_size(count: int) -> int:
    """The number of uncertain rows of which `count` are chosen."""
    return max(_LEAST_POOL, min(POOL * count, 10_000), count)


def facility_location(vectors: np.ndarray, weights: np.ndarray, labelled: np.ndarray) -> Iterator[int]:
    """The rows of a pool, best first.

    The next row has the largest gain in the sum over all rows of weight times similarity to the nearest chosen or
    labelled row. The similarity is the cosine, at least 0. Of equal gains the first row wins.

    Args:
        vectors: (rows, H)
        weights: (rows,)
        labelled: (labelled rows, H)
    """
    vectors, labelled = _normalised(vectors), _normalised(labelled)
    similarities = vectors @ vectors.T  # negative ones gain nothing, since `nearest` is at least 0
    nearest = (vectors @ labelled.T).max(1, initial=0)
    waiting = [(-np.inf, row) for row in range(len(vectors))]  # gains of before, which have become smaller, negative
    while waiting:
        row = waiting[0][1]
        gain = float(np.maximum(similarities[row] - nearest, 0) @ weights)
        heapq.heapreplace(waiting, (-gain, row))
        if waiting[0][1] == row:  # also the largest of gains as they are now (lazy greedy, Minoux 1978)
            yield heapq.heappop(waiting)[1]
            nearest = np.maximum(nearest, similarities[row])


def _normalised(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def uncertainty_of(prediction: Mapping[str, Any], threshold: float) -> tuple[float, str]:
    """How uncertain a prediction is, from 0 to 1, and the reason.

    One label: 1 - the margin of the two most probable ones (Scheffer et al. 2001). Several labels: how near one of
    them is to the threshold. Tags: 1 - their mean probability.
    """
    if "tags" in prediction:
        scores = prediction["scores"]
        worst = int(np.argmin(scores))
        word, tag = prediction["tokens"][worst], prediction["tags"][worst]
        mean = float(np.mean(scores))
        return (
            1 - mean,
            f"mean probability of the tags {mean:.2f}; least sure: {word!r} as {tag} ({scores[worst]:.2f})",
        )
    scores = prediction["scores"]
    if "labels" in prediction:
        near = {name: _nearness(score, threshold) for name, score in scores.items()}
        name = max(near, key=near.__getitem__)
        return near[name], f"{name!r} has {scores[name]:.2f}, its threshold is {threshold:.2f}"
    first, second = sorted(scores, key=lambda name: -scores[name])[:2]
    return (
        1 - (scores[first] - scores[second]),
        f"between {first!r} ({scores[first]:.2f}) and {second!r} ({scores[second]:.2f})",
    )


def _nearness(score: float, threshold: float) -> float:
    """1 at the threshold, 0 at the probabilities 0 and 1."""
    room = threshold if score < threshold else 1 - threshold
    return 1 - abs(score - threshold) / room if room else 1.0


def most_similar(vectors: np.ndarray, chosen: Sequence[int]) -> np.ndarray:
    """(rows,) which of the chosen rows each row is most similar to."""
    vectors = _normalised(vectors)
    return (vectors @ vectors[chosen].T).argmax(1)
