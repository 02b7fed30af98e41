"""The metrics as modules of `evaluate`, against scikit-learn, scipy, seqeval and SQuAD's rules."""

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


@pytest.mark.parametrize("name", metrics.NAMES)
def test_a_metric_loads_by_its_path_without_network(name, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("asked the network")

    monkeypatch.setattr("socket.getaddrinfo", refuse)
    monkeypatch.setattr("socket.socket.connect", refuse)
    loaded = evaluate.load(metrics.path(name))
    assert isinstance(loaded, evaluate.Metric)
    assert loaded.name == name
    assert loaded.description and loaded.inputs_description


def test_an_unknown_metric_is_refused_with_the_names_of_those_there_are():
    with pytest.raises(ValueError, match=r"expected one of accuracy, f1, .*found 'bleu'"):
        metrics.load("bleu")


@pytest.mark.parametrize("words", [False, True])
def test_labels_score_as_in_scikit_learn(draw, words):
    said, true = draw.integers(3, size=(2, 30))
    said, true = (WORDS[said], WORDS[true]) if words else (said, true)
    pair = said.tolist(), true.tolist()
    assert compute("accuracy", *pair)["accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(true, said))
    found = compute("matthews_correlation", *pair)["matthews_correlation"]
    assert found == pytest.approx(sklearn_metrics.matthews_corrcoef(true, said))
    for average in ("micro", "macro"):
        expected = sklearn_metrics.f1_score(true, said, average=average)
        assert compute("f1", *pair, average=average)["f1"] == pytest.approx(expected)


@pytest.mark.parametrize("positive", [0, 1])
def test_f1_of_one_class_is_that_of_scikit_learn(draw, positive):
    said, true = draw.integers(2, size=(2, 20))
    expected = sklearn_metrics.f1_score(true, said, pos_label=positive)
    assert compute("f1", said, true, pos_label=positive)["f1"] == pytest.approx(expected)
    said, true = WORDS[said].tolist(), WORDS[true].tolist()
    assert compute("f1", said, true, pos_label=WORDS[positive])["f1"] == pytest.approx(expected)


def test_f1_of_one_class_where_only_one_occurs():
    assert compute("f1", [1, 1], [1, 1]) == {"f1": 1}
    assert compute("f1", [0, 0], [0, 0]) == {"f1": 0}


@pytest.mark.parametrize(
    ("settings", "message"),
    [({}, "expects two labels, found 0, 1, 2"), ({"average": "weighted"}, "binary, micro or macro, found 'weighted'")],
)
def test_f1_says_what_it_cannot_do(settings, message):
    with pytest.raises(ValueError, match=message):
        compute("f1", [0, 1, 2], [0, 1, 2], **settings)


def test_numbers_correlate_as_in_scipy(draw):
    said, true = draw.normal(size=(2, 25)).round(1)  # with ties
    assert compute("pearsonr", said, true)["pearsonr"] == pytest.approx(stats.pearsonr(said, true)[0])
    assert compute("spearmanr", said, true)["spearmanr"] == pytest.approx(stats.spearmanr(said, true)[0])


def test_several_labels_a_row_score_as_in_scikit_learn(draw):
    said, true = (draw.random((2, 20, 4)) > 0.6).astype(int)
    found = compute("multi_label", said, true)
    for average in ("micro", "macro"):
        expected = sklearn_metrics.f1_score(true, said, average=average, zero_division=0)
        assert found[f"f1_{average}"] == pytest.approx(expected)
    assert found["accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(true, said))


@pytest.mark.parametrize("row", [[0, 1, 1], [0, 2]])
def test_rows_of_several_labels_must_be_alike(row):
    with pytest.raises(ValueError, match="predictions, row 2: expected 2 times 0 or 1, found"):
        compute("multi_label", [[0, 1], row], [[0, 1], [0, 1]])


@pytest.mark.parametrize("scheme", ["IOB1", "IOB2", "IOBES"])
def test_entities_score_as_in_seqeval(draw, scheme):
    begin, inside, *alone = {"IOB1": "II", "IOB2": "BI", "IOBES": "BES"}[scheme]
    ways = {"film": ["O"], "one": [f"{alone[0] if alone else begin}-LOC"], "two": [f"{begin}-PER", f"{inside}-PER"]}
    true, said = [], []
    for _ in range(20):
        truth = [tag for way in draw.choice([*ways, "film"], size=4) for tag in (*ways[way], "O")]
        true.append(truth)
        said.append([tag if draw.random() < 0.8 else str(draw.choice(truth)) for tag in truth])
    found = compute("seqeval", said, true)
    kind = {"mode": "strict", "scheme": getattr(seqeval.scheme, scheme)}
    for name in ("precision", "recall", "f1"):
        expected = getattr(seqeval.metrics, f"{name}_score")(true, said, **kind)
        assert found[f"overall_{name}"] == pytest.approx(expected)
    assert found["overall_accuracy"] == pytest.approx(seqeval.metrics.accuracy_score(true, said))
    assert compute("seqeval", said, true, scheme=scheme) == found
    assert 0 < found["overall_f1"] < 1


def test_sentences_without_entities_are_scored_and_tags_of_no_entity_refused():
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


# answers given, true ones, and by the rules of the published scripts: exact match and F1 of 1.1 and of 2.0
SQUAD_CASES = [
    ("The  Film!", ["film"], (1, 1), (1, 1)),  # case, articles, punctuation and spaces do not count
    ("a good film", ["the good old film"], (0, 0.8), (0, 0.8)),
    ("film film", ["film"], (0, 2 / 3), (0, 2 / 3)),
    ("Rome", ["Paris", "in Rome"], (0, 2 / 3), (0, 2 / 3)),  # the best of all answers
    ("U.S.", ["US"], (1, 1), (1, 1)),
    ("", ["Rome"], (0, 0), (0, 0)),
    ("the", ["a"], (1, 0), (1, 1)),  # nothing is left of both
    ("the", ["a", "Rome"], (1, 0), (0, 0)),  # 2.0 leaves out answers of which nothing is left
]


def test_answers_score_by_the_published_rules_of_squad_1():
    said, true, expected, _ = zip(*SQUAD_CASES, strict=True)
    found = compute("squad", replies(*said), questions(*true)[::-1])  # matched by id, not by place
    assert found["exact_match"] == pytest.approx(100 * np.mean([exact for exact, _ in expected]))
    assert found["f1"] == pytest.approx(100 * np.mean([f1 for _, f1 in expected]))
    for answer, answers, (exact, f1), _ in SQUAD_CASES:
        found = compute("squad", replies(answer), questions(answers))
        assert (found["exact_match"], found["f1"]) == pytest.approx((100 * exact, 100 * f1))


def test_answers_score_by_the_published_rules_of_squad_2():
    for answer, answers, _, (exact, f1) in SQUAD_CASES:
        found = compute("squad_v2", replies(answer, silent=(0,)), questions(answers))
        assert (found["exact"], found["f1"]) == pytest.approx((100 * exact, 100 * f1))
    said = replies("Rome", "", "Paris", "film", silent=(0.2, 0.9, 0.8, 0.1))
    true = questions(["in Rome"], [], [], ["film", "a book"])
    found = compute("squad_v2", said, true)
    counts = {"total": 4, "HasAns_total": 2, "NoAns_total": 2}
    expected = {"exact": 50, "f1": 100 * (2 / 3 + 1 + 0 + 1) / 4, "HasAns_exact": 50, "HasAns_f1": 100 * 5 / 6}
    expected |= {"NoAns_exact": 50, "NoAns_f1": 50, **counts, "best_exact": 75, "best_f1": 100 * (2 / 3 + 3) / 4}
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert 0.2 <= found["best_f1_thresh"] < 0.8
    assert found.keys() - expected.keys() == {"best_exact_thresh", "best_f1_thresh"}
    assert compute("squad_v2", said, true, no_answer_threshold=0.5)["f1"] == pytest.approx(expected["best_f1"])


def test_the_best_threshold_of_squad_2_is_the_best_of_all(draw):
    silent = draw.integers(5, size=12) / 4
    true = questions(*(["Rome"] if draw.random() < 0.5 else [] for _ in range(12)))
    said = replies(*draw.choice(["Rome", "Paris", "in Rome"], size=12).tolist(), silent=tuple(silent.tolist()))
    found = compute("squad_v2", said, true)
    everywhere = [compute("squad_v2", said, true, no_answer_threshold=t) for t in np.arange(-1, 12) / 8]
    for name in ("exact", "f1"):
        assert found[f"best_{name}"] == pytest.approx(max(one[name] for one in everywhere))
        at_best = compute("squad_v2", said, true, no_answer_threshold=found[f"best_{name}_thresh"])
        assert at_best[name] == pytest.approx(found[f"best_{name}"])


def test_a_question_without_prediction_or_answer_is_named():
    with pytest.raises(ValueError, match="1 questions have no prediction, such as '1'"):
        compute("squad", [*replies("a"), {"id": "9", "prediction_text": "b"}], questions(["a"], ["b"]))
    with pytest.raises(ValueError, match="question '1' has no answer"):
        compute("squad", replies("a", "b"), questions(["a"], []))


def test_batches_add_up():
    metric = evaluate.load(metrics.path("accuracy"))
    metric.add_batch(predictions=[0, 1], references=[0, 0])
    metric.add(prediction=1, reference=1)
    assert metric.compute()["accuracy"] == pytest.approx(2 / 3)
