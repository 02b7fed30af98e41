"""Every task: a run, its folder and scores, and the same predictions in every form of rows."""

from types import SimpleNamespace

import pytest
from json_files import read_lines, write_lines
from tiny_models import LABELLED
from trained_runs import read_results as results

from mybert import cli
from mybert.artifacts.manifest import read_manifest
from mybert.inference import predictor as module
from mybert.inference.predictor import Predictor
from mybert.rows.tables import MemoryRows

LONG = "the very good film " * 20
ROWS = {  # head of `LABELLED`, options, and rows to predict
    "text": ("classifier", [], ["a good film", "bad", LONG, "", "it's [SEP] fine"]),
    "windows": ("classifier", ["--long-texts", "window", "--max-length", "12"], ["a good film", LONG]),
    "labels": ("multi", [], ["a good film", "bad"]),
    "number": ("regression", [], ["a good film", "bad"]),
    "pairs": ("pairs", [], [("a good film", "yes"), ("bad", LONG)]),
    "tags": ("tagger", [], ["a good film", LONG, {"tokens": ["a", "film"]}, {"tokens": '["a"]'}]),
    "answers": ("reader", ["--max-length", "24"], [("which film", LONG), ("which", "a good film")]),
    "choices": (
        "chooser",
        [],
        [
            {"context": "film", "choices": ["a", LONG]},
            {"context": "film", "choices": {"text": ["a", "b", "c"], "label": ["x", "y", "z"]}},
            {"context": "film", "start": "the", "ending0": "good", "ending1": "bad"},
        ],
    ),
}


@pytest.fixture(scope="module", params=ROWS)
def trained(request, finetuned) -> SimpleNamespace:
    """The folder of two steps, its data and more rows."""
    head, options, rows = ROWS[request.param]
    task, labelled = LABELLED[head]
    folder = finetuned(task, labelled, *options, "--max-steps", 2, validation=labelled, test=labelled[:3])
    return SimpleNamespace(name=request.param, folder=folder, labelled=labelled, rows=rows)


def evaluated(model, data, output) -> dict:
    words = ("--model", model, "--data", data, "--output", output, "--bootstrap", 0, "--device", "cpu")
    assert cli.main(["evaluate", *map(str, words)]) == 0
    return results(output)["metrics"]


def test_a_folder_is_complete_and_has_the_scores_that_evaluate_finds(trained, tmp_path):
    manifest, labelled = read_manifest(trained.folder), trained.labelled
    metrics = {"labels": "f1_micro", "number": "pearson", "tags": "f1", "answers": "f1"}
    assert results(trained.folder)["metric"] == metrics.get(trained.name, "accuracy")
    assert (manifest["stage"], manifest["complete"]) == ("finetune", True)
    assert manifest["counts"] == {"train": len(labelled), "validation": len(labelled), "test": 3}
    assert set(manifest["inputs"]) == {"model", "train", "validation", "test"}
    for split, rows in (("validation", labelled), ("test", labelled[:3])):
        files = {path.name for path in (trained.folder / split).iterdir()} - {"suspects.jsonl"}
        assert files == {"results.json", "predictions.jsonl", "errors.txt", "analysis.json"}
        assert [line["input"] for line in read_lines(trained.folder / split / "predictions.jsonl")] == rows
    assert not list(trained.folder.glob("runs/*/checkpoint-*"))
    found = evaluated(trained.folder, trained.folder.parent / "validation.jsonl", tmp_path / "scores")
    assert found == pytest.approx(results(trained.folder)["validation"]["metrics"], rel=1e-4)


def test_rows_have_the_same_predictions_in_a_file_in_memory_in_a_data_set_and_alone(
    trained, tmp_path, monkeypatch, capsys
):
    predictor = Predictor(trained.folder, device="cpu")
    assert all(isinstance(rows, MemoryRows) for _, rows in predictor.part(trained.rows).tables)
    expected = predictor(trained.rows)
    assert all(expected)
    alone = [predictor(row) for row in trained.rows]
    monkeypatch.setattr(module, "MOST_ROWS", 0)
    assert predictor(trained.rows) == expected and [predictor(row) for row in trained.rows] == alone
    unlabelled = write_lines(tmp_path / "rows.jsonl", trained.labelled)
    capsys.readouterr()
    assert cli.main(["predict", str(trained.folder), str(unlabelled), "--device", "cpu"]) == 0
    lines = read_lines(capsys.readouterr().out)
    for line, one in zip(lines, predictor(trained.labelled), strict=True):
        assert {name: line[name] for name in one} == one


@pytest.mark.parametrize("trained", ["answers", "choices"], indirect=True)  # tests/release compares every head's graph
def test_an_onnx_folder_predicts_and_is_evaluated_as_its_checkpoint(trained, tmp_path):
    pytest.importorskip("onnxruntime")
    assert cli.main(["export", str(trained.folder), "--output", str(tmp_path / "onnx")]) == 0
    found, expected = (
        flat(Predictor(name, device="cpu")(trained.rows)) for name in (tmp_path / "onnx", trained.folder)
    )
    assert len(found) > 4 and found == [
        pytest.approx(value, abs=1e-4) if isinstance(value, float) else value for value in expected
    ]
    found = evaluated(tmp_path / "onnx", trained.folder.parent / "validation.jsonl", tmp_path / "scores")
    assert found == pytest.approx(results(trained.folder)["validation"]["metrics"], rel=1e-4)


def flat(value) -> list:
    """The values in nested lists and dictionaries, in order."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return [value] if items is None else [one for item in items for one in flat(item)]
