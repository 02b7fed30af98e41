"""The choice of rows against a brute-force search, and the uncertainty against its formula."""

import numpy as np
import pytest

from mybert.suggestion.choice import facility_location, most_similar, pool_size, uncertainty_of


def cosine(one, other) -> float:
    return max(0.0, float(one @ other / np.linalg.norm(one) / np.linalg.norm(other)))


def covered(vectors, weights, chosen) -> float:
    """The sum over all rows of weight times similarity to the nearest of `chosen`."""
    return sum(
        w * max((cosine(v, other) for other in chosen), default=0.0) for v, w in zip(vectors, weights, strict=True)
    )


@pytest.mark.parametrize("labelled", [0, 3])
def test_each_row_is_the_one_that_covers_most(labelled):
    draw = np.random.default_rng(0)
    vectors, known, weights = draw.normal(size=(30, 4)), draw.normal(size=(labelled, 4)), draw.random(30)
    order = list(facility_location(vectors, weights, known))
    assert sorted(order) == list(range(30))
    for place in range(10):
        chosen = [*known, *vectors[order[:place]]]
        gains = {row: covered(vectors, weights, [*chosen, vectors[row]]) for row in order[place:]}
        assert gains[order[place]] == pytest.approx(max(gains.values()))
    near = most_similar(vectors, order[:5])
    assert near.tolist() == [int(np.argmax([v @ w / np.linalg.norm(w) for w in vectors[order[:5]]])) for v in vectors]


def test_a_row_like_a_labelled_one_comes_after_one_that_is_not():
    vectors = np.array([[1.0, 0.0], [1.0, 0.02], [0.0, 1.0]])
    order = list(facility_location(vectors, np.ones(3), np.array([[1.0, 0.01]])))
    assert order[0] == 2
    assert [pool_size(count) for count in (1, 50, 200, 5000)] == [500, 500, 2000, 10_000]


def test_the_uncertainty_is_that_of_the_margin_of_the_nearest_threshold_or_of_the_mean_tag():
    margin, reason = uncertainty_of({"label": "a", "scores": {"c": 0.1, "b": 0.4, "a": 0.5}}, 0.5)
    assert margin == pytest.approx(0.9) and reason == "between 'a' (0.50) and 'b' (0.40)"
    near, reason = uncertainty_of({"labels": ["b"], "scores": {"a": 0.15, "b": 0.9}}, 0.3)
    assert near == pytest.approx(0.5) and reason == "'a' has 0.15, its threshold is 0.30"
    tags = {"tokens": ["Ann", "sings"], "tags": ["B-PER", "O"], "scores": [0.6, 1.0]}
    found, reason = uncertainty_of(tags, 0.5)
    assert found == pytest.approx(0.2) and reason.endswith("least sure: 'Ann' as B-PER (0.60)")
