"""Training rows of several files, and of exports of annotation tools, are those of one file."""

from pathlib import Path

import pandas as pd
import pytest
from json_files import read_lines, write_files
from new_tasks import task_of
from trained_runs import read_results

import mybert
from mybert.artifacts.manifest import read_manifest
from mybert.finetuning.summary import duplicate_rows
from mybert.tasks.reading import read_splits


def choices(*names, **annotation) -> dict:
    """An annotation of Label Studio's JSON export."""
    value = {"from_name": "label", "to_name": "text", "type": "choices", "value": {"choices": list(names)}}
    return {"id": 1, "was_cancelled": False, "result": [value] if names else [], **annotation}


def argilla(text: str, *answers, **more) -> dict:
    """A record of Argilla's JSON export."""
    return {
        "fields": {"text": text},
        "responses": {"label": [{"value": value, "user_id": "u"} for value in answers]},
        **more,
    }


def exports(rows: list[tuple[str, list[str]]]) -> dict[str, list]:
    """The same rows in the form of each tool's export."""
    files = {"studio.json": [], "argilla.json": [], "doccano.jsonl": []}
    guess = {"label": {"value": "x", "score": None, "agent": "m"}}
    for n, (text, names) in enumerate(rows):
        annotations = [choices("x", was_cancelled=True), choices(*names)]
        files["studio.json"].append({"id": n, "data": {"text": text, "reason": "r"}, "annotations": annotations})
        more = {"id": str(n), "metadata": {"reason": "r"}, "suggestions": guess, "vectors": {}}
        files["argilla.json"].append(argilla(text, names if len(names) > 1 else names[0], **more))
        files["doccano.jsonl"].append({"id": n, "text": text, "label": names, "Comments": []})
    return files


@pytest.mark.parametrize("name", exports([]))
@pytest.mark.parametrize("several", [False, True])
def test_exports_are_read_beside_other_rows(tmp_path, name, several):
    old = [{"text": "a fine film", "label": ["good", "long"] if several else "good"}]
    new = [("a dull film", ["bad", "long"] if several else ["bad"]), ("a great book", ["good"])]
    write_files(tmp_path, {"old.jsonl": old, **exports(new)})
    split = read_splits([str(tmp_path / "old.jsonl"), str(tmp_path / name)], task_of())
    assert split.rows["text"][:] == ["a fine film", "a dull film", "a great book"]
    labels = [["good", "long"], ["bad", "long"], ["good"]] if several else ["good", "bad", "good"]
    assert split.rows["label"][:] == labels
    assert len(list(split.given())) == 3
    if not several:
        alone = read_splits([str(tmp_path / name)], task_of(problem="single-label"))
        assert alone.rows["label"][:] == ["bad", "good"]


def test_choices_of_several_files_are_counted_by_the_names_of_columns_in_one(write_rows, finetune):
    columns = [{"context": "the film", "ending0": "is good", "ending1": "is bad", "label": 1}] * 4
    lists = [{"context": "the book", "choices": ["is good", "is bad"], "label": 1}] * 4
    files = write_rows("lists.jsonl", lists), write_rows("columns.jsonl", columns)
    task = task_of("multiple-choice")
    split = read_splits([*map(str, files)], task)
    assert task.with_label_reading([split]).references(split.rows) == [1] * 8
    assert finetune("multiple-choice", "--train", *files, "--max-steps", 1) == 0


def test_a_model_trained_on_two_files_is_that_of_one(finetune, opinions, write_rows, tmp_path, capsys):
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


def test_words_with_tags_and_texts_with_spans_are_trained_together(tmp_path):
    value = {"start": 2, "end": 6, "text": "book", "labels": ["ART"]}
    annotation = {"result": [{"type": "labels", "value": value}], "was_cancelled": False}
    files = {
        "old.jsonl": [{"tokens": ["the", "film"], "tags": ["O", "B-ART"]}],
        "new.json": [{"id": 1, "data": {"text": "a book", "reason": "r"}, "annotations": [annotation]}],
        "more.json": [argilla("a song", [{"start": 2, "end": 6, "label": "ART"}])],
    }
    write_files(tmp_path, files)
    split = read_splits([str(tmp_path / name) for name in files], task_of("token-classification"))
    assert split.rows["tokens"][:] == [["the", "film"], ["a", "book"], ["a", "song"]]
    assert split.rows["tags"][:] == [["O", "B-ART"]] * 3


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
def test_annotations_of_a_row_must_agree(tmp_path, tool, answers, label):
    few = [{"text": f"film {n}", "label": ["bad", "long"] if label != "good" and n % 2 else "bad"} for n in range(4)]
    row = {"data": {"text": "a film"}, "annotations": [choices(*names) for names in answers]}
    if tool == "argilla":
        row = argilla("a film", *(names if len(names) > 1 else names[0] for names in answers))
    write_files(tmp_path, {"few.jsonl": few, "new.json": [row]})
    task = task_of()
    split = read_splits([str(tmp_path / "few.jsonl"), str(tmp_path / "new.json")], task)
    problems = task.check_rows(split.rows, training=True)
    if label is None:
        (problem,) = problems
        assert problem.row == 4 and "its 2 annotations differ" in problem.message and "keep one" in problem.message
    else:
        assert not problems and split.rows["label"][4] == label


def labels_of(folder: Path, rows: list[dict], **options) -> list:
    write_files(folder, {"rows.json": rows})
    return read_splits([str(folder / "rows.json")], task_of(**options)).rows["label"][:]


def test_of_several_controls_each_is_a_column(tmp_path):
    other = {"from_name": "mood", "type": "choices", "value": {"choices": ["glad"]}}
    comment = {"from_name": "note", "type": "textarea", "value": {"text": ["why"]}}
    rows = [{"data": {"text": f"film {n}"}, "annotations": [choices("good")]} for n in range(3)]
    rows[1]["annotations"][0]["result"] += [other, comment]
    assert labels_of(tmp_path, rows) == ["good"] * 3
    assert labels_of(tmp_path, rows, columns=["label=mood"]) == [None, "glad", None]
    rows[1]["annotations"][0]["result"] = [comment]
    assert labels_of(tmp_path, rows) == ["good", None, "good"]


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


def test_a_row_is_named_by_its_file_and_the_line_there(tmp_path):
    texts = {"a.csv": ["film", "book"], "b.csv": ["song"], "test.csv": ["song", "book"]}
    for name, some in texts.items():
        (tmp_path / name).write_text("".join(["text,label\n", *(f"{text},good\n" for text in some)]))
    *names, test = (str(tmp_path / name) for name in texts)
    task = task_of()
    train = read_splits(names, task)
    assert [train.where(row) for row in (1, 2)] == [{"line": 3, "source": names[0]}, {"line": 2, "source": names[1]}]
    (warning,) = duplicate_rows({"train": train, "test": read_splits([test], task)}, task)
    assert f"(test line 2 is train line 2 of {names[1]}, test line 3 is train line 3 of {names[0]})" in warning


def test_a_name_that_looks_like_a_list_is_one_label_in_several_files_too(tmp_path):
    write_files(tmp_path, {name: [{"text": name, "label": "['bad', 'good']"}] for name in ("a.json", "b.json")})
    task = task_of(problem="single-label")
    split = read_splits([str(tmp_path / name) for name in ("a.json", "b.json")], task)
    assert split.rows["label"][:] == ["['bad', 'good']"] * 2


def labelled(**texts) -> list[dict]:
    return [{"text": text.replace("_", " "), "label": label} for text, label in texts.items()]


WITH_SEVERAL = [{"text": f"a {number}", "label": ["bad", "good"][: 1 + number % 2]} for number in range(3)]
AGAIN = labelled(a_good_film="good", _a_fine_film_="bad", it="bad")
EQUAL = [{"text": "A  film", "label": "good"}, *labelled(a_film="bad", a_book="bad")]
BOTH = [{"text": "a sea", "label": labels} for labels in (["bad", "good"], ["good", "bad"])]
IN_LIST = [{"text": "a film", "label": ["good"]}]
CHECKED = [  # what a.jsonl has, and b.jsonl and test.jsonl; options, and what is printed
    ("names", WITH_SEVERAL, [], "--errors skip", "single label: 2 labels"),
    ("names", WITH_SEVERAL, [], "--problem multi-label", "several labels: 2 labels"),
    ("names", AGAIN, [], "", "corrected by rows of later files: 2 rows, 1 with another label\n"),
    ("lists", BOTH, [], "", "several labels: 2 labels"),
    ("lists", [], labelled(film="good"), "--problem single-label", "single label: 2 labels"),
    ("names", [], IN_LIST, "", "single label: 2 labels"),
    ("names", EQUAL, [], "", "equal texts and different labels: 1 (lines 1 (good) and 2 of b.jsonl (bad))"),
]


@pytest.mark.parametrize(("first", "second", "test", "options", "printed"), CHECKED)
def test_rows_of_several_files_are_read_together(
    finetune, opinions, write_rows, tmp_path, monkeypatch, capsys, first, second, test, options, printed
):
    monkeypatch.chdir(tmp_path)
    in_lists = [{**row, "label": [row["label"]]} for row in opinions]  # as doccano exports
    write_rows("a.jsonl", in_lists if first == "lists" else opinions)
    for name, rows in (("b.jsonl", second), ("test.jsonl", test)):
        write_rows(name, rows)
    words = ["a.jsonl", *(["b.jsonl"] if second else []), *(["--test", "test.jsonl"] if test else [])]
    assert finetune("text-classification", "--train", *words, *options.split(), "--dry-run") == 0
    found = "".join(capsys.readouterr())
    assert printed in found and ("different labels" in found) == (second is EQUAL)
