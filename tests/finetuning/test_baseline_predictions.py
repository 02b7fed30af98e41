"""Scores of the best constant prediction, compared with scikit-learn's dummies and counting."""

import itertools

import numpy as np
import pytest
import seqeval.metrics
from datasets import Dataset
from new_tasks import task_of
from sklearn import metrics
from sklearn.dummy import DummyClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import RidgeClassifier

from modeling_mybert import MyBertConfig
from mybert.tasks.simple_models import bag_of_words, most_frequent_tags


def scores(name: str, rows: dict) -> dict[str, float]:
    """The scores of the best constant prediction for the labels of these rows."""
    rows = Dataset.from_dict(rows)
    task = task_of(name).fitted(rows)
    return task.baselines(task.references(rows))


def test_for_one_label_it_is_the_most_frequent_label():
    labels = np.random.default_rng(0).choice(["a", "b", "c"], size=50, p=[0.2, 0.5, 0.3])
    dummy = DummyClassifier(strategy="most_frequent").fit(np.zeros((50, 1)), labels)
    predicted = dummy.predict(np.zeros((50, 1)))
    found = scores("text-classification", {"text": ["x"] * 50, "label": labels.tolist()})
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(labels, predicted))
    assert found["f1_macro"] == pytest.approx(metrics.f1_score(labels, predicted, average="macro"))
    assert found["matthews_correlation"] == 0
    # of F1 of two labels it may be the rare one
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


def test_for_tags_of_entities_it_is_the_best_tag_of_each_metric():
    tags = [["B-PER", "O", "O"], ["O", "B-LOC", "O", "B-PER"], ["B-LOC", "I-LOC", "O"]]
    found = scores("token-classification", {"tokens": [["x"] * len(row) for row in tags], "tags": tags})
    predicted = [[[tag] * len(row) for row in tags] for tag in ("O", "B-PER", "B-LOC", "I-LOC")]
    for name in ("precision", "recall", "f1"):
        score = getattr(seqeval.metrics, f"{name}_score")
        assert found[name] == pytest.approx(max(score(tags, one, zero_division=0) for one in predicted))
        assert found[name] > 0
    assert found["accuracy"] == pytest.approx(5 / 10)


ANSWERS = [{"text": ["x"], "answer_start": [0]}, {"text": [], "answer_start": []}]


@pytest.mark.parametrize(
    ("task", "rows", "expected"),
    [
        ("multiple-choice", {"context": ["x"] * 4, "choices": [[*"abc"]] * 4, "label": [*"CBCA"]}, {"accuracy": 0.5}),
        (
            "token-classification",
            {"tokens": [[*"xxx"], [*"xx"]], "tags": [["N", "X", "X"], ["X", "N"]]},
            {"accuracy": 0.6},
        ),
        (
            "question-answering",
            {"question": ["x"] * 2, "context": ["x"] * 2, "answers": ANSWERS},
            {"exact_match": 0.5, "f1": 0.5},
        ),
    ],
)
def test_for_choices_tags_and_questions_it_is_the_most_frequent_position_tag_and_no_answer(task, rows, expected):
    assert scores(task, rows) == expected


WORDS = np.array([f"word{number}" for number in range(40)])


def drawn(seed: int, count: int = 300) -> tuple[list[str], np.ndarray]:
    """Texts, and which of three topics each is about: a topic prefers a third of the words."""
    generator = np.random.default_rng(seed)
    topics = generator.integers(0, 3, count)
    texts = [" ".join(generator.choice(WORDS[topic::3] if generator.random() < 0.7 else WORDS, 6)) for topic in topics]
    return texts, topics


def test_a_bag_of_words_is_ridge_regression_on_tf_idf():
    (texts, topics), (others, _) = drawn(0), drawn(1, 50)
    vectors = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2))
    oracle = RidgeClassifier().fit(vectors.fit_transform(texts), topics)
    found = bag_of_words([(text,) for text in texts], np.eye(3)[topics], [(text,) for text in others])
    assert (found.argmax(1) == oracle.predict(vectors.transform(others))).mean() > 0.97
    # its classifier learns -1 and 1
    np.testing.assert_allclose(2 * found - 1, oracle.decision_function(vectors.transform(others)), atol=0.01)


def test_a_bag_of_words_sees_whether_the_texts_of_a_pair_share_words():
    def pairs(seed):
        texts, _ = drawn(seed)
        same = np.random.default_rng(seed).random(len(texts)) < 0.5
        return [
            (one, one if equal else texts[number - 1])
            for number, (one, equal) in enumerate(zip(texts, same, strict=True))
        ], same

    (rows, same), (others, expected) = pairs(0), pairs(1)
    found = bag_of_words(rows, same[:, None], others)[:, 0] > 0.5
    assert (found == expected).mean() > 0.95


@pytest.mark.parametrize(
    ("texts", "others"),
    [
        (["कूल है", "कुल है"] * 20, ["कूल", "कुल"]),  # two words that differ by a vowel sign
        (["你好吗", "再见了"] * 20, ["好", "见"]),  # no spaces
        (["a b", "b c"] * 20, ["a", "c"]),  # single letters
    ],
)
def test_words_of_a_bag_of_words_in_other_scripts(texts, others):
    found = bag_of_words([(text,) for text in texts], np.array([[0], [1]] * 20), [(text,) for text in others])
    assert found[0] < 0.5 < found[1]


def test_texts_without_words_get_the_mean():
    assert bag_of_words([("...",), ("",)], np.array([[1, 0], [0, 0]]), [("x",)]).tolist() == [[0.5, 0]]


def test_the_most_frequent_tag_of_each_word():
    found = most_frequent_tags([["a", "b", "a"], ["a", "b"]], [["X", "Y", "X"], ["Y", "Y"]], [["b", "a", "new"], []])
    assert found == [["Y", "X", "Y"], []]


def test_simple_models_are_scored_for_every_kind_of_labels():
    rows = {"text": ["a good one", "a bad one"] * 20}
    for labels, metric, best in (
        ([["good"], []], "f1_micro", 1),
        (["yes", "no"], "accuracy", 1),
        ([1.0, 2.5], "pearson", 1),
    ):
        data = Dataset.from_dict(rows | {"label": labels * 20})
        task = task_of(config=MyBertConfig(label_threshold=0.9)).fitted(data)
        (predicted,) = task.simple_predictions(data, data).values()
        assert task.score(predicted, task.references(data))[metric] == pytest.approx(best, abs=0.01)
