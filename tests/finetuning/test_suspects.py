"""Labels that look incorrect: the rule against numpy, and every form corrected and read back."""

import csv
import json
import random

import numpy as np
import pandas as pd
import pytest
from json_files import read_lines, write_lines
from scipy.special import softmax
from tiny_models import WORDS

import mybert
from mybert.evaluation import confidence, evaluate
from mybert.evaluation.confidence import find_suspects, find_wrong_tags, ranks_labels
from mybert.finetuning.run_data import load_data, new_task
from mybert.finetuning.settings import FinetuneSettings

TAGS = ["O", "B-PER", "B-LOC"]
SUFFIXES = {"jsonl": "jsonl", "csv": "csv", "label-studio": "json", "doccano": "jsonl", "argilla": "json"}


def test_single_labels_are_those_of_confident_learning():
    draw = np.random.default_rng(0)
    true = draw.integers(4, size=300)
    logits = draw.normal(size=(300, 4)) + 3 * np.eye(4)[true]
    given = np.where(draw.random(300) < 0.1, draw.integers(4, size=300), true)
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    own, best = probabilities[np.arange(300), given], probabilities.argmax(1)
    expected = np.array([own[given == label].mean() for label in range(4)])
    count = int(((best != given) & (probabilities.max(1) >= expected[best])).sum())
    order = [row for row in np.argsort(own) if best[row] != given[row]][:count]
    predictions = [
        {"label": "abcd"[row.argmax()], "score": row.max(), "scores": dict(zip("abcd", row, strict=True))}
        for row in probabilities
    ]
    found = find_suspects(predictions, ["abcd"[label] for label in given])
    assert [suspect.row for suspect in found] == order
    assert len({*order} & {*np.flatnonzero(given != true)}) > 0.7 * len(order)


SEVERAL = [{"labels": ["a"], "scores": {"a": 0.9, "b": 0.1}}] * 9


def test_several_labels_and_choices_have_suspects():
    (suspect,) = find_suspects(SEVERAL, [["a"]] * 8 + [["a", "b"]])
    assert (suspect.row, suspect.answer.word, suspect.answer.own) == (8, "b", pytest.approx(0.1))
    choices = [{"choice": 0, "scores": [0.9, 0.1]} for _ in range(9)]
    assert [suspect.row for suspect in find_suspects(choices, [0] * 8 + [1])] == [8]
    assert not find_suspects([{"score": 1.5}, {"score": 2.0}], [1.0, 9.0])


def test_labels_that_the_model_has_not_learned_are_no_suspects():
    one = [{"label": "a", "score": 0.9, "scores": {"a": 0.9, "b": 0.1}} for _ in range(9)]
    references = ["a"] * 8 + ["b"]
    assert [suspect.row for suspect in find_suspects(one, references)] == [8]
    assert not find_suspects(one, references, unlearned=["b"])
    assert not find_suspects(SEVERAL, [["a"]] * 8 + [["a", "b"]], unlearned=["b"])
    assert [one.row for one in find_suspects(SEVERAL, [["a"]] * 8 + [["b"]], unlearned=["b"])] == [8]  # a is predicted


def sentences_of(draw, strength: float) -> tuple[list[dict], list[list[str]], list[np.ndarray]]:
    """Predictions, right tags and probabilities of 200 sentences by a model that is as sure as `strength` says."""
    right = [draw.choice(3, p=[0.8, 0.1, 0.1], size=draw.integers(5, 15)) for _ in range(200)]
    logits = [draw.normal(size=(len(tags), 3)) + strength * np.eye(3)[tags] + [2, 0, 0] for tags in right]
    probabilities = [softmax(values, axis=1) for values in logits]
    names = np.array(TAGS)
    predictions = [
        {"tokens": [f"w{n}" for n in range(len(some))], "tags": names[some.argmax(1)].tolist(), "scores": some.max(1)}
        for some in probabilities
    ]
    return predictions, [names[tags].tolist() for tags in right], probabilities


def test_probabilities_are_calibrated_by_a_scale_and_the_frequency_of_labels():
    draw = np.random.default_rng(0)
    right = softmax(draw.normal(size=(20_000, 3)) * 2 + [1, 0, -1], axis=1)
    given = (right.cumsum(1) > draw.random((20_000, 1))).argmax(1)
    distorted = softmax(3 * np.log(right) + [0, 2, -1], axis=1)
    found = confidence._calibrate(distorted, given)
    assert np.abs(found - right).max() < 0.03
    assert found.mean(0) == pytest.approx(np.bincount(given) / 20_000, abs=1e-4)


def test_tags_are_listed_up_to_twice_as_many_as_are_expected():
    predictions, tags, probabilities = sentences_of(np.random.default_rng(0), strength=5.0)
    changed = [*range(0, 200, 10)]
    for row in changed:
        tags[row][3] = "B-LOC" if tags[row][3] == "B-PER" else "B-PER"
    places = np.array([TAGS.index(tag) for row in tags for tag in row])
    every = confidence._calibrate(np.concatenate(probabilities), places)
    own = every[np.arange(len(every)), places]
    fitting = [x for x in own if every[every <= x].sum() <= (own <= x).sum() / 2]
    owners = np.repeat(np.arange(200), [len(row) for row in tags])
    expected = list(dict.fromkeys(owners[word] for word in np.argsort(own) if own[word] <= max(fitting)))
    found = find_wrong_tags(predictions, tags, probabilities, TAGS)
    assert [suspect.row for suspect in found] == expected
    right = len({*expected} & {*changed})
    assert right > 0.8 * len(expected) and right > 0.6 * len(changed)
    row, answer = found[0]
    word = int(answer.word[1:])
    assert answer.reference == tags[row][word] and answer.predicted == predictions[row]["tags"][word]
    assert answer.own == pytest.approx(probabilities[row][word][TAGS.index(answer.reference)])
    assert answer.reason() == f"'w{word}' is {answer.predicted} ({answer.score:.2f}), not {answer.reference}"


@pytest.mark.parametrize("strength", [0.0, 1.0, 2.0])
def test_right_tags_of_a_weak_model_have_no_list(strength):
    listed = contradicted = 0
    for seed in range(5):
        predictions, tags, probabilities = sentences_of(np.random.default_rng(seed), strength)
        contradicted += sum(one["tags"] != row for one, row in zip(predictions, tags, strict=True))
        listed += len(find_wrong_tags(predictions, tags, probabilities, TAGS))
    assert contradicted > 300 and listed < 0.1 * contradicted, (listed, contradicted)


@pytest.fixture
def any_model_is_trusted(monkeypatch):
    """Models of random weights have suspects, though they know nothing."""
    monkeypatch.setattr(evaluate, "better_than", lambda *_: (True, True))
    monkeypatch.setattr(confidence, "_FALSE_ALARMS", 1000.0)


def rows_of(model: str) -> list[dict]:
    """Rows with an id and random labels."""
    draw = random.Random(1)
    texts = [" ".join(draw.sample(WORDS, 9)) for _ in range(60)]
    if model == "tagger":
        tags = [[draw.choice(["O", "B-PER", "B-LOC"]) for _ in text.split()] for text in texts]
        return [{"id": f"r{n}", "tokens": text.split(), "tags": tags[n]} for n, text in enumerate(texts)]
    one, several = ["bad", "good", "odd"], ["sad", "long"]
    label = (lambda: draw.sample(several, draw.randint(0, 2))) if model == "multi" else lambda: draw.choice(one)
    return [{"id": f"r{n}", "text": text, "label": label()} for n, text in enumerate(texts)]


def corrected(path, form: str) -> list[dict]:
    """The rows of a file as a tool exports them after a person has accepted every prediction."""
    if form == "csv":
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    else:
        content = path.read_text(encoding="utf-8")
        rows = json.loads(content) if path.suffix == ".json" else [json.loads(line) for line in content.splitlines()]
    for row in rows:
        if form == "label-studio":
            assert len(row["annotations"]) == 1
            row["annotations"][0] |= {"result": row["predictions"][0]["result"], "was_cancelled": False}
        elif form == "argilla":
            row["responses"] = {"label": [{"value": row["suggestions"]["label"]["value"], "user_id": "u"}]}
        elif form == "doccano":
            label = row["prediction"]
            label = json.loads(label) if label[:1] in ("[", "{") else [label]
            row["label"] = [list(one.values()) if isinstance(one, dict) else one for one in label]
        else:
            row["tags" if "tags" in row else "label"] = row["prediction"]
    return rows


@pytest.mark.parametrize("form", SUFFIXES)
@pytest.mark.parametrize("model", ["classifier", "multi", "tagger"])
def test_every_form_is_corrected_and_read_back(
    models, tmp_path, write_rows, model, form, capsys, any_model_is_trusted
):
    given = rows_of(model)
    data, output = write_rows("rows.jsonl", given), tmp_path / "scores"
    mybert.evaluate(model=models(model), data=data, output=output, suspects=form, bootstrap=0)
    analysis = json.loads((output / "analysis.json").read_text(encoding="utf-8"))
    file = output / f"suspects.{SUFFIXES[form]}"
    what = "labels" if model == "classifier" else "rows have labels that"
    assert f"{analysis['suspect_rows']} of {len(given)} {what} look incorrect: {file}\n" in capsys.readouterr().out
    assert f"The file {file.name} has all of them" in (output / "report.html").read_text(encoding="utf-8")
    rows = corrected(file, form)
    assert len(rows) == analysis["suspect_rows"] > 5
    shown = {"label-studio": lambda row: row["data"], "argilla": lambda row: row["metadata"]}.get(
        form, lambda row: row
    )
    ids = [shown(row)["id"] for row in rows]
    assert [given[int(shown(row)["line"]) - 1]["id"] for row in rows] == ids and len({*ids}) == len(ids)
    fixed = tmp_path / f"fixed.{SUFFIXES[form]}"
    if form == "csv":
        pd.DataFrame(rows).to_csv(fixed, index=False)
    elif fixed.suffix == ".json":
        fixed.write_text(json.dumps(rows), encoding="utf-8")
    else:
        write_lines(fixed, rows)

    name = "token-classification" if model == "tagger" else "text-classification"
    settings = FinetuneSettings(
        task=name, model=str(models(model)), train=[str(data), str(fixed)], output="-", validation_share=0.0
    )
    task, tokenizer = new_task(settings)
    task, loaded = load_data(settings, task, tokenizer)
    train = loaded.splits["train"]
    assert len(train.rows) == len(given)
    target = "tags" if model == "tagger" else "label"
    predicted = {
        line["input"]["id"]: line["tags"] if model == "tagger" else line.get("labels", line.get("label"))
        for line in read_lines(output / "predictions.jsonl")
    }
    wanted = {row["id"]: predicted[row["id"]] if row["id"] in ids else row[target] for row in given}
    by_text = {"".join(row.get("text", "") or row["tokens"]).replace(" ", ""): row["id"] for row in given}
    for row in train.rows:
        text = "".join(row.get("text") or row["tokens"]).replace(" ", "")
        expected = wanted[by_text[text]]
        if model == "tagger" and form not in ("jsonl", "csv"):  # spans are read in IOB2
            expected = [tag.replace("I-", "B-") if place == 0 else tag for place, tag in enumerate(expected)]
        found = row[target] if model == "tagger" else task.kind.reference(row[target])
        assert sorted(found) == sorted(expected) if model == "multi" else found == expected


def test_label_studio_shows_pairs(models, tmp_path, write_rows, any_model_is_trusted):
    draw = random.Random(0)
    rows = [
        {"text": "a film", "text_pair": " ".join(draw.choices(WORDS, k=5)), "label": draw.choice(["no", "yes"])}
        for _ in range(30)
    ]
    settings = {"model": models("pairs"), "data": write_rows("pairs.jsonl", rows), "bootstrap": 0}
    mybert.evaluate(**settings, output=tmp_path / "scores", suspects="label-studio")
    found = json.loads((tmp_path / "scores/suspects.json").read_text(encoding="utf-8"))
    assert all(row["data"]["text_pair"] and row["annotations"][0]["result"] for row in found)


def test_a_model_that_is_no_better_than_a_constant_prediction_names_no_labels(
    classifier, opinions, tmp_path, write_rows, capsys
):
    swapped = {"good": "bad", "bad": "good"}
    texts = opinions[:40]  # 20 of each label, nearly all predicted correctly

    def output_of(wrong: int) -> str:
        rows = [row | {"label": swapped[row["label"]]} if n < wrong else row for n, row in enumerate(texts)]
        data = write_rows("rows.jsonl", rows)
        mybert.evaluate(model=classifier, data=data, output=tmp_path / f"{wrong}", bootstrap=200)
        return capsys.readouterr().out

    assert "of 40 labels look incorrect: " in output_of(4)
    assert "look incorrect to a model that may be no better than a constant prediction: " in output_of(16)
    assert "no list of labels that look incorrect: the model is no better than the best constant" in output_of(24)
    assert not [*(tmp_path / "24").glob("suspects.*")] and [*(tmp_path / "4").glob("suspects.*")]
    assert json.loads((tmp_path / "24/analysis.json").read_text(encoding="utf-8"))["suspect_rows"] == 0


@pytest.mark.parametrize(("wrong", "has_list"), [(5, True), (9, False)])
def test_a_model_that_ranks_rows_of_rare_labels_names_labels(
    classifier, opinions, tmp_path, write_rows, capsys, wrong, has_list
):
    """Of 210 rows, 10 have the rare label. As many of it are exchanged as of the other."""
    good, bad = ([row["text"] for row in opinions if row["label"] == label] for label in ("good", "bad"))
    labels = ["bad"] * wrong + ["good"] * (200 - wrong), ["good"] * wrong + ["bad"] * (10 - wrong)
    texts = [*(good[:20] * 10), *bad[:10]]
    rows = [{"text": text, "label": label} for text, label in zip(texts, [*labels[0], *labels[1]], strict=True)]
    mybert.evaluate(model=classifier, data=write_rows("rows.jsonl", rows), output=tmp_path / "scores", bootstrap=0)
    scores = json.loads((tmp_path / "scores/results.json").read_text(encoding="utf-8"))
    assert scores["metrics"]["accuracy"] <= scores["constant_baselines"]["accuracy"]
    assert ("look incorrect to a model that may be no better" in capsys.readouterr().out) == has_list


def test_few_models_that_know_nothing_rank_labels():
    draw, ranks = np.random.default_rng(0), 0
    for _ in range(300):
        labels = draw.choice(["a", "b", "c"], size=200, p=[0.9, 0.07, 0.03]).tolist()
        scores = draw.dirichlet([9, 1, 1], size=200)
        predictions = [{"label": "a", "scores": dict(zip("abc", row, strict=True))} for row in scores.tolist()]
        ranks += ranks_labels(predictions, labels)
    assert ranks < 0.05 * 300
    assert ranks_labels([{"scores": {"a": p, "b": 1 - p}} for p in (0.9, 0.95) * 10], ["b", "a"] * 10)
    assert not ranks_labels([{"score": 1.5}, {"score": 2.0}], [1.0, 9.0])


def test_a_tagger_that_cannot_tell_names_no_tags(models, tmp_path, write_rows, capsys):
    data = write_rows("rows.jsonl", rows_of("tagger"))
    mybert.evaluate(model=models("tagger"), data=data, output=tmp_path / "scores", bootstrap=0)
    printed = capsys.readouterr().out
    assert "no list of tags that look incorrect: the model is as often wrong as its probabilities say" in printed
    assert not [*(tmp_path / "scores").glob("suspects.*")]
