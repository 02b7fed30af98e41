"""Comparison of runs: paired differences, tests with the right error rate, rows that must be the same."""

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from json_files import read_lines, write_lines
from scipy import stats
from sklearn import metrics

import mybert
from mybert import compare
from mybert.common.metrics import verdict
from mybert.comparison.paired import differences
from mybert.comparison.scoring import task_of
from mybert.comparison.sides import Rows, Side
from mybert.reports.write import write_report

LABELS = ["bad", "fair", "good"]


def write(path: Path, rows: list[dict]) -> str:
    pd.DataFrame(rows).to_csv(path, index=False)
    return str(path)


def noisy(rng, truth, share):
    """Predictions of which `share` are wrong."""
    return [rng.choice([x for x in LABELS if x != label]) if rng.random() < share else label for label in truth]


@pytest.fixture
def truth():
    rng = random.Random(0)
    return [rng.choice(LABELS) for _ in range(300)]


@pytest.fixture
def files(tmp_path, truth):
    """Predictions of a good and of a bad model on the same rows, the second in another order."""
    rng, paths = random.Random(1), {}
    for name, share in (("good", 0.1), ("bad", 0.3)):
        rows = [
            {"text": f"text {number}", "topic": f"topic {number % 3}", "label": label, "prediction": found}
            for number, (label, found) in enumerate(zip(truth, noisy(rng, truth, share), strict=True))
        ]
        paths[name] = write(tmp_path / f"{name}.csv", rows[::-1] if name == "good" else rows)
    return paths


def read(folder, name="results.json"):
    return json.loads((folder / name).read_text(encoding="utf-8"))


def column(path, name):
    return pd.read_csv(path)[name].tolist()


def test_scores_differences_and_changed_rows_are_those_of_scikit_learn(files, tmp_path, truth):
    found = compare([files["bad"], files["good"]], output=tmp_path / "c", slices=["topic"])
    results = read(found.path)
    predictions = {"bad": column(files["bad"], "prediction"), "good": column(files["good"], "prediction")[::-1]}
    for run, name in zip(results["runs"], ("bad", "good"), strict=True):
        assert run["metrics"]["accuracy"] == pytest.approx(metrics.accuracy_score(truth, predictions[name]))
        macro = metrics.f1_score(truth, predictions[name], average="macro")
        assert run["metrics"]["f1_macro"] == pytest.approx(macro)
    accuracies = [run["metrics"]["accuracy"] for run in results["runs"]]
    assert results["difference"] == pytest.approx(accuracies[1] - accuracies[0])
    assert found.metrics == {name: results[name] for name in ("difference", "interval", "p")}
    low, high = results["interval"]
    assert 0 < low < results["difference"] < high and results["p"] < 0.001
    pairs = list(zip(truth, predictions["bad"], predictions["good"], strict=True))
    (entry,) = results["comparisons"]
    assert entry["became_right"] == sum(bad != label == good for label, bad, good in pairs)
    assert entry["became_wrong"] == sum(bad == label != good for label, bad, good in pairs)
    rows = read_lines(found.path / "changes.jsonl")
    assert len(rows) == entry["became_right"] + entry["became_wrong"]
    assert all(truth[int(row["input"]["text"].split()[1])] == row["reference"] for row in rows)
    for one in entry["labels"]:
        expected = [
            metrics.f1_score(truth, predictions[name], labels=[one["label"]], average=None)[0] for name in predictions
        ]
        assert one["f1"] == pytest.approx(expected)
    by_topic = {one["group"]: one for one in entry["slices"]["topic"]}
    some = [number for number in range(len(truth)) if number % 3 == 1]
    for place, name in enumerate(("bad", "good")):
        expected = np.mean([predictions[name][number] == truth[number] for number in some])
        assert by_topic["topic 1"]["scores"][place] == pytest.approx(expected)
    assert sum(one["rows"] for one in entry["slices"]["length in characters"]) == len(truth)


def test_the_page_names_changed_rows_by_their_ids_and_says_how_many_it_shows(files, tmp_path, monkeypatch):
    found = compare([files["bad"], files["good"]], output=tmp_path / "c")
    rows = read_lines(found.path / "changes.jsonl")
    lines = [json.dumps(row | {"input": {"ID": f"q{row['row']}", **row["input"]}}) for row in rows]
    (found.path / "changes.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    monkeypatch.setattr("mybert.reports.pages.comparison._MOST", 5)
    page = write_report(found.path).read_text(encoding="utf-8")
    assert f"The first 5 of {len(rows):,} changed rows; changes.jsonl has all of them." in page
    assert 'data-kind="text">ID<' in page and f">q{rows[0]['row']}<" in page


def test_p_of_accuracy_is_that_of_the_exact_sign_test(truth):
    """Exchanging predictions at random is the binomial test of the rows on which the two models differ."""
    rng = random.Random(3)
    one, other = (rows_of(noisy(rng, truth, share), truth) for share in (0.2, 0.25))
    task = task_of([Side("a", [one]), Side("b", [other])])
    found = differences(task, [one], [other], 5_000, seed=1)["accuracy"]
    right = [[p["label"] == label for p, label in zip(side.predictions, truth, strict=True)] for side in (one, other)]
    better, worse = (sum(a and not b for a, b in zip(*pair, strict=True)) for pair in (right, right[::-1]))
    assert found.p == pytest.approx(stats.binomtest(better, better + worse).pvalue, abs=0.03)
    spread = np.sqrt((better + worse) / len(truth) ** 2)  # of the difference of two shares of the same rows
    assert (found.interval[1] - found.interval[0]) / 3.92 == pytest.approx(spread, rel=0.1)


@pytest.mark.parametrize(
    ("difference", "p", "expected"),
    [
        (0.02, 0.4, "Macro F1: the difference between one and other may be chance (p = 0.4)."),
        (0.02, 0.01, "other is better than one: macro F1 differs by 2 points (p = 0.01)."),
        (0.0, 1.0, "one and other have the same macro F1."),
    ],
)
def test_the_conclusion_names_its_metric(difference, p, expected):
    entry = {"runs": ["one", "other"], "metrics": {"f1_macro": {"difference": difference, "p": p}}}
    assert verdict(entry, "f1_macro") == expected


def rows_of(predicted, truth):
    inputs = [{"text": str(number)} for number in range(len(truth))]
    predictions = [{"label": label} for label in predicted]
    return Rows("file", predictions, list(truth), inputs, list(range(1, len(truth) + 1)))


@pytest.mark.parametrize(("one", "other"), [(2, 2), (1, 3)])
def test_equal_settings_with_few_seeds_are_rarely_called_different(truth, one, other):
    """Also if the seed has a large effect: labels and error rates differ from run to run."""
    rng, task, pairs = np.random.default_rng(11), None, 150
    small = {"accuracy": 0, "f1_macro": 0}
    for pair in range(pairs):
        runs = []
        for _ in range(one + other):
            shares = dict(zip(LABELS, rng.uniform(0.05, 0.4, size=3), strict=True))
            found = [LABELS[rng.integers(3)] if rng.random() < shares[label] else label for label in truth[:150]]
            runs.append(rows_of(found, truth[:150]))
        task = task or task_of([Side(str(number), [rows]) for number, rows in enumerate(runs)])
        found = differences(task, runs[:one], runs[one:], 100, seed=pair)
        for name in small:
            small[name] += found[name].p < 0.05
            low, high = found[name].interval
            assert (low < 0 < high) == (found[name].p > 0.05)
    assert all(count <= 0.09 * pairs for count in small.values()), small  # 2% of such samples have more


def test_many_rows_and_seeds_have_the_p_value_of_the_t_test_over_seeds():
    """With so many rows, only the seeds make the difference uncertain."""
    rng, size = np.random.default_rng(0), 20_000
    truth = ["bad", "good"] * (size // 2)
    shares = [[0.1, 0.2, 0.15], [0.25, 0.2, 0.4]]
    sides = [[rows_of(noisy_binary(rng, truth, share), truth) for share in some] for some in shares]
    task = task_of([Side(str(number), runs) for number, runs in enumerate(sides)])
    found = differences(task, *sides, 100, seed=0)["accuracy"]
    scores = [[task.score(run.predictions, run.references)["accuracy"] for run in runs] for runs in sides]
    expected = stats.ttest_ind(scores[1], scores[0], equal_var=False)
    assert found.p == pytest.approx(expected.pvalue, rel=0.02)
    interval = expected.confidence_interval(0.95)
    assert found.interval == pytest.approx((interval.low, interval.high), rel=0.02)


def noisy_binary(rng, truth, share):
    wrong = rng.random(len(truth)) < share
    return [("good" if label == "bad" else "bad") if flip else label for label, flip in zip(truth, wrong, strict=True)]


def test_runs_with_several_seeds_have_a_mean_and_a_deviation(tmp_path, truth):
    rng = random.Random(7)
    names = []
    for seed in range(4):
        found = noisy(rng, truth, 0.15 if seed < 2 else 0.35)
        rows = [
            {"id": number, "gold": label, "predicted": one}
            for number, (label, one) in enumerate(zip(truth, found, strict=True))
        ]
        names.append(write(tmp_path / f"{seed}.csv", rows))
    found = read(compare([",".join(names[:2]), ",".join(names[2:])], output=tmp_path / "c", bootstrap=500).path)
    for run, some in zip(found["runs"], (names[:2], names[2:]), strict=True):
        values = [np.mean([a == b for a, b in zip(truth, column(name, "predicted"), strict=True)]) for name in some]
        assert run["metrics"]["accuracy"] == pytest.approx(np.mean(values))
        assert run["deviations"]["accuracy"] == pytest.approx(np.std(values, ddof=1))
    assert found["difference"] < found["interval"][1] < 0 and found["p"] < 0.05
    assert "runs" in found["test"]


def test_numbers_and_tags_are_scored(tmp_path):
    rng = np.random.default_rng(0)
    truth = rng.normal(size=60)
    for name, noise in (("a", 0.1), ("b", 0.9)):
        numbers = truth + noise * rng.normal(size=60)
        write(
            tmp_path / f"{name}.csv",
            [{"id": i, "target": t, "prediction": p} for i, (t, p) in enumerate(zip(truth, numbers, strict=True))],
        )
        tags = [["B-PER" if x > noise - 1 else "O", "I-PER", "O"] for x in truth]
        target = ["B-PER", "I-PER", "O"]
        lines = [{"reference": target, "prediction": found, "text": f"t {i}"} for i, found in enumerate(tags)]
        write_lines(tmp_path / f"{name}.jsonl", lines)
    numbers = read(compare([tmp_path / "a.csv", tmp_path / "b.csv"], output=tmp_path / "n", bootstrap=200).path)
    assert numbers["metric"] == "pearson" and numbers["difference"] < 0 and numbers["p"] < 0.05
    entry, rows = numbers["comparisons"][0], read_lines(tmp_path / "n" / "changes.jsonl")
    assert [sum(row["became"] == name for row in rows) for name in ("better", "worse")] == [
        entry["became_right"], entry["became_wrong"]
    ]  # fmt: skip
    assert f"{entry['became_right']} rows became better" in (tmp_path / "n" / "comparison.html").read_text("utf-8")
    tags = read(compare([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], output=tmp_path / "t", bootstrap=200).path)
    assert (tags["task"], tags["metric"]) == ("token-classification", "f1")
    assert tags["runs"][0]["metrics"]["f1"] >= tags["runs"][1]["metrics"]["f1"]


def test_mistakes_in_files_are_reported_before_large_imports(files, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "short.csv").write_text("text,label,prediction\na text,good,good\n", encoding="utf-8")
    (tmp_path / "broken.jsonl").write_text('{"text": \n', encoding="utf-8")
    others = [["folder"], ["short.csv"], ["broken.jsonl"], [files["good"], "--slices", "colour"]]
    script = f"""
import sys
from mybert import cli
for words in {others!r}:
    status = cli.main(["compare", {files["bad"]!r}, *words, "--output", "c"])
    print(status, *{{"torch", "transformers"}} & sys.modules.keys())
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["2"] * len(others), done.stderr


def test_files_of_other_tools_have_columns_of_their_own(tmp_path, truth, caplog):
    rng, paths = random.Random(1), []
    names = (("label", "prediction"), ("gold_standard", "model_output"), ("label", "guess"))
    for number, (target, predicted) in enumerate(names):
        rows = [
            {"text": f"text {i}", target: label, predicted: found, "confidence": f"{rng.random():.3f}"}
            for i, (label, found) in enumerate(zip(truth, noisy(rng, truth, 0.2), strict=True))
        ]
        paths.append(write(tmp_path / f"{number}.csv", rows if number else rows[::-1]))
    columns = ["prediction=model_output", "reference=gold_standard", "prediction=guess"]
    found = read(compare(paths, columns=columns, output=tmp_path / "c", bootstrap=100).path)
    for run, path, (target, predicted) in zip(found["runs"], paths, names, strict=True):
        expected = metrics.accuracy_score(column(path, target), column(path, predicted))
        assert run["metrics"]["accuracy"] == pytest.approx(expected)
    assert not caplog.text
    alone = write(tmp_path / "alone.csv", [{"prediction": label} for label in reversed(truth)])
    found = read(compare([paths[0], alone], output=tmp_path / "alone", bootstrap=100).path)
    assert found["runs"][1]["metrics"]["accuracy"] == 1 and "no column in common" in caplog.text


def test_training_time_includes_the_folds(tmp_path):
    cost = {"best": {"seconds": 2.0, "tokens_seen": 10}, "folds": {"seconds": 6.0, "tokens_seen": 30}}
    one = folder_of(tmp_path / "one", "finetune", {"model": "m"}, **cost)
    other = folder_of(tmp_path / "other", "finetune", {"model": "m"}, **cost | {"folds": {}})
    runs = read(compare([one, other], output=tmp_path / "c", bootstrap=100).path)["runs"]
    assert [(run["training_seconds"], run["tokens_seen"]) for run in runs] == [(8.0, 40), (2.0, 10)]


def folder_of(path, stage, settings, **facts):
    """An output folder of `mybert finetune` or `evaluate`, as far as a comparison reads it."""
    part = path / ("test" if stage == "finetune" else ".")
    part.mkdir(parents=True)
    lines = [
        {"label": "a", "scores": {"a": 0.9, "b": 0.1}, "reference": "a", "input": {"text": str(i)}} for i in range(30)
    ]
    write_lines(part / "predictions.jsonl", lines)
    results = {"task": "text-classification", "settings": settings, "best": {}, "test": {"metrics": {}}, **facts}
    (path / "results.json").write_text(json.dumps(results))
    (path / "manifest.json").write_text(json.dumps({"stage": stage, "settings": settings}))
    (path / "log.jsonl").touch()
    return path


def test_settings_that_differ_are_those_of_the_trainings(tmp_path):
    one = folder_of(tmp_path / "one", "finetune", {"model": "m", "layers": 2, "output": "one"})
    other = folder_of(tmp_path / "other", "finetune", {"model": "m", "layers": 4, "output": "other"})
    scored = folder_of(tmp_path / "scored", "evaluate", {"model": str(other), "data": "d", "device": "cpu"})
    for second in (other, scored):
        found = read(compare([one, second], output=tmp_path / f"c-{second.name}", bootstrap=100).path)
        assert found["comparisons"][0]["settings"] == {"layers": [2, 4]}


def test_rows_and_labels_are_those_that_another_program_writes_with_other_spaces_and_numbers(tmp_path):
    rows = [{"id": n, "text": f"a  text {n}", "label": LABELS[n % 3], "prediction": LABELS[n % 2]} for n in range(30)]
    other = [
        {
            "id": f"{row['id']}.0",
            "text": f" a text\n{row['id']} ",
            "label": f"{row['label']} ",
            "prediction": [row["label"]],
        }
        for row in rows[::-1]
    ]
    write_lines(tmp_path / "other.jsonl", other)
    found = read(compare([write(tmp_path / "one.csv", rows), tmp_path / "other.jsonl"], output=tmp_path / "c").path)
    assert [run["metrics"]["accuracy"] for run in found["runs"]] == [pytest.approx(1 / 3), 1.0]


def test_lists_in_cells_are_several_labels(tmp_path):
    lines = [
        {"labels": ["a"], "scores": {"a": 0.9, "b": 0.1}, "reference": ["a", "b"], "input": {"text": str(n)}}
        for n in range(20)
    ]
    (tmp_path / "run").mkdir()
    write_lines(tmp_path / "run" / "predictions.jsonl", lines)
    facts = {"task": "text-classification", "settings": {}, "metrics": {}}
    (tmp_path / "run" / "results.json").write_text(json.dumps(facts))
    (tmp_path / "run" / "manifest.json").write_text(json.dumps({"stage": "evaluate", "settings": {}}))
    rows = [{"text": str(n), "label": "['a', 'b']", "prediction": "['a', 'b']" if n else "[]"} for n in range(20)]
    for first in (tmp_path / "run", write(tmp_path / "one.csv", rows)):
        found = read(
            compare([first, write(tmp_path / "two.csv", rows)], output=tmp_path / f"c-{Path(first).stem}").path
        )
        assert found["metric"] == "f1_micro"
        assert found["runs"][1]["metrics"]["f1_micro"] == pytest.approx(2 * 38 / (38 + 40))


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
@pytest.mark.parametrize("model", ["classifier", "multi"])
def test_tables_of_predict_are_matched_by_the_columns_of_their_rows(models, tmp_path, caplog, suffix, model):
    label = (lambda n: [["sad"], ["sad", "long"]][n % 2]) if model == "multi" else (lambda n: ["bad", "good"][n % 2])
    rows = [{"text": f"a film {n}", "label": label(n)} for n in range(20)]
    task = models(model)
    mybert.evaluate(model=task, data=write_lines(tmp_path / "rows.jsonl", rows), output=tmp_path / "run", bootstrap=0)
    shuffled = write_lines(tmp_path / "other.jsonl", rows[::-1])
    mybert.predict(model=task, inputs=[str(shuffled)], output=str(tmp_path / f"p.{suffix}"))
    found = read(compare([tmp_path / "run", tmp_path / f"p.{suffix}"], output=tmp_path / "c", bootstrap=100).path)
    assert found["difference"] == 0 and found["runs"][0]["metrics"] == found["runs"][1]["metrics"]
    assert found["rows"] == 20 and "no column in common" not in caplog.text


def test_predictions_that_no_reference_is_are_named(tmp_path, caplog):
    rows = [
        {"text": str(n), "label": LABELS[n % 3], "prediction": LABELS[n % 3].upper() if n % 2 else "good"}
        for n in range(12)
    ]
    one = write(tmp_path / "one.csv", rows)
    compare([one, one], output=tmp_path / "c", bootstrap=100)
    assert f"{one}: no reference is BAD, FAIR, GOOD; these predictions count as wrong" in caplog.text


def test_equal_texts_with_different_labels_are_matched_by_their_labels(tmp_path):
    rows = [{"text": "same", "label": label, "prediction": "good"} for label in ("good", "good", "bad", "bad", "bad")]
    runs = [write(tmp_path / "one.csv", rows), write(tmp_path / "other.csv", [*reversed(rows)])]
    compare(runs, output=tmp_path / "c", bootstrap=100)
    results = read(tmp_path / "c")
    assert (results["difference"], results["p"]) == (0, 1)


TAGS = {"reference": ["B-PER", "O", "B-LOC"]}, ["B-PER", "O", "O"], ["B-PER", "O", "B-LOC"]


@pytest.mark.parametrize(
    ("tokens", "row", "one", "two", "shown"),
    [
        ({"tokens": ["ann", "in", "rome"]}, *TAGS, "rome: B-LOC"),
        ({"tokens": "ann in rome"}, *TAGS, "3: B-LOC"),
        ({"text": "ann in rome"}, *TAGS, "3: B-LOC"),
        ({"text": "a text"}, {"reference": ["a", "b"]}, ["a"], ["a", "b"], "Changed rows"),
    ],
)
def test_the_page_shows_tags_and_several_labels_of_other_tools(tmp_path, tokens, row, one, two, shown):
    rows = [tokens | row | {"prediction": found} for found in (one, two)]
    files = [write_lines(tmp_path / f"{number}.jsonl", [row] * 2) for number, row in enumerate(rows)]
    compare(files, output=tmp_path / "out", bootstrap=100)
    assert shown in (tmp_path / "out" / "comparison.html").read_text(encoding="utf-8")
