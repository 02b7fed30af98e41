"""Metrics of `evaluate`, compared with scikit-learn, scipy, seqeval and SQuAD's rules."""

import evaluate
import numpy as np
import pytest
import seqeval.metrics
import seqeval.scheme
from scipy import stats
from sklearn import metrics as sklearn_metrics

from mybert.finetuning import metrics

WORDS = np.array(["bad", "fair", "good"])


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("evaluate.config.HF_METRICS_CACHE", tmp_path / "metrics")


@pytest.fixture(params=range(3))
def draw(request) -> np.random.Generator:
    return np.random.default_rng(request.param)


def compute(name: str, predictions, references, **settings) -> dict:
    return metrics.load(name).compute(predictions=predictions, references=references, **settings)


@pytest.mark.parametrize("name", metrics.METRICS)
def test_a_metric_loads_without_network(name, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("asked the network")

    monkeypatch.setattr("socket.getaddrinfo", refuse)
    monkeypatch.setattr("socket.socket.connect", refuse)
    loaded = metrics.load(name)
    assert isinstance(loaded, evaluate.Metric)
    assert loaded.name == name
    assert loaded.description and loaded.inputs_description


def test_an_unknown_metric_is_refused_with_the_known_names():
    with pytest.raises(ValueError, match=r"expected one of accuracy, f1, .*found 'bleu'"):
        metrics.load("bleu")


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize(
    ("name", "function", "options"),
    [
        ("accuracy", "accuracy_score", {}),
        ("matthews_correlation", "matthews_corrcoef", {}),
        *(("f1", "f1_score", {"average": average}) for average in ("micro", "macro", "weighted", None)),
        ("f1", "f1_score", {"average": "macro", "sample_weight": [n / 30 for n in range(30)]}),
    ],
)
def test_labels_score_as_in_scikit_learn(draw, words, name, function, options):
    predicted, true = draw.integers(3, size=(2, 30))
    predicted, true = (WORDS[predicted], WORDS[true]) if words else (predicted, true)
    expected = getattr(sklearn_metrics, function)(true, predicted, **options)
    assert compute(name, predicted.tolist(), true.tolist(), **options)[name] == pytest.approx(expected)


@pytest.mark.parametrize("positive", [0, 1])
def test_f1_of_one_class_is_that_of_scikit_learn(draw, positive):
    predicted, true = draw.integers(2, size=(2, 20))
    expected = sklearn_metrics.f1_score(true, predicted, pos_label=positive)
    assert compute("f1", predicted, true, pos_label=positive)["f1"] == pytest.approx(expected)
    predicted, true = WORDS[predicted].tolist(), WORDS[true].tolist()
    assert compute("f1", predicted, true, pos_label=WORDS[positive])["f1"] == pytest.approx(expected)


def test_f1_of_one_class_needs_at_most_two_classes():
    assert compute("f1", [1, 1], [1, 1]) == {"f1": 1}
    assert compute("f1", [0, 0], [0, 0]) == {"f1": 0} and compute("f1", [0], [0], zero_division=1.0) == {"f1": 1}
    with pytest.raises(ValueError, match=r"average='binary'.*micro"):
        compute("f1", [0, 1, 2], [0, 1, 2])


def test_numbers_correlate_as_in_scipy(draw):
    predicted, true = draw.normal(size=(2, 25)).round(1)  # with ties
    assert compute("pearsonr", predicted, true)["pearsonr"] == pytest.approx(stats.pearsonr(predicted, true)[0])
    assert compute("spearmanr", predicted, true)["spearmanr"] == pytest.approx(stats.spearmanr(predicted, true)[0])


def test_several_labels_per_row_score_as_in_scikit_learn(draw):
    predicted, true = (draw.random((2, 20, 4)) > 0.6).astype(int)
    found = compute("multi_label", predicted, true)
    for average in ("micro", "macro"):
        expected = sklearn_metrics.f1_score(true, predicted, average=average, zero_division=0)
        assert found[f"f1_{average}"] == pytest.approx(expected)
    assert found["accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(true, predicted))


@pytest.mark.parametrize("row", [[0, 1, 1], [0, 2]])
def test_rows_of_several_labels_must_have_equal_length_and_be_binary(row):
    with pytest.raises(ValueError, match="predictions, row 2: expected 2 times 0 or 1, found"):
        compute("multi_label", [[0, 1], row], [[0, 1], [0, 1]])


@pytest.mark.parametrize("scheme", ["IOB2", "IOB1", "IOBES"])
@pytest.mark.parametrize("mode", [None, "strict"])
def test_entities_score_as_in_seqeval(draw, scheme, mode):
    tags = ["O", "B-PER", "B-LOC", "B-LOC", "I-LOC", *(["E-LOC", "S-PER"] if scheme == "IOBES" else [])]
    true = draw.choice(tags, size=(40, 6)).tolist()
    predicted = [[tag if draw.random() < 0.8 else str(draw.choice(tags)) for tag in sentence] for sentence in true]
    kind = {"mode": mode, "scheme": getattr(seqeval.scheme, scheme)} if mode else {}
    found = compute("seqeval", predicted, true, mode=mode, **({"scheme": scheme} if mode and scheme != "IOB2" else {}))
    for name in ("precision", "recall", "f1"):
        expected = getattr(seqeval.metrics, f"{name}_score")(true, predicted, **kind)
        assert found[f"overall_{name}"] == pytest.approx(expected) and 0 < expected < 1
    assert found["overall_accuracy"] == pytest.approx(seqeval.metrics.accuracy_score(true, predicted))


def test_sentences_without_entities_are_scored_and_other_tags_are_refused():
    assert compute("seqeval", [["O", "O"]], [["O", "O"]])["overall_accuracy"] == 1
    assert compute("seqeval", [["O", "B-PER"]], [["O", "O"]])["overall_f1"] == 0
    with pytest.raises(ValueError, match=r"expected entity tags of one scheme, .*found NOUN, VERB"):
        compute("seqeval", [["NOUN"]], [["VERB"]])
    with pytest.raises(ValueError, match="sentence 2: 1 tags predicted, expected 2"):
        compute("seqeval", [["O"], ["O"]], [["O"], ["O", "O"]])


def questions(*answers: list[str]) -> list[dict]:
    return [
        {"id": str(number), "answers": {"text": texts, "answer_start": [0] * len(texts)}}
        for number, texts in enumerate(answers)
    ]


def replies(*texts: str, silent: tuple[float, ...] | None = None) -> list[dict]:
    found = [{"id": str(number), "prediction_text": text} for number, text in enumerate(texts)]
    if silent is None:
        return found
    return [{**one, "no_answer_probability": share} for one, share in zip(found, silent, strict=True)]


# prediction, references, then exact match and F1 by the published scripts of SQuAD 1.1 and 2.0
SQUAD_CASES = [
    ("The  Film!", ["film"], (1, 1), (1, 1)),  # case, articles, punctuation and spaces are ignored
    ("a good film", ["the good old film"], (0, 0.8), (0, 0.8)),
    ("film film", ["film"], (0, 2 / 3), (0, 2 / 3)),
    ("Rome", ["Paris", "in Rome"], (0, 2 / 3), (0, 2 / 3)),  # the highest score of all references
    ("U.S.", ["US"], (1, 1), (1, 1)),
    ("", ["Rome"], (0, 0), (0, 0)),
    ("the", ["a"], (1, 0), (1, 1)),  # both are empty after normalisation
    ("the", ["a", "Rome"], (1, 0), (0, 0)),  # SQuAD 2.0 ignores references that are empty after normalisation
]


def test_answers_score_by_the_published_rules_of_squad_1():
    predicted, true, expected, _ = zip(*SQUAD_CASES, strict=True)
    found = compute("squad", replies(*predicted), questions(*true)[::-1])  # matched by id, not by position
    assert found["exact_match"] == pytest.approx(100 * np.mean([exact for exact, _ in expected]))
    assert found["f1"] == pytest.approx(100 * np.mean([f1 for _, f1 in expected]))
    for answer, answers, (exact, f1), _ in SQUAD_CASES:
        found = compute("squad", replies(answer), questions(answers))
        assert (found["exact_match"], found["f1"]) == pytest.approx((100 * exact, 100 * f1))


def test_answers_score_by_the_published_rules_of_squad_2():
    for answer, answers, _, (exact, f1) in SQUAD_CASES:
        found = compute("squad_v2", replies(answer, silent=(0,)), questions(answers))
        assert (found["exact"], found["f1"]) == pytest.approx((100 * exact, 100 * f1))
    predicted = replies("Rome", "", "Paris", "film", silent=(0.2, 0.9, 0.8, 0.1))
    true = questions(["in Rome"], [], [], ["film", "a book"])
    found = compute("squad_v2", predicted, true)
    counts = {"total": 4, "HasAns_total": 2, "NoAns_total": 2}
    expected = {"exact": 50, "f1": 100 * (2 / 3 + 1 + 0 + 1) / 4, "HasAns_exact": 50, "HasAns_f1": 100 * 5 / 6}
    expected |= {"NoAns_exact": 50, "NoAns_f1": 50, **counts, "best_exact": 75, "best_f1": 100 * (2 / 3 + 3) / 4}
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert 0.2 <= found["best_f1_thresh"] < 0.8
    assert found.keys() - expected.keys() == {"best_exact_thresh", "best_f1_thresh"}
    assert compute("squad_v2", predicted, true, no_answer_threshold=0.5)["f1"] == pytest.approx(expected["best_f1"])


def test_no_threshold_of_squad_2_is_better_than_the_best_one(draw):
    silent = draw.integers(5, size=12) / 4
    true = questions(*(["Rome"] if draw.random() < 0.5 else [] for _ in range(12)))
    predicted = replies(*draw.choice(["Rome", "Paris", "in Rome"], size=12).tolist(), silent=tuple(silent.tolist()))
    found = compute("squad_v2", predicted, true)
    everywhere = [compute("squad_v2", predicted, true, no_answer_threshold=t) for t in np.arange(-1, 12) / 8]
    for name in ("exact", "f1"):
        assert found[f"best_{name}"] == pytest.approx(max(one[name] for one in everywhere))
        at_best = compute("squad_v2", predicted, true, no_answer_threshold=found[f"best_{name}_thresh"])
        assert at_best[name] == pytest.approx(found[f"best_{name}"])


def test_a_question_without_prediction_or_answer_is_named():
    with pytest.raises(ValueError, match="questions without a prediction: 1, such as '1'"):
        compute("squad", [*replies("a"), {"id": "9", "prediction_text": "b"}], questions(["a"], ["b"]))
    with pytest.raises(ValueError, match="question '1' has no answer"):
        compute("squad", replies("a", "b"), questions(["a"], []))


def test_batches_add_up():
    metric = metrics.load("accuracy")
    metric.add_batch(predictions=[0, 1], references=[0, 0])
    metric.add(prediction=1, reference=1)
    assert metric.compute()["accuracy"] == pytest.approx(2 / 3)
