"""Calibration, scores of groups, suspicious labels, overlaps and telling words, against formulas and brute force."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import Dataset
from json_files import read_lines, write_lines
from new_tasks import task_of
from scipy.special import softmax
from sklearn.metrics import accuracy_score
from transformers import AutoModelForSequenceClassification

from mybert import cli
from mybert.common.tables import print_table
from mybert.evaluation import analysis
from mybert.evaluation.analysis import check_slices, groups_of_column, intervals, quarters
from mybert.evaluation.confidence import confidences, reliability
from mybert.evaluation.evaluate import write_errors
from mybert.finetuning import report
from mybert.finetuning.report import class_probabilities, fit_temperature
from mybert.finetuning.summary import giveaway_words
from mybert.io.record_formats import read_json_lines
from mybert.rows.splits import Split
from mybert.tasks import entities, question_answering


def test_the_expected_calibration_error_is_the_mean_gap_of_ten_bins():
    generator = np.random.default_rng(0)
    confidence = generator.uniform(0.5, 1, 500)
    right = generator.uniform(size=500) < confidence - 0.1
    found = reliability(confidence, right)
    expected = 0.0
    for low in np.arange(10) / 10:
        inside = [i for i, share in enumerate(confidence) if low <= share < low + 0.1]
        if inside:
            expected += abs(sum(right[i] - confidence[i] for i in inside)) / 500
    assert found["expected_calibration_error"] == pytest.approx(expected)
    assert sum(part["rows"] for part in found["bins"]) == 500
    assert found["accuracy"] == pytest.approx(right.mean())


def test_the_temperature_of_scaled_logits_is_found():
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(20_000, 3))
    labels = np.array([generator.choice(3, p=row) for row in softmax(logits, axis=1)])
    for scale in (0.5, 1.0, 4.0):
        assert fit_temperature(softmax(scale * logits, axis=1), labels) == pytest.approx(scale, rel=0.05)


def test_a_probability_that_float32_rounds_to_0_is_its_smallest_number():
    """One of 200 rows is wrong: at the best temperature, the two logits differ by log 199."""
    logits = np.tile(np.float32([200, 0]), (200, 1))
    probabilities = softmax(logits, axis=1)
    assert probabilities[0].tolist() == [1, 0]
    smallest = np.log(np.finfo(np.float32).tiny)
    found = fit_temperature(probabilities, [0] * 199 + [1])
    assert found == pytest.approx(-smallest / np.log(199), rel=1e-3)


@pytest.mark.parametrize(
    ("name", "rows", "features", "logits", "expected", "right"),
    [
        ("token", {"tokens": [["x", "y"]], "tags": [["b", "a"]]}, {"words": [[-1, 0, 0, 1]]},
         [[[9, 0], [0, 2], [4, 0], [1, 1.5]]], [[2, 1], [1, 1.5]], [1, 0]),
        ("text", {"text": ["x", "y"], "label": ["b", "a"]}, {"row": [0, 0, 1]},
         [[0, 2], [4, 0], [1, 1.5]], [[2, 1], [1, 1.5]], [1, 0]),
        # the last logit of the first row is of a choice that the collator has added
        ("choice", {"choices": [[*"xy"], [*"xyz"]], "label": ["B", "A"]}, {}, [[0.5, 1.5, 0.5], [3, 1, 2]],
         [[0.5, 1.5], [3, 1, 2]], [1, 0]),
    ],
)  # fmt: skip
def test_each_row_and_each_word_is_calibrated_by_its_mean_logits(name, rows, features, logits, expected, right):
    task = task_of("multiple-choice" if name == "choice" else f"{name}-classification", choice_labels="letters")
    task = task.with_labels(["a", "b"], problem_type="single_label_classification")
    features = Dataset.from_dict({"row": [0], **features})
    found, places = class_probabilities(task, list(map(np.array, logits)), features, Dataset.from_dict(rows))
    assert places == right
    for one, values in zip(found, expected, strict=True):
        assert list(one) == pytest.approx(softmax(values).tolist())


@pytest.mark.parametrize(
    ("prediction", "reference", "expected"),
    [
        ({"label": "a", "score": 0.7, "scores": {"a": 0.7, "b": 0.3}}, "b", [(0.7, False)]),
        ({"choice": 1, "scores": [0.2, 0.8]}, 1, [(0.8, True)]),
        ({"tokens": ["x", "y"], "tags": ["O", "B"], "scores": [0.9, 0.6]}, ["O", "O"], [(0.9, True), (0.6, False)]),
        ({"labels": ["a"], "scores": {"a": 0.9, "b": 0.2}}, ["a", "b"], [(0.9, True), (0.8, False)]),
    ],
)
def test_confidences_of_every_kind_of_prediction(prediction, reference, expected):
    shares, right = confidences([prediction], [reference])
    assert list(zip(shares.tolist(), right.tolist(), strict=True)) == expected
    assert confidences([{"score": 2.5}], [2.0]) is None


def test_numbers_are_grouped_in_quarters_and_other_values_by_frequency():
    groups = quarters(list(range(1, 101)))
    assert len(set(groups)) == 4 and all(20 <= groups.count(name) <= 30 for name in groups)
    for number, name in zip(range(1, 101), groups, strict=True):
        low, high = (float(part) for part in name.removeprefix("above ").split(" to "))
        assert low <= number <= high
    assert quarters([3.0, 3.0]) == ["3", "3"]
    rows = [{"place": f"town {number % 30}"} for number in range(300)] + [{"place": "city"}] * 50
    named = groups_of_column(rows, "place")
    assert named[-1] == "city" and named.count("(other)") > 100 and len(set(named)) == 13


@pytest.mark.parametrize(
    ("name", "prediction", "reference", "module", "measure"),
    [
        ("question-answering", {"answer": "a film"}, ["film"], question_answering, "_f1"),
        ("token-classification", {"tags": ["B-X", "O"]}, ["B-X", "I-X"], entities, "entity_spans"),
    ],
)
def test_rows_are_compared_once_for_all_parts_of_the_bootstrap_samples(
    monkeypatch, name, prediction, reference, module, measure
):
    compared, compute = [], getattr(module, measure)
    task = task_of(name).with_labels(["O", "B-X", "I-X"])
    rows, counts = ([prediction] * 9, [reference] * 9), []
    monkeypatch.setattr(module, measure, lambda *pair: compared.append(0) or compute(*pair))
    for at_once in (10**6, 9):
        monkeypatch.setattr(analysis, "_INDICES_AT_ONCE", at_once)
        compared.clear()
        found = intervals(task, *rows, 50, np.random.default_rng(0))
        counts.append((len(compared), found))
    assert counts[0] == counts[1] and counts[0][0]


def test_different_values_are_different_groups():
    """Also those that begin alike, and a value that has the name of the rest."""
    deep = [f"{'folder/' * 10}{name}.txt" for name in "abab"]
    assert groups_of_column([{"file": name} for name in deep], "file") == deep
    assert len(set(groups_of_column([{"list": [*range(40), number]} for number in range(3)], "list"))) == 3
    kinds = ["other"] * 50 + [f"kind {number}" for number in range(20)] * 2
    groups = groups_of_column([{"kind": kind} for kind in kinds], "kind")
    assert groups.count("other") == 50 and groups.count("(other)") == 18


def test_numbers_that_are_large_missing_or_mostly_equal_are_grouped():
    for first in (1_700_000_000, 2**52):
        groups = groups_of_column([{"time": first + number} for number in range(100)], "time")
        assert sorted(groups.count(name) for name in set(groups)) == [24, 25, 25, 26]
        same = groups_of_column([{"time": first if number % 20 else first + number} for number in range(300)], "time")
        assert same.count(str(first)) == 286 and str(first + 20) in same
    for missing in (None, "", float("nan"), "nan", float("inf"), 10**400):
        groups = groups_of_column(
            [{"price": missing if number % 5 == 0 else number} for number in range(200)], "price"
        )
        assert [group == "missing" for group in groups] == [number % 5 == 0 for number in range(200)]
        assert len(set(groups)) == 5
    groups = groups_of_column([{"price": number if number % 5 == 0 else 0} for number in range(500)], "price")
    assert groups.count("0") == 401 and len(set(groups)) == 13 and "(other)" in groups


def test_a_telling_word_is_found_by_brute_force():
    texts = ["SKU-7 is good", "sku 8", "a good film", "bad film", "dull film", "film"]
    labels = ["shop", "shop", "shop", "film", "film", "film"]
    words = {
        word: [word in text.lower().replace("-", " ").split() for text in texts] for word in ("sku", "film", "good")
    }

    def f1(word: str, label: str) -> float:
        both = sum(has and own == label for has, own in zip(words[word], labels, strict=True))
        return 2 * both / (sum(words[word]) + labels.count(label))

    found = {one["label"]: one for one in giveaway_words(texts, labels)}
    assert found["shop"]["word"] in ("sku", "good") and found["shop"]["f1"] == pytest.approx(f1("sku", "shop"))
    assert found["film"]["word"] == "film" and found["film"]["f1"] == pytest.approx(f1("film", "film"))
    assert giveaway_words(["!", "?"], ["a", "b"]) == []
    assert giveaway_words(["a"] * 10, ["shop", "film"] * 5) == [], "a word of every text tells nothing"


@pytest.fixture(scope="module")
def evaluated(classifier, opinions, tmp_path_factory):
    """An evaluation of rows with a column of places and one wrong label."""
    folder = tmp_path_factory.mktemp("analysis")
    rows = [row | {"place": "town" if number % 3 else "city"} for number, row in enumerate(opinions)]
    rows[5] = rows[5] | {"label": {"good": "bad", "bad": "good"}[rows[5]["label"]]}
    words = ("--model", classifier, "--data", write_lines(folder / "rows.jsonl", rows), "--output", folder / "scores")
    words += ("--bootstrap", 20, "--slices", "place", "--device", "cpu")
    assert cli.main(["evaluate", *map(str, words)]) == 0
    return folder, rows


def test_groups_have_the_scores_of_their_rows(evaluated):
    folder, rows = evaluated
    analysis = json.loads((folder / "scores/analysis.json").read_text())
    predictions = read_lines(folder / "scores/predictions.jsonl")
    groups = {group["value"]: group for group in analysis["slices"]["place"]}
    for name in ("town", "city"):
        some = [number for number, row in enumerate(rows) if row["place"] == name]
        expected = accuracy_score([rows[i]["label"] for i in some], [predictions[i]["label"] for i in some])
        assert groups[name]["rows"] == len(some) and groups[name]["score"] == pytest.approx(expected)
        assert groups[name]["interval"][0] <= expected <= groups[name]["interval"][1]
    assert sum(group["rows"] for group in analysis["slices"]["length in tokens"]) == len(rows)
    assert [line["reference"] for line in predictions] == [row["label"] for row in rows]
    assert [line["line"] for line in predictions] == list(range(1, len(rows) + 1))


def test_a_wrong_label_looks_mislabelled(evaluated):
    folder, rows = evaluated
    suspects = json.loads((folder / "scores/analysis.json").read_text())["suspects"]
    assert [row["row"] for row in suspects][:1] == [6]
    assert suspects[0]["reference"] == rows[5]["label"]
    assert (folder / "scores/report.html").is_file()


def test_a_column_that_first_occurs_in_a_late_row_is_known(write_rows):
    rows = [{"text": "a"}] * 1000 + [{"text": "a", "place": "town"}]
    path = str(write_rows("rows.jsonl", rows))
    check_slices([Split(path, None, lambda: read_json_lines(path), range(1001))], ["place"])


def test_a_calibrated_model_has_scaled_logits_also_if_it_is_resumed(
    finetune, opinions, tmp_path, write_rows, monkeypatch
):
    rows = write_rows("train.jsonl", opinions), write_rows("validation.jsonl", opinions[:9] + opinions[30:])
    words = ("text-classification", "--train", rows[0], "--validation", rows[1], "--num-train-epochs", 1)
    assert finetune(*words, output="plain") == 0
    with monkeypatch.context() as patch:
        patch.setattr(report, "evaluate_rows", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        assert finetune(*words, "--calibrate", output="killed") == 130
    ids = torch.randint(5, 60, (4, 9), generator=torch.manual_seed(0))
    logits = {}
    for name in ("plain", "killed", "killed"):  # the last time it is finished
        assert name == "plain" or finetune(*words, "--calibrate", "--resume", output=name) == 0
        model = AutoModelForSequenceClassification.from_pretrained(tmp_path / name, trust_remote_code=True)
        logits[name] = model(ids).logits
        temperature = json.loads((tmp_path / name / "results.json").read_text())["temperature"] or 1.0
        assert (temperature == pytest.approx(1.0, abs=1e-3)) == (name == "plain")
        torch.testing.assert_close(logits["plain"] / temperature, logits[name], rtol=1e-4, atol=1e-5)


def test_labels_of_any_characters_are_printed_and_written_as_they_are(tmp_path, capsys):
    names = ["$\\frac{$", "[red]:joy:", "a/b\tc", "<é & 好>"]
    print_table("Each label", [(name, 1) for name in names])
    assert "[red]:joy:" in capsys.readouterr().out
    rows = Dataset.from_dict({"text": names, "label": names})
    worst = {row: [] for row in (1, 2, 3)}
    found = SimpleNamespace(predictions=[{"label": names[0]}] * 4, errors=[0.0, 1.0, 1.0, 1.0], worst=worst)
    write_errors(tmp_path / "errors.txt", Split("rows.jsonl", rows, lambda: rows, range(len(rows))), found)
    text = (tmp_path / "errors.txt").read_text(encoding="utf-8")
    assert "  label: [red]:joy:\n  predicted: {'label': '$" in text
    assert text.count("[red]:joy:") == 2 and "<é & 好>" in text  # text and label
