"""Bootstrap scores and scores of each label, compared with scikit-learn, seqeval and scipy."""

import functools
import tracemalloc

import numpy as np
import pytest
import seqeval.metrics
from datasets import Dataset
from new_tasks import task_of
from scipy import stats
from sklearn import metrics

from mybert.tasks import bootstrap_scores as class_scores

ROWS = 40
F1_MACRO = functools.partial(metrics.f1_score, average="macro")
F1_OF_CLASSES = functools.partial(metrics.f1_score, average=None, zero_division=0)


@pytest.fixture(params=range(3))
def samples(request) -> np.ndarray:
    return np.random.default_rng(request.param).integers(ROWS, size=(5, ROWS))


def check(found: dict, samples: np.ndarray, true: np.ndarray, predicted: np.ndarray, **expected) -> None:
    """Compares the scores of each sample with those of functions of others, by the name of the score."""
    assert found.keys() == expected.keys()
    for name, score in expected.items():
        assert found[name] == pytest.approx([score(true[sample], predicted[sample]) for sample in samples]), name


@pytest.mark.parametrize("classes", [2, 4])
def test_single_labels_score_as_in_scikit_learn(samples, classes):
    predicted, true = np.random.default_rng(classes).integers(classes, size=(2, ROWS))
    expected = {"accuracy": metrics.accuracy_score, "f1_macro": F1_MACRO, "f1": metrics.f1_score}
    expected |= {"matthews_correlation": metrics.matthews_corrcoef}
    if classes > 2:
        del expected["f1"]
    check(class_scores.single_label(predicted, true, classes, samples), samples, true, predicted, **expected)


@pytest.mark.parametrize("shape", [(ROWS,), (ROWS, 3)])
def test_a_class_that_a_sample_lacks_keeps_its_f1(shape):
    """Macro F1 is over the same classes in each sample, so that its interval contains the score."""
    chance = np.random.default_rng(1)
    if len(shape) == 1:
        true, predicted = chance.choice(12, size=(2, *shape), p=[0.56, *[0.04] * 11])
        predicted = np.where(chance.random(ROWS) < 0.7, true, predicted)
        scores, labels = functools.partial(class_scores.single_label, predicted, true, 12), np.union1d(true, predicted)
    else:
        true, predicted = chance.random((2, *shape)) < (0.6, 0.04, 0.02)
        predicted[:, 1:] = true[:, 1:]
        scores, labels = functools.partial(class_scores.multi_label, predicted, true), np.arange(3)
    samples = chance.integers(ROWS, size=(300, ROWS))
    whole, expected = F1_OF_CLASSES(true, predicted, labels=labels), []
    for sample in samples:
        some = F1_OF_CLASSES(true[sample], predicted[sample], labels=labels)
        there = [
            np.any([each[sample] == label if len(shape) == 1 else each[sample, label] for each in (true, predicted)])
            for label in labels
        ]
        expected.append(np.where(there, some, whole).mean())
    found = scores(samples)["f1_macro"]
    assert found == pytest.approx(expected)
    assert np.percentile(found, 2.5) < whole.mean() < np.percentile(found, 97.5)


def test_rows_that_are_all_right_have_wilsons_interval_or_none():
    low, high = class_scores.interval_95([1.0] * 20, ROWS, is_share=True)
    z = stats.norm.ppf(0.975)
    assert (low, high) == pytest.approx((ROWS / (ROWS + z**2), 1.0))
    assert class_scores.interval_95([0.0] * 20, ROWS, is_share=True) == pytest.approx((0.0, 1 - low))
    assert class_scores.interval_95([1.0] * 20, ROWS, is_share=False) is None
    assert class_scores.interval_95(np.linspace(0, 1, 41), ROWS, is_share=True) == pytest.approx((0.025, 0.975))


def test_undefined_scores_are_zero():
    ones, zeros, all_rows = np.ones(4, int), np.zeros(4, int), np.arange(4)[None]
    assert class_scores.single_label(ones, ones, 2, all_rows)["matthews_correlation"] == [0]
    assert class_scores.single_label(zeros, ones, 2, all_rows)["f1"] == [0]
    assert class_scores.regression(np.ones(4), np.arange(4.0), all_rows)["pearson"] == [0]
    constants = np.full(6, 0.1), np.full(6, 0.7)  # rounding makes their means differ from their values
    assert class_scores.regression(*constants, np.arange(6)[None])["pearson"] == [0]


def test_memory_grows_with_classes_times_samples():
    classes, rows, drawn = 400, 500, 200
    predicted, true = np.random.default_rng(0).integers(classes, size=(2, rows))
    numbers = np.random.default_rng(1).integers(rows, size=(drawn, rows))
    tracemalloc.start()
    class_scores.single_label(predicted, true, classes, numbers)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * drawn * classes * 8 < drawn * classes**2  # 16 arrays of floats, much less than the matrices


def test_several_labels_score_as_in_scikit_learn(samples):
    predicted, true = np.random.default_rng(0).random((2, ROWS, 3)) > 0.6
    expected = {"f1_micro": functools.partial(metrics.f1_score, average="micro"), "f1_macro": F1_MACRO}
    found = class_scores.multi_label(predicted, true, samples)
    check(found, samples, true, predicted, accuracy=metrics.accuracy_score, **expected)


def test_numbers_score_as_in_scipy(samples):
    predicted, true = np.random.default_rng(0).normal(size=(2, ROWS)).round(1)
    expected = {"pearson": lambda *pair: stats.pearsonr(*pair)[0], "spearman": lambda *pair: stats.spearmanr(*pair)[0]}
    found = class_scores.regression(predicted, true, samples)
    check(found, samples, true, predicted, mse=metrics.mean_squared_error, **expected)


def scores_by_label(name: str, rows: dict, predicted: list[dict]) -> dict[str, tuple]:
    """Precision, recall, F1 and number of true occurrences of each label."""
    data = Dataset.from_dict(rows)
    task = task_of(name).fitted(data)
    found = task.label_scores(predicted, task.references(data))
    assert list(found) == sorted(found, key=lambda label: (-found[label].true, label))
    return {label: (scores.precision, scores.recall, scores.f1, scores.true) for label, scores in found.items()}


def of_others(report: dict) -> dict[str, tuple]:
    """The same values from a report of scikit-learn or seqeval."""
    labels = {name: report[name] for name in report if name != "accuracy" and not name.endswith(" avg")}
    return {name: pytest.approx(tuple(scores.values())) for name, scores in labels.items()}


def test_scores_of_each_label_are_scikit_learns():
    generator = np.random.default_rng(0)
    true, predicted = generator.choice([*"abcd"], size=(2, 200), p=[0.5, 0.3, 0.15, 0.05]).tolist()
    rows = {"text": ["x"] * 200, "label": true}
    found = scores_by_label("text-classification", rows, [{"label": label} for label in predicted])
    assert found == of_others(metrics.classification_report(true, predicted, output_dict=True, zero_division=0))
    true, predicted = generator.random((2, 200, 3)) < (0.5, 0.2, 0.05)
    labels = [
        [[name for name, has in zip("abc", row, strict=True) if has] for row in each] for each in (true, predicted)
    ]
    rows = {"text": ["x"] * 200, "label": labels[0]}
    found = scores_by_label("text-classification", rows, [{"labels": some} for some in labels[1]])
    report = metrics.classification_report(true, predicted, target_names=[*"abc"], output_dict=True, zero_division=0)
    assert found == of_others(report)


def test_scores_of_each_kind_of_entity_are_seqevals():
    generator = np.random.default_rng(0)
    tags = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    true, predicted = generator.choice(tags, size=(2, 100, 8), p=[0.4, 0.25, 0.1, 0.15, 0.1]).tolist()
    words = [["x"] * 8] * 100
    found = scores_by_label("token-classification", {"tokens": words, "tags": true}, [{"tags": t} for t in predicted])
    report = seqeval.metrics.classification_report(true, predicted, output_dict=True, zero_division=0)
    assert found == of_others(report)
    true, predicted = generator.choice(["DET", "NOUN", "VERB"], size=(2, 100, 8)).tolist()
    found = scores_by_label("token-classification", {"tokens": words, "tags": true}, [{"tags": t} for t in predicted])
    report = metrics.classification_report(np.ravel(true), np.ravel(predicted), output_dict=True, zero_division=0)
    assert found == of_others(report)
