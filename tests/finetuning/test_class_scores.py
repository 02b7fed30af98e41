"""Scores on many samples at once, against scikit-learn and scipy on each."""

import tracemalloc

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from mybert.finetuning import class_scores

ROWS = 40


@pytest.fixture(params=range(3))
def samples(request) -> np.ndarray:
    return np.random.default_rng(request.param).integers(ROWS, size=(5, ROWS))


@pytest.mark.parametrize("classes", [2, 4])
def test_single_labels_score_as_in_scikit_learn(samples, classes):
    chance = np.random.default_rng(classes)
    said, true = chance.integers(classes, size=(2, ROWS))
    found = class_scores.single_label(said, true, classes, samples)
    for i, sample in enumerate(samples):
        one, other = true[sample], said[sample]
        assert found["accuracy"][i] == pytest.approx(metrics.accuracy_score(one, other))
        assert found["f1_macro"][i] == pytest.approx(metrics.f1_score(one, other, average="macro"))
        assert found["matthews_correlation"][i] == pytest.approx(metrics.matthews_corrcoef(one, other))
        if classes == 2:
            assert found["f1"][i] == pytest.approx(metrics.f1_score(one, other))
    assert ("f1" in found) == (classes == 2)


def test_a_constant_answer_scores_zero_where_scores_are_not_defined():
    ones, zeros, all_rows = np.ones(4, int), np.zeros(4, int), np.arange(4)[None]
    assert class_scores.single_label(ones, ones, 2, all_rows)["matthews_correlation"] == [0]
    assert class_scores.single_label(zeros, ones, 2, all_rows)["f1"] == [0]
    assert class_scores.regression(np.ones(4), np.arange(4.0), all_rows)["pearson"] == [0]
    constants = np.full(6, 0.1), np.full(6, 0.7)  # none is its own mean, by rounding
    assert class_scores.regression(*constants, np.arange(6)[None])["pearson"] == [0]


@pytest.mark.parametrize("classes", [2, 7])
def test_scores_follow_from_the_confusion_matrix_to_the_last_digit(samples, classes):
    said, true = np.random.default_rng(classes).integers(classes, size=(2, ROWS))
    counts = class_scores.confusion(said, true, classes, samples).astype(float)
    assert [matrix.tolist() for matrix in counts] == [
        metrics.confusion_matrix(true[sample], said[sample], labels=range(classes)).tolist() for sample in samples
    ]
    hits, trues, saids, total = counts.diagonal(0, 1, 2), counts.sum(2), counts.sum(1), float(ROWS)
    f1 = np.divide(2 * hits, trues + saids, out=np.zeros_like(hits), where=trues + saids > 0)
    spread = (total**2 - (trues**2).sum(1)) * (total**2 - (saids**2).sum(1))
    found = class_scores.single_label(said, true, classes, samples)
    assert found["accuracy"] == (hits.sum(1) / total).tolist()
    assert found["f1_macro"] == (f1.sum(1) / (trues + saids > 0).sum(1)).tolist()
    assert found["matthews_correlation"] == ((hits.sum(1) * total - (trues * saids).sum(1)) / np.sqrt(spread)).tolist()


def test_many_classes_and_samples_take_the_memory_of_their_product():
    classes, rows, drawn = 400, 500, 200
    said, true = np.random.default_rng(0).integers(classes, size=(2, rows))
    numbers = np.random.default_rng(1).integers(rows, size=(drawn, rows))
    tracemalloc.start()
    class_scores.single_label(said, true, classes, numbers)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * drawn * classes * 8 < drawn * classes**2  # bytes: sixteen tables of floats, far from one matrix


def test_several_labels_score_as_in_scikit_learn(samples):
    said, true = np.random.default_rng(0).random((2, ROWS, 3)) > 0.6
    found = class_scores.multi_label(said, true, samples)
    for i, sample in enumerate(samples):
        one, other = true[sample], said[sample]
        assert found["f1_micro"][i] == pytest.approx(metrics.f1_score(one, other, average="micro"))
        assert found["f1_macro"][i] == pytest.approx(metrics.f1_score(one, other, average="macro"))
        assert found["accuracy"][i] == pytest.approx(metrics.accuracy_score(one, other))


def test_numbers_score_as_in_scipy(samples):
    said, true = np.random.default_rng(0).normal(size=(2, ROWS)).round(1)
    found = class_scores.regression(said, true, samples)
    for i, sample in enumerate(samples):
        one, other = true[sample], said[sample]
        assert found["pearson"][i] == pytest.approx(stats.pearsonr(one, other)[0])
        assert found["spearman"][i] == pytest.approx(stats.spearmanr(one, other)[0])
        assert found["mse"][i] == pytest.approx(metrics.mean_squared_error(one, other))
