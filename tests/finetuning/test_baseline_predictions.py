"""Scores of the best constant prediction, compared with scikit-learn's dummies and counting."""

import itertools

import numpy as np
import pytest
import seqeval.metrics
from datasets import Dataset
from sklearn import metrics
from sklearn.dummy import DummyClassifier

from modeling_mybert import MyBertConfig
from mybert.finetuning.tasks.registry import task_class


def scores(name: str, rows: dict) -> dict[str, float]:
    """The scores of the best constant prediction for the labels of these rows."""
    rows, kind = Dataset.from_dict(rows), task_class(name)
    task = kind(kind.Options.of(), MyBertConfig()).fitted(rows)
    return task.baselines(task.references(rows))


def test_for_one_label_it_is_the_most_frequent_label():
    labels = np.random.default_rng(0).choice(["a", "b", "c"], size=50, p=[0.2, 0.5, 0.3])
    dummy = DummyClassifier(strategy="most_frequent").fit(np.zeros((50, 1)), labels)
    predicted = dummy.predict(np.zeros((50, 1)))
    found = scores("text-classification", {"text": ["x"] * 50, "label": labels.tolist()})
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(labels, predicted))
    assert found["f1_macro"] == pytest.approx(metrics.f1_score(labels, predicted, average="macro"))
    assert found["matthews_correlation"] == 0


def test_for_f1_of_two_labels_it_may_be_the_rare_label():
    labels = np.array(["0"] * 30 + ["1"] * 20)
    found = scores("text-classification", {"text": ["x"] * 50, "label": labels.tolist()})
    assert found["accuracy"] == 0.6
    assert found["f1"] == pytest.approx(metrics.f1_score(labels == "1", np.ones(50)))


def test_for_several_labels_no_set_scores_better():
    names, generator = ["a", "b", "c", "d"], np.random.default_rng(0)
    true = generator.random((30, 4)) < (0.6, 0.4, 0.2, 0.05)
    labels = [[name for name, has in zip(names, row, strict=True) if has] for row in true]
    found = scores("text-classification", {"text": ["x"] * 30, "label": labels})
    predicted = [np.broadcast_to(some, true.shape) for some in itertools.product([False, True], repeat=4)]
    assert found["accuracy"] == pytest.approx(max(metrics.accuracy_score(true, one) for one in predicted))
    for average in ("micro", "macro"):
        best = max(metrics.f1_score(true, one, average=average, zero_division=0) for one in predicted)
        assert found[f"f1_{average}"] == pytest.approx(best)


def test_for_numbers_it_is_the_mean():
    numbers = np.random.default_rng(0).normal(3, 2, size=40)
    found = scores("text-classification", {"text": ["x"] * 40, "label": numbers.tolist()})
    assert found["mse"] == pytest.approx(numbers.var())
    assert found["pearson"] == pytest.approx(0, abs=1e-6) and found["spearman"] == 0


def test_for_tags_it_is_the_best_tag():
    rows = {"tokens": [["x"] * 3, ["x"] * 2], "tags": [["NOUN", "X", "X"], ["X", "NOUN"]]}
    assert scores("token-classification", rows) == {"accuracy": 3 / 5}


def test_for_tags_of_entities_it_is_the_best_tag_of_each_metric():
    tags = [["B-PER", "O", "O"], ["O", "B-LOC", "O", "B-PER"], ["B-LOC", "I-LOC", "O"]]
    found = scores("token-classification", {"tokens": [["x"] * len(row) for row in tags], "tags": tags})
    predicted = [[[tag] * len(row) for row in tags] for tag in ("O", "B-PER", "B-LOC", "I-LOC")]
    for name in ("precision", "recall", "f1"):
        score = getattr(seqeval.metrics, f"{name}_score")
        assert found[name] == pytest.approx(max(score(tags, one, zero_division=0) for one in predicted))
        assert found[name] > 0
    assert found["accuracy"] == pytest.approx(5 / 10)


def test_for_choices_it_is_the_most_frequent_position():
    rows = {"context": ["x"] * 4, "choices": [["a", "b", "c"]] * 4, "label": ["C", "B", "C", "A"]}
    assert scores("multiple-choice", rows) == {"accuracy": 0.5}


def test_for_questions_it_is_no_answer():
    answers = [{"text": ["x"], "answer_start": [0]}, {"text": [], "answer_start": []}]
    found = scores("question-answering", {"question": ["x"] * 2, "context": ["x"] * 2, "answers": answers})
    assert found == {"exact_match": 0.5, "f1": 0.5}
