"""Training rows of several files, and of exports of annotation tools, are those of one file."""

import json

import pandas as pd
import pytest
from json_files import read_lines, write_lines
from trained_runs import read_results

import mybert
from mybert.artifacts.manifest import read_manifest
from mybert.finetuning.run_data import new_task
from mybert.finetuning.settings import FinetuneSettings
from mybert.tasks.reading import read_splits


def task_of(model, name="text-classification", **options):
    return new_task(FinetuneSettings(task=name, model=str(model), train="-", output="-", **options))[0]


def choices(*names, **annotation) -> dict:
    """An annotation of Label Studio's JSON export."""
    value = {"from_name": "label", "to_name": "text", "type": "choices", "value": {"choices": list(names)}}
    return {"id": 1, "was_cancelled": False, "result": [value] if names else [], **annotation}


def exports(folder, rows: list[tuple[str, list[str]]]) -> dict[str, str]:
    """Files with the same rows in the form of each tool's export."""
    studio, argilla, doccano = [], [], []
    for n, (text, names) in enumerate(rows):
        annotations = [choices("x", was_cancelled=True), choices(*names)]
        studio.append({"id": n, "data": {"text": text, "reason": "r"}, "annotations": annotations})
        answer = {"value": names if len(names) > 1 else names[0], "user_id": "u"}
        guess = {"label": {"value": "x", "score": None, "agent": "m"}}
        of = {"id": str(n), "fields": {"text": text}, "metadata": {"reason": "r"}, "suggestions": guess, "vectors": {}}
        argilla.append(of | {"responses": {"label": [answer]}})
        doccano.append({"id": n, "text": text, "label": names, "Comments": []})
    (folder / "studio.json").write_text(json.dumps(studio), encoding="utf-8")
    (folder / "argilla.json").write_text(json.dumps(argilla), encoding="utf-8")
    write_lines(folder / "doccano.jsonl", doccano)
    return {"studio": "studio.json", "argilla": "argilla.json", "doccano": "doccano.jsonl"}


@pytest.mark.parametrize("tool", ["studio", "argilla", "doccano"])
@pytest.mark.parametrize("several", [False, True])
def test_exports_are_read_beside_other_rows(tiny_checkpoint, write_rows, tmp_path, monkeypatch, tool, several):
    monkeypatch.chdir(tmp_path)
    old = [{"text": "a fine film", "label": ["good", "long"] if several else "good"}]
    new = [("a dull film", ["bad", "long"] if several else ["bad"]), ("a great book", ["good"])]
    write_rows("old.jsonl", old)
    split = read_splits(["old.jsonl", exports(tmp_path, new)[tool]], task_of(tiny_checkpoint))
    assert split.rows["text"][:] == ["a fine film", "a dull film", "a great book"]
    labels = [["good", "long"], ["bad", "long"], ["good"]] if several else ["good", "bad", "good"]
    assert split.rows["label"][:] == labels
    assert len(list(split.given())) == 3


@pytest.mark.parametrize("tool", ["studio", "argilla", "doccano"])
def test_an_export_alone_has_single_labels(tiny_checkpoint, tmp_path, tool):
    name = exports(tmp_path, [("a dull film", ["bad"]), ("a great book", ["good"])])[tool]
    split = read_splits([str(tmp_path / name)], task_of(tiny_checkpoint, problem="single-label"))
    assert split.rows["label"][:] == ["bad", "good"]


def test_a_model_trained_on_two_files_is_that_of_one_and_bad_rows_have_their_file(
    finetune, opinions, write_rows, tmp_path, capsys
):
    old, new = write_rows("old.jsonl", opinions[:30]), tmp_path / "new.csv"
    pd.DataFrame(opinions[30:]).assign(reason="r").to_csv(new, index=False)
    words = ("--max-steps", 6, "--validation-share", 0.2)
    assert finetune("text-classification", "--train", old, new, *words, output="two") == 0
    assert finetune("text-classification", "--train", write_rows("all.jsonl", opinions), *words, output="one") == 0
    two, one = (read_results(tmp_path / name)["data"]["train"]["balance"] for name in ("two", "one"))
    inputs = read_manifest(tmp_path / "two")["inputs"]
    assert two == one and [inputs[name]["path"] for name in ("train", "train-2")] == [str(old), str(new)]
    two, one = (read_lines(tmp_path / name / "validation/predictions.jsonl") for name in ("two", "one"))
    assert [line["label"] for line in two] == [line["label"] for line in one]
    found = mybert.evaluate(model=tmp_path / "two", data=new, output=tmp_path / "scores", bootstrap=0)
    assert found.metrics and f"{new} is the file" in capsys.readouterr().out
    bad = write_rows("bad.jsonl", [*opinions[:2], {"text": "a film", "label": None}])
    assert finetune("text-classification", "--train", old, bad, output="bad") == 2
    assert f"1 of 31 lines cannot be used: line 3 of {bad}: the label is missing" in capsys.readouterr().err


def test_files_with_other_columns_are_refused(finetune, opinions, write_rows, capsys):
    pairs = [{"sentence1": "a film", "sentence2": "a book", "label": "good"}]
    words = ("--train", write_rows("a.jsonl", opinions), write_rows("b.jsonl", pairs))
    assert finetune("text-classification", *words) == 2
    error = capsys.readouterr().err
    assert "the files must have the same columns" in error and "b.jsonl has label, text, text_pair" in error
    assert finetune("text-classification", "--train", words[1], words[1]) == 2
    assert "--train: expected one or several files, each once" in capsys.readouterr().err


def test_words_with_tags_and_texts_with_spans_are_trained_together(tiny_checkpoint, write_rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_rows("old.jsonl", [{"tokens": ["the", "film"], "tags": ["O", "B-ART"]}])
    value = {"start": 2, "end": 6, "text": "book", "labels": ["ART"]}
    annotation = {"result": [{"type": "labels", "value": value}], "was_cancelled": False}
    studio = [{"id": 1, "data": {"text": "a book", "reason": "r"}, "annotations": [annotation]}]
    (tmp_path / "new.json").write_text(json.dumps(studio), encoding="utf-8")
    argilla = [
        {"fields": {"text": "a song"}, "responses": {"label": [{"value": [{"start": 2, "end": 6, "label": "ART"}]}]}}
    ]
    (tmp_path / "more.json").write_text(json.dumps(argilla), encoding="utf-8")
    split = read_splits(["old.jsonl", "new.json", "more.json"], task_of(tiny_checkpoint, "token-classification"))
    assert split.rows["tokens"][:] == [["the", "film"], ["a", "book"], ["a", "song"]]
    assert split.rows["tags"][:] == [["O", "B-ART"]] * 3
