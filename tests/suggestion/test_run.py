"""`mybert suggest` on tiny models: its rows, forms and mistakes."""

import csv
import random
import shlex
import shutil

import pytest
from json_files import read_lines, write_lines
from tiny_models import WORDS

import mybert
from mybert import Predictor, cli
from mybert.artifacts.manifest import write_manifest
from mybert.common.json_io import parse_json


def texts(count: int, words: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=words)) for _ in range(count)]


def test_rows_keep_their_columns_and_get_an_empty_label_a_prediction_and_a_reason(models, tmp_path):
    rows = [{"id": n, "text": text, "reason": "mine"} for n, text in enumerate(texts(40, 6))]
    given = write_lines(tmp_path / "rows.jsonl", rows)
    for name in ("a", "b"):
        done = mybert.suggest(models("classifier"), given, count=5, output=str(tmp_path / f"{name}.jsonl"))
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert done.manifest["counts"] == {"rows": 40, "labelled": 0, "pool": 40, "suggestions": 5}
    found = read_lines(tmp_path / "a.jsonl")
    assert len({row["text"] for row in found}) == 5
    for row in found:
        assert rows[row["id"]]["text"] == row["text"] and row["label"] is None and row["input_reason"] == "mine"
        expected = Predictor(models("classifier"))(row["text"])
        first, second = sorted(expected["scores"].values(), reverse=True)[:2]
        assert row["prediction"] == expected["label"]
        assert row["uncertainty"] == pytest.approx(1 - first + second, abs=1e-3)
        assert row["reason"].startswith(f"between '{expected['label']}'")


def test_near_duplicates_and_labelled_rows_are_left_out(models, tmp_path):
    base = texts(12, 20)
    near = [" ".join([*text.split()[:-1], "the"]) for text in base]
    upper = [text.upper() + "!" for text in base]
    labelled = str(write_lines(tmp_path / "train.jsonl", [{"text": text, "label": "good"} for text in near[:4]]))
    given = str(write_lines(tmp_path / "rows.jsonl", [{"text": text} for text in [*base, *near, *upper]]))
    words = ["--labelled", labelled, "--count", "30", "--output", str(tmp_path / "next.jsonl")]
    assert cli.main(["suggest", str(models("classifier")), given, *words]) == 0
    found = [row["text"].lower().strip("!").rsplit(" ", 1)[0] for row in read_lines(tmp_path / "next.jsonl")]
    assert sorted(found) == sorted(text.rsplit(" ", 1)[0] for text in base[4:])


@pytest.mark.parametrize("model", ["multi", "windowed", "tagger"])
@pytest.mark.parametrize("form", ["jsonl", "csv", "label-studio", "doccano", "argilla"])
def test_every_form_of_every_model(models, tmp_path, model, form):
    rows = [{"text": text} for text in texts(20, 14)]
    suffix = {"csv": "csv", "jsonl": "jsonl", "doccano": "jsonl"}.get(form, "json")
    output = tmp_path / f"next.{suffix}"
    settings = {"count": 3, "output": str(output), "format": form}
    given = write_lines(tmp_path / "rows.jsonl", rows)
    mybert.suggest(models(model), given, **settings)
    content = output.read_text(encoding="utf-8")
    if form == "csv":
        assert output.read_bytes().startswith(b"\xef\xbb\xbf")  # Excel reads UTF-8 by it
        with output.open(encoding="utf-8-sig", newline="") as file:
            found = list(csv.DictReader(file))
        assert all(row["spans" if model == "tagger" else "label"] == "" for row in found)
    else:
        found = parse_json(content) if suffix == "json" else read_lines(output)
    assert len(found) == 3
    shown = {"label-studio": lambda row: row["data"], "argilla": lambda row: row["fields"]}.get(form, lambda row: row)
    assert all(shown(row)["text"] in {one["text"] for one in rows} for row in found)
    if form == "label-studio" and model == "tagger":
        for row in found:
            for region in row["predictions"][0]["result"]:
                value = region["value"]
                assert row["data"]["text"][value["start"] : value["end"]] == value["text"] and value["labels"]


@pytest.mark.parametrize("model", ["classifier", "multi", "tagger"])
def test_rows_with_a_label_are_no_suggestions_unless_every_row_has_one(models, tmp_path, capsys, model):
    column, label = (
        ("spans", [[0, 1, "PER"]]) if model == "tagger" else ("label", ["good"] if model == "multi" else "good")
    )
    empty = [None, "", []]
    rows = [{"text": text, column: empty[n % 3] if n < 6 else label} for n, text in enumerate(texts(12, 8))]
    rows.append({"text": " ", column: None})
    given = str(write_lines(tmp_path / "rows.jsonl", rows))
    words = ["suggest", str(models(model)), given, "--output", str(tmp_path / "next.jsonl"), "--count"]
    assert cli.main([*words, "12", "--errors", "skip"]) == 0
    assert {row["text"] for row in read_lines(tmp_path / "next.jsonl")} == {row["text"] for row in rows[:6]}
    assert "suggestions: 6 of 13 rows; left out: 1 unusable, 6 with a label\n" in capsys.readouterr().err
    write_lines(tmp_path / "rows.jsonl", rows[:6])
    assert cli.main([*words, "12", "--overwrite"]) == 0
    assert "suggestions: 6 of 6 rows\nnext: " in capsys.readouterr().err
    write_lines(tmp_path / "rows.jsonl", rows[6:12])
    assert cli.main([*words, "2", "--overwrite"]) == 0
    assert "every row has a label: rows are chosen as if none had one" in capsys.readouterr().err
    assert len(read_lines(tmp_path / "next.jsonl")) == 2


@pytest.fixture
def trained(models, tmp_path):
    """A function that returns a model whose manifest has the settings of its training."""

    def call(name: str, **settings) -> str:
        folder = shutil.copytree(models("classifier"), tmp_path / name)
        settings = {"task": "text-classification", "model": "my start", "folds": None, **settings}
        write_manifest(folder, "finetune", settings=settings, inputs={}, counts={})
        return str(folder)

    return call


@pytest.mark.parametrize("form", ["csv", "label-studio"])
def test_the_next_training_is_printed_as_a_command(trained, tmp_path, capsys, form):
    train, test, pool = (
        str(write_lines(tmp_path / f"{name} rows.jsonl", [{"text": text, "label": "good"} for text in texts(9, 6, n)]))
        for n, name in enumerate(("train", "test", "pool"))
    )
    model = trained("round-9", train=train, test=test, columns=["label=label"])
    output = tmp_path / f"next.{'csv' if form == 'csv' else 'json'}"
    words = ["suggest", model, pool, "--labelled", train, test, "--count", "3", "--format", form]
    assert cli.main([*words, "--output", str(output)]) == 0
    message, command = capsys.readouterr().err.splitlines()[-2:]
    labelled = output if form == "csv" else tmp_path / "next-labelled.json"
    how = f"fill the empty column 'label' of {output}"
    if form == "label-studio":
        how = f"label {output} in Label Studio, and export it as {labelled}"
    assert message == f"next: {how}, then train on all rows:"
    expected = ["mybert", "finetune", "--task", "text-classification", "--model", "my start"]
    expected += ["--train", train, str(labelled), "--test", test, "--columns", "label=label"]
    assert shlex.split(command) == [*expected, "--output", str(tmp_path / "round-10")]


def test_the_next_training_reads_rows_and_labels_as_the_last_one(trained, tmp_path, capsys):
    pool = write_lines(tmp_path / "pool.jsonl", [{"text": text} for text in texts(12, 6)])
    options = {"label_separator": ";", "label_names": ["0=bad"], "validation_share": 0.0, "class_weights": True}
    model = trained("round-1", train="train.csv", plain_tags=False, threshold=[], **options)
    assert cli.main(["suggest", model, str(pool), "--count", "3", "--output", str(tmp_path / "next.csv")]) == 0
    command = shlex.split(capsys.readouterr().err.splitlines()[-1])
    expected = ["--validation-share", "0.0", "--label-separator", ";", "--label-names", "0=bad", "--class-weights"]
    assert command[command.index("--validation-share") : -2] == expected


def test_in_python_the_next_training_is_a_call_and_an_unknown_training_has_none(trained, tmp_path, capsys):
    pool = write_lines(tmp_path / "pool.jsonl", [{"text": text} for text in texts(12, 6)])
    for train, name in (("train.csv", "mine"), ("data in memory (train)", "other")):
        mybert.suggest(trained(name, train=train), pool, count=3, output=tmp_path / f"{name}.jsonl")
    printed = capsys.readouterr().err
    files = ["train.csv", str(tmp_path / "mine.jsonl")]
    call = f"mybert.finetune(task='text-classification', model='my start', train={files}, output="
    assert f"then train on all rows:\n  {call}{str(tmp_path / 'mine-2')!r})\n" in printed
    assert printed.endswith("other.jsonl, then train on all rows (`mybert finetune --train`)\n")
