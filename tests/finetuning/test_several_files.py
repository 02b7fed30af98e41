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


def test_choices_of_several_files_are_counted_by_the_names_of_columns_in_one(
    tiny_checkpoint, write_rows, finetune, tmp_path
):
    columns = [{"context": "the film", "ending0": "is good", "ending1": "is bad", "label": 1}] * 4
    lists = [{"context": "the book", "choices": ["is good", "is bad"], "label": 1}] * 4
    files = write_rows("lists.jsonl", lists), write_rows("columns.jsonl", columns)
    task = task_of(tiny_checkpoint, "multiple-choice")
    split = read_splits([*map(str, files)], task)
    assert task.with_label_reading([split]).references(split.rows) == [1] * 8
    assert finetune("multiple-choice", "--train", *files, "--max-steps", 1) == 0


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
    assert found.metrics and "The model was trained on evaluated rows" in capsys.readouterr().out
    bad = write_rows("bad.jsonl", [*opinions[:2], {"text": "a film", "label": None}])
    assert finetune("text-classification", "--train", old, bad, output="bad") == 2
    assert f"1 of 31 lines cannot be used: line 3 of {bad}: the label is missing" in capsys.readouterr().err


def test_rows_of_one_file_name_it_once(finetune, opinions, write_rows, capsys):
    empty = [{"text": "a film", "label": None}] * 4
    first, second = write_rows("a.jsonl", [*opinions, *empty]), write_rows("b.jsonl", empty[:1])
    lines, size = len(opinions), len(opinions) + 5
    assert finetune("text-classification", "--train", first, second) == 2
    named = ", ".join(str(lines + number) for number in range(1, 5))
    message = f"5 of {size} lines cannot be used: lines {named} of {first}, 1 of {second}: the label is missing"
    assert message in capsys.readouterr().err


def test_a_label_that_the_training_rows_lack_has_a_remedy(finetune, opinions, write_rows, capsys):
    train, fine = write_rows("train.jsonl", opinions), [{"text": "a fine film", "label": "fine"}]
    test = write_rows("test.jsonl", [*opinions[:3], *fine])
    assert finetune("text-classification", "--train", train, "--test", test) == 2
    message = "line 4: the label 'fine' is not among the 2 trained on (bad, good); correct them, or move a row of each"
    message += " label that the training rows lack into a file of --train, or leave them out by --errors skip"
    assert message in capsys.readouterr().err
    missing = write_rows("missing.jsonl", [*opinions[:3], {"text": "a film", "label": None}])
    assert finetune("text-classification", "--train", train, "--test", missing) == 2
    assert "the label is missing; correct them, or leave them out by" in capsys.readouterr().err


def test_several_labels_in_a_cell_that_the_training_rows_lack_have_a_remedy(finetune, opinions, write_rows, capsys):
    several = [{"text": f"a long film {number}", "label": "bad;good"} for number in range(3)]
    train = write_rows("train.jsonl", [*opinions, *several])
    test = write_rows("test.jsonl", [*opinions[:3], {"text": "a fine film", "label": "good;bad"}])
    assert finetune("text-classification", "--train", train, "--test", test) == 2
    message = "correct them, or read several labels in a cell by --label-separator ';', if 'bad;good' is several"
    assert message in capsys.readouterr().err


def test_files_with_other_columns_are_refused(finetune, opinions, write_rows, capsys):
    pairs = [{"sentence1": "a film", "sentence2": "a book", "label": "good"}]
    words = ("--train", write_rows("a.jsonl", opinions), write_rows("b.jsonl", pairs))
    assert finetune("text-classification", *words) == 2
    error = capsys.readouterr().err
    assert "the files must have the same columns" in error and "b.jsonl has label, text, text_pair" in error


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


def kept(path, rows: list[dict]) -> str:
    path.write_text(json.dumps(rows), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("tool", ["studio", "argilla"])
@pytest.mark.parametrize(
    ("answers", "label"),
    [
        ([["good"], ["good"]], "good"),
        ([["good", "long"], ["long", "good"]], ["good", "long"]),
        ([["bad"], ["good"]], None),
        ([["bad"], ["bad", "long"]], None),
    ],
)
def test_annotations_of_a_row_must_agree(tiny_checkpoint, tmp_path, tool, answers, label):
    few = [{"text": f"film {n}", "label": ["bad", "long"] if label != "good" and n % 2 else "bad"} for n in range(4)]
    write_lines(tmp_path / "few.jsonl", few)
    if tool == "studio":
        rows = [{"data": {"text": "a film"}, "annotations": [choices(*names) for names in answers]}]
    else:
        given = [{"value": names if len(names) > 1 else names[0], "user_id": "u"} for names in answers]
        rows = [{"fields": {"text": "a film"}, "responses": {"label": given}}]
    task = task_of(tiny_checkpoint)
    split = read_splits([str(tmp_path / "few.jsonl"), kept(tmp_path / "new.json", rows)], task)
    problems = task.check_rows(split.rows, training=True)
    if label is None:
        (problem,) = problems
        assert problem.row == 4 and "its 2 annotations differ" in problem.message and "keep one" in problem.message
    else:
        assert not problems and split.rows["label"][4] == label


def test_of_several_controls_each_is_a_column(tiny_checkpoint, tmp_path):
    other = {"from_name": "mood", "type": "choices", "value": {"choices": ["glad"]}}
    comment = {"from_name": "note", "type": "textarea", "value": {"text": ["why"]}}
    rows = [{"data": {"text": f"film {n}"}, "annotations": [choices("good")]} for n in range(3)]
    rows[1]["annotations"][0]["result"] += [other, comment]
    split = read_splits([kept(tmp_path / "two.json", rows)], task_of(tiny_checkpoint))
    assert split.rows["label"][:] == ["good"] * 3
    split = read_splits([kept(tmp_path / "two.json", rows)], task_of(tiny_checkpoint, columns=["label=mood"]))
    assert split.rows["label"][:] == [None, "glad", None]
    rows[1]["annotations"][0]["result"] = [comment]
    alone = read_splits([kept(tmp_path / "one.json", rows)], task_of(tiny_checkpoint))
    assert alone.rows["label"][:] == ["good", None, "good"]


def test_few_rows_with_several_labels_beside_single_ones_are_named(finetune, opinions, write_rows, tmp_path, capsys):
    write_lines(tmp_path / "new.jsonl", [{"text": f"a {n}", "label": ["bad", "good"][: 1 + n % 2]} for n in range(3)])
    words = ("text-classification", "--train", write_rows("old.jsonl", opinions), tmp_path / "new.jsonl")
    assert finetune(*words) == 2
    error = capsys.readouterr().err
    assert f"line 2 of {tmp_path / 'new.jsonl'}: 2 labels, ['bad', 'good'], where one is expected; --problem" in error
    assert "1 of" in error and finetune(*words, "--problem", "single-label") == 2
    assert "1 of" in (error := capsys.readouterr().err) and "--problem multi-label" not in error
    assert finetune(*words, "--errors", "skip", "--max-steps", 1, output="skipped") == 0
    assert "single label: 2 labels" in capsys.readouterr().out
    assert finetune(*words, "--problem", "multi-label", "--max-steps", 1, output="several") == 0
    assert "several labels: 2 labels" in capsys.readouterr().out


def test_a_later_row_without_label_corrects_nothing(finetune, opinions, write_rows, tmp_path, capsys):
    empty = tmp_path / "empty.csv"
    pd.DataFrame({"text": [row["text"] for row in opinions[:3]], "label": ["", " ", "bad"]}).to_csv(empty, index=False)
    words = ("--train", write_rows("old.jsonl", opinions), empty, "--errors", "skip", "--max-steps", 1)
    assert finetune("text-classification", *words, output="kept") == 0
    printed = capsys.readouterr().out
    assert (
        "corrected by rows of later files: 1 row, 1 with another label\n" in printed
        and f"lines 2, 3 of {empty}: " in printed
    )
    data = read_results(tmp_path / "kept")["data"]
    assert sum(data[part]["rows"] for part in ("train", "validation") if part in data) == len(opinions)


def test_replaced_rows_are_counted_and_those_with_another_label(finetune, opinions, write_rows, tmp_path, capsys):
    again = [
        opinions[0],
        opinions[1] | {"label": "bad", "text": f" {opinions[1]['text']} "},
        {"text": "it", "label": "bad"},
    ]
    words = ("--train", write_rows("old.jsonl", opinions), write_rows("again.jsonl", again), "--dry-run")
    assert finetune("text-classification", *words) == 0
    printed = capsys.readouterr().out
    assert "corrected by rows of later files: 2 rows, 1 with another label\n" in printed


def test_words_beside_training_rows_with_lists_are_refused_with_the_remedy(
    finetune, opinions, write_rows, tmp_path, capsys
):
    write_lines(tmp_path / "train.jsonl", [row | {"label": [row["label"]]} for row in opinions])  # as doccano exports
    words = ("--train", tmp_path / "train.jsonl", "--test", write_rows("test.jsonl", opinions[:4]), "--dry-run")
    assert finetune("text-classification", *words) == 2
    assert "for one label a text, add --problem single-label" in capsys.readouterr().err
    assert finetune("text-classification", *words, "--problem", "single-label") == 0
    assert "single label: 2 labels" in capsys.readouterr().out


def test_equal_texts_with_different_labels_are_named_with_their_files(
    finetune, write_rows, opinions, tmp_path, capsys
):
    extra = [
        {"text": "A  film", "label": "good"},
        {"text": "a film", "label": "bad"},
        {"text": "a book", "label": "bad"},
    ]
    old = write_rows("old.jsonl", [*opinions, {"text": "the book", "label": "bad"}])
    new = write_rows("new.jsonl", [*extra, {"text": "a  book", "label": "bad"}])
    assert finetune("text-classification", "--train", old, new, "--max-steps", 1) == 0
    line = f"equal texts and different labels: 1 (lines 1 (good) and 2 of {new} (bad)); correct one"
    assert line in capsys.readouterr().out
    rows = [{"text": "a film", "label": ["good", "long"]}, {"text": "a film", "label": ["long", "good"]}]
    rows += [{"text": f"a {n}", "label": []} for n in range(3)]
    assert (
        finetune("text-classification", "--train", write_rows("several.jsonl", rows), "--max-steps", 1, output="two")
        == 0
    )
    assert "different labels" not in capsys.readouterr().out
