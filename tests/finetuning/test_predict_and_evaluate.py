"""`mybert predict`, `mybert evaluate` and `Predictor` with a classifier of the tiny checkpoint."""

import csv
import dataclasses
import io
import json
import math
import os
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import Dataset
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
from scipy.special import softmax

from modeling_mybert import (
    MyBertForMultipleChoice,
    MyBertForQuestionAnswering,
    MyBertForSequenceClassification,
    MyBertForTokenClassification,
)
from mybert import cli
from mybert.common.errors import UserError
from mybert.common.manifest import read_manifest
from mybert.common.tables import print_table
from mybert.finetuning.data.dataset_loading import Split
from mybert.finetuning.data.stream_input import read_lines
from mybert.finetuning.evaluation.bootstrap_scores import LabelScores
from mybert.finetuning.evaluation.error_report import draw_errors, write_errors
from mybert.finetuning.evaluation.evaluation_result import Evaluation
from mybert.finetuning.evaluation.predictor import Predictor
from mybert.finetuning.settings import PredictorSettings
from mybert.finetuning.task_checkpoint import load_finetuned
from mybert.finetuning.tasks.base import Matrix
from mybert.finetuning.tasks.text_classification import TextClassification
from mybert.inference.batches import batches
from tokenization import MyBertTokenizer

TEXTS = ["a good film", "the dull, awful story of a very boring book", "no", "fine play", "a scene: the very good one"]


@pytest.fixture(scope="module")
def expected(classifier) -> list[dict[str, float]]:
    """The probabilities of each text, computed one text at a time."""
    model = MyBertForSequenceClassification.from_pretrained(classifier).eval()
    tokenizer = MyBertTokenizer.from_pretrained(classifier)
    with torch.no_grad():
        logits = [model(**tokenizer(text, return_tensors="pt")).logits[0].numpy() for text in TEXTS]
    return [dict(zip(("bad", "good"), softmax(row).tolist(), strict=True)) for row in logits]


def predict(*words) -> int:
    return cli.main(["predict", *map(str, words), "--device", "cpu"])


def evaluate(model, data, output, *words) -> int:
    fixed = ("--model", model, "--data", data, "--output", output, "--device", "cpu")
    return cli.main(["evaluate", *map(str, (*fixed, *words))])


def read(lines: Path | str) -> list[dict]:
    """The objects in a file or text of JSON lines."""
    return [json.loads(line) for line in (lines.read_text() if isinstance(lines, Path) else lines).splitlines()]


@pytest.fixture
def type_in(monkeypatch):
    """A function that makes its bytes, text or records the standard input."""

    def call(content: bytes | str | list) -> None:
        if isinstance(content, list):
            content = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in content)
        content = content if isinstance(content, bytes) else content.encode()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))

    return call


@pytest.fixture
def changed(classifier, tmp_path):
    """A function that changes the configuration of a copy of the classifier, and returns its folder."""

    def call(change) -> Path:
        shutil.copytree(classifier, tmp_path / "changed")
        path = tmp_path / "changed/config.json"
        config = json.loads(path.read_text())
        path.write_text(json.dumps(change(config) or config))
        return tmp_path / "changed"

    return call


def check(predicted: Path | str | list[dict], expected: list[dict]) -> list[dict]:
    """Compares predictions with expected probabilities, and returns their rows."""
    predicted = predicted if isinstance(predicted, list) else read(predicted)
    assert len(predicted) == len(expected)
    for one, scores in zip(predicted, expected, strict=True):
        assert one["scores"] == pytest.approx(scores, abs=1e-5)
        assert one["label"] == max(scores, key=scores.get)
        assert one["score"] == one["scores"][one["label"]]
    return [one["input"] for one in predicted]


def test_files_of_every_kind_are_predicted_in_order(classifier, expected, write_rows, tmp_path):
    rows = write_rows("rows.jsonl", [{"text": text} for text in TEXTS])
    plain = tmp_path / "rows.txt"
    plain.write_text("\n".join(TEXTS[:2]) + "\n\n" + "\n".join(TEXTS[2:]))
    table = tmp_path / "rows.csv"
    table.write_text("n,sentence\n" + "".join(f'{i},"{text}"\n' for i, text in enumerate(TEXTS)))
    output = tmp_path / "predictions.jsonl"
    assert predict(classifier, rows, plain, table, "--output", output, "--max-tokens-per-batch", 9) == 0
    texts = [{"text": text} for text in TEXTS]
    numbered = [{"n": str(i), "sentence": text} for i, text in enumerate(TEXTS)]
    found = read(output)
    assert [one.get("line") for one in found] == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6, 2, 3, 4, 5, 6]
    assert found.pop(7) == {"error": "empty text", "source": str(plain), "line": 3, "input": {"text": ""}}
    assert [one["source"] for one in found] == [str(name) for name in (rows, plain, table) for _ in TEXTS]
    assert check(found, expected * 3) == [*texts, *texts, *numbered]


@pytest.mark.parametrize("as_json", [False, True])
def test_every_line_of_standard_input_has_one_line_of_output(
    classifier, expected, type_in, monkeypatch, capsys, as_json
):
    monkeypatch.setattr("mybert.finetuning.evaluation.predict._ROWS_AT_ONCE", 2)
    texts = [json.dumps({"text": text}) for text in TEXTS] if as_json else TEXTS
    lines = ["", *texts[:2], " \t", "", *texts[2:], ""]
    type_in("".join(f"{line}\n" for line in lines))
    assert predict(classifier, "-") == 0
    captured = capsys.readouterr()
    found = read(captured.out)
    assert [one["line"] for one in found] == list(range(1, 10))
    assert [one.get("error") for one in found] == [None if line.strip() else "empty text" for line in lines]
    assert check([one for one in found if "error" not in one], expected) == [{"text": text} for text in TEXTS]
    assert "predictions: 5, errors: 4" in captured.err


AWKWARD = [
    {"text": 'say "good", film\nnow', "id": "007", "tags": ["a", None], "n": 1, "x": 1.5},
    {"text": "a\tgood\rbook", "id": "é", "tags": [], "n": 2**62, "x": -1e-9, "mixed": "7"},
    {"text": "no", "id": "x", "tags": ["b"], "n": 3, "x": 2.0, "mixed": 7, "nested": {"a": {}}},
]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet"])
def test_pandas_reads_a_table_of_predictions_back_with_equal_values(classifier, write_rows, tmp_path, suffix):
    rows = write_rows("rows.jsonl", [*AWKWARD, {"text": ""}])
    for kind in ("jsonl", suffix):
        assert predict(classifier, rows, "--output", tmp_path / f"p.{kind}", "--errors", "skip") == 0
    expected = read(tmp_path / "p.jsonl")
    path = tmp_path / f"p.{suffix}"
    text = {"input.id": str, "input.text": str}
    if suffix == "parquet":
        table = pd.read_parquet(path)
    else:
        table = pd.read_csv(path, sep="\t" if suffix == "tsv" else ",", dtype=text, float_precision="round_trip")
    assert len(table) == 4
    for one, (_, row) in zip(expected[:3], table.iterrows(), strict=False):
        assert (row["label"], row["line"]) == (one["label"], one["line"])
        assert row["score"] == one["score"] and pd.isna(row["error"])
        assert row["input.text"] == one["input"]["text"] and row["input.id"] == one["input"]["id"]
        assert (row["input.n"], row["input.x"]) == (one["input"]["n"], one["input"]["x"])
        for name, value in (("scores", one["scores"]), ("input.tags", one["input"]["tags"])):
            found = row[name]
            assert (json.loads(found) if isinstance(found, str) else type(value)(found)) == value
    assert json.loads(table["input.nested"][2]) == {"a": {}}
    assert table["error"][3] == "the text is empty" and pd.isna(table["label"][3])


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_no_cell_of_a_table_is_a_formula_if_it_is_to_be_safe(classifier, write_rows, tmp_path, capsys, suffix):
    formulas = [
        "=1+1",
        "+cmd|' /C calc'!A0",
        "-2+3",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        "\n=1",
        "\uff1d1",
        "-",
        '=HYPERLINK("x")',
    ]
    harmless = ["-1.5", "+3", "-2e-3", "a=1", "'=1", "1-1", "a\t=1", " a", "{=1}"]
    texts = [*formulas, *harmless]
    rows = write_rows("rows.jsonl", [{"text": f"film {i}", "note": text} for i, text in enumerate(texts)])
    plain, safe = tmp_path / f"plain.{suffix}", tmp_path / f"safe.{suffix}"
    assert predict(classifier, rows, "--output", plain) == 0
    assert f"{len(formulas)} cells begin with =" in capsys.readouterr().err
    assert predict(classifier, rows, "--output", safe, "--spreadsheet-safe") == 0
    assert "cells begin" not in capsys.readouterr().err
    notes = []
    for path in (plain, safe):
        with path.open(newline="", encoding="utf-8") as file:
            table = list(csv.DictReader(file, delimiter="\t" if suffix == "tsv" else ","))
        notes.append([row["input.note"] for row in table])
        assert all(row["input.text"] == f"film {i}" for i, row in enumerate(table))
    assert notes == [texts, [*(f"'{text}" for text in formulas), *harmless]]
    assert predict(classifier, rows, "--output", tmp_path / "p.jsonl", "--spreadsheet-safe") == 2
    assert "--spreadsheet-safe has no effect" in capsys.readouterr().err


def test_a_predictor_gives_what_the_command_gives_for_every_kind_of_row(classifier, write_rows, capsys):
    assert predict(classifier, write_rows("rows.jsonl", [{"text": text, "id": 1} for text in TEXTS])) == 0
    lines = read(capsys.readouterr().out)
    predicted = [{name: one[name] for name in ("label", "score", "scores")} for one in lines]
    predictor = Predictor(classifier, device="cpu")
    records = [{"text": text, "id": 1} for text in TEXTS]
    for rows in (TEXTS, records, Dataset.from_list(records), pd.DataFrame(records), pd.Series(TEXTS), iter(TEXTS)):
        assert predictor(rows) == predicted
    assert [predictor(text) for text in TEXTS] == [predictor((text,)) for text in TEXTS]
    assert predictor(TEXTS[1])["scores"] == pytest.approx(predicted[1]["scores"], abs=1e-6)
    assert predictor([]) == [] and predictor(" ") == {"error": "empty text"}
    assert predictor(pd.DataFrame({"text": ["a", None]}), errors="skip")[1] == {"error": "the text is missing"}
    with pytest.raises(UserError, match=r"2 of 3 rows .*: row 2: the text is missing; row 3: .* int"):
        predictor(["a", {"text": None}, 7])
    assert [*map(len, predictor(["a", {"text": None}, "\ud800"], errors="skip"))] == [3, 1, 1]
    with pytest.raises(UserError, match=r"errors: expected strict or skip, found 'strct'"):
        predictor(["a", {"text": None}], errors="strct")
    with pytest.raises(UserError, match=r"2 values; the model reads 1: text"):
        predictor(("a", "b"))


def test_a_predictor_reads_pairs(finetune, write_rows, tmp_path):
    rows = [{"text": word, "text_pair": noun, "label": word} for word in ("good", "bad") for noun in ("film", "book")]
    assert finetune("text-classification", "--train", write_rows("train.jsonl", rows), "--max-steps", 2) == 0
    predictor = Predictor(tmp_path / "out", device="cpu")
    pairs = [("good", "film"), ("bad", "book")]
    named = [{"text": text, "text_pair": pair} for text, pair in pairs]
    assert predictor(pairs) == predictor(named)
    assert predictor(pairs[0]) == predictor(named[0])
    with pytest.raises(UserError, match="text_pair"):
        predictor("good")


@pytest.fixture(scope="module")
def onnx_folder(classifier, tmp_path_factory):
    pytest.importorskip("onnxruntime")
    folder = tmp_path_factory.mktemp("onnx") / "model"
    assert cli.main(["export", str(classifier), "--to", "onnx", "--output", str(folder)]) == 0
    return folder


def test_an_onnx_folder_is_predicted_and_evaluated_as_the_checkpoint(onnx_folder, expected, write_rows, tmp_path):
    rows = write_rows("rows.jsonl", [{"text": text, "label": "good"} for text in TEXTS])
    assert predict(onnx_folder, rows, "--output", tmp_path / "predictions.jsonl") == 0
    check(tmp_path / "predictions.jsonl", expected)
    assert [one["scores"] for one in Predictor(onnx_folder)(TEXTS)] == [pytest.approx(e, abs=1e-5) for e in expected]
    assert evaluate(onnx_folder, rows, tmp_path / "scores") == 0
    check(tmp_path / "scores/predictions.jsonl", expected)


@pytest.mark.parametrize(
    ("head", "rows"),
    [
        (MyBertForTokenClassification, ["the good film", {"tokens": ["a", "very", "dull", "book"]}]),
        (MyBertForQuestionAnswering, [("the film", "a very good film"), ("no", "a dull book " * 20)]),
        (MyBertForMultipleChoice, [("the film", ["good", "bad book"]), ("a", ["no", "a very dull song"])]),
    ],
)
def test_an_onnx_folder_of_every_head_predicts_as_the_checkpoint(tiny_checkpoint, tmp_path, head, rows):
    pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    head.from_pretrained(tiny_checkpoint).save_pretrained(tmp_path / "model")
    MyBertTokenizer.from_pretrained(tiny_checkpoint).save_pretrained(tmp_path / "model")
    assert cli.main(["export", str(tmp_path / "model"), "--to", "onnx", "--output", str(tmp_path / "onnx")]) == 0
    found, expected = (flat(Predictor(tmp_path / name, device="cpu")(rows)) for name in ("onnx", "model"))
    assert len(found) > 4 and found == [
        pytest.approx(value, abs=1e-4) if isinstance(value, float) else value for value in expected
    ]


def flat(value) -> list:
    """The values in nested lists and dictionaries, in order."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return [value] if items is None else [one for item in items for one in flat(item)]


def test_an_onnx_folder_that_cannot_be_used_is_refused(onnx_folder, write_rows, tmp_path, monkeypatch, capsys):
    rows = write_rows("rows.jsonl", [{"text": "a"}])
    assert predict(onnx_folder, rows, "--dtype", "bfloat16") == 2
    assert "float32" in capsys.readouterr().err
    shutil.copytree(onnx_folder, tmp_path / "damaged")
    (tmp_path / "damaged/onnx/model.onnx").write_bytes(b"cut off")
    assert predict(tmp_path / "damaged", rows) == 2
    assert "damaged/onnx/model.onnx cannot be read" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert predict(onnx_folder, rows) == 2
    assert "pip install 'mybert[onnx]'" in capsys.readouterr().err


def test_a_predictor_answers_several_threads_at_once(classifier):
    predictor = Predictor(classifier, device="cpu")
    texts = [[text, text * 5] for text in TEXTS * 4]
    alone = [predictor(some) for some in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(predictor, texts)) == alone


def test_bfloat16_predicts_nearly_the_same(classifier, expected, write_rows, tmp_path):
    rows, output = write_rows("rows.jsonl", [{"text": text} for text in TEXTS]), tmp_path / "predictions.jsonl"
    assert predict(classifier, rows, "--output", output, "--dtype", "bfloat16") == 0
    found = [one["scores"]["good"] for one in read(output)]
    exact = [scores["good"] for scores in expected]
    assert found == pytest.approx(exact, abs=0.02) and found != pytest.approx(exact, abs=1e-6)
    assert predict(classifier, rows, "--dtype", "float8") != 0


def test_records_may_differ_in_columns_that_the_task_does_not_use(classifier, expected, type_in, capsys):
    others = [{"label": "good"}, {"id": 2**64 - 1}, {"id": "x", "score": [10**30]}, {"id": {"a": None}}, {}]
    records = [{**other, "text": text} for other, text in zip(others, TEXTS, strict=True)]
    type_in(records)
    assert predict(classifier, "-") == 0
    assert check(capsys.readouterr().out, expected) == records


def test_a_broken_record_of_standard_input_ends_after_the_predictions_before_it(classifier, type_in, capsys):
    type_in([{"text": "a"}, {"id": 7}])
    assert predict(classifier, "-") == 2
    captured = capsys.readouterr()
    assert "line 2: it has no column for 'text' (looked for text," in captured.err.splitlines()[-1]
    assert len(captured.out.splitlines()) == 1


@pytest.mark.parametrize("errors", ["strict", "skip"])
@pytest.mark.parametrize(
    ("columns", "message"),
    [("text=reviw", "has no column 'reviw' (did you mean 'review'?)"), ("txt=review", "--columns txt=review: text")],
)
def test_a_column_that_no_row_has_is_one_error(classifier, write_rows, type_in, capsys, errors, columns, message):
    rows = [{"review": "a good film", "n": 1}, {"review": "a bad film"}]
    words = (classifier, "-", "--columns", columns, "--errors", errors)
    type_in(rows)
    assert predict(*words) == 2
    words = (classifier, write_rows("rows.jsonl", rows), *words[2:])
    assert predict(*words) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "line" not in captured.err
    assert captured.err.count(message) == 2


def test_a_given_column_may_be_missing_in_some_rows(classifier, write_rows, capsys):
    rows = write_rows("rows.jsonl", [{"n": 1}, {"review": "a good film"}])
    assert predict(classifier, rows, "--columns", "text=review", "--errors", "skip") == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["error"].startswith("it has no column 'review'") and second["label"] == "good"


def test_with_errors_skip_every_row_has_an_output_line(classifier, expected, write_rows, tmp_path, capsys):
    rows = [{"text": " "}, *({"text": text} for text in TEXTS), {"text": None}]
    output = tmp_path / "predictions.jsonl"
    words = ("--output", output, "--errors", "skip")
    assert predict(classifier, write_rows("rows.jsonl", rows), write_rows("bad.jsonl", [{"text": ""}]), *words) == 0
    first, *predicted, last, alone = read(output)
    assert check(predicted, expected) == rows[1:-1]
    sources = [one.pop("source") for one in (first, last, alone)]
    assert first == {"error": "the text is empty", "line": 1, "input": rows[0]}
    assert last == {"error": "the text is missing", "line": 7, "input": rows[-1]}
    assert alone == {"error": "the text is empty", "line": 1, "input": {"text": ""}}
    assert sources == [str(tmp_path / name) for name in ("rows.jsonl", "rows.jsonl", "bad.jsonl")]
    assert ": 5, errors: 3" in capsys.readouterr().err


BROKEN = {  # lines that cannot be used, and their errors
    b'{"id": 7}': "it has no column for 'text' (looked for text, ",
    b'{"\\u0000": "a"}': "it has no column for 'text' (looked for text, ",
    b"{}": "it has no column for 'text' (looked for text, ",
    b'{"text": null}': "the text is missing",
    b'{"text": 7}': "expected a text or a list of texts as 'text', found 7",
    b'{"text": 1180591620717411303424}': "found 1180591620717411303424",
    b'{"text": ["a", "b"]}': "the text is ['a', 'b'], not a string",
    b'{"text": ' + b"[" * 60 + b"]" * 60 + b"}": "expected a text or a list of texts as 'text', found [[[",
    b'{"text": "a"': "not JSON (",
    b'{"text": "' + b"9" * 5000 + b'", "n": ' + b"9" * 5000 + b"}": "not JSON (",
    b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}": "not JSON (nested too deeply: more than 100 levels)",
    b'{"text": "a", "text": "b"}': "'text' is given twice",
    b"[1, 2]": "expected a JSON object, found list",
    b"null": "expected a JSON object, found NoneType",
    b'{"text": "\\ud800"}': "is half a surrogate pair, no character",
    b'{"text": "b\xe4d"}': "not UTF-8 (",
}


def test_broken_lines_do_not_change_the_predictions_of_other_lines(classifier, expected, tmp_path, type_in, capsys):
    """Broken lines before, after and between good lines, in a file and in standard input."""
    good = [
        {"text": TEXTS[0], "id": 2**70},
        {"sentence": TEXTS[1], "id": "x"},
        {"id": [1.5, 2**60, {"a": [[]]}], "text": TEXTS[2]},
        {"text": TEXTS[3], "text_pair": None, "label": 1e300},
        {"text": TEXTS[4], "sentence": 7, "": 1, "\0": [], "a\0b": {}},
    ]
    lines = [json.dumps(row).encode() for row in good]
    broken = list(BROKEN)
    for order in (
        broken + lines,
        lines + broken,
        [line for pair in zip(broken, lines, strict=False) for line in pair],
    ):
        path = tmp_path / "rows.jsonl"
        path.write_bytes(b"\n".join(order))
        for name in (path, "-"):
            type_in(b"\n".join(order if name == path or order[0].startswith(b"{") else [b'{"text": "a"}', *order]))
            capsys.readouterr()
            assert predict(classifier, name, "--errors", "skip") == 0
            predicted = read(capsys.readouterr().out)
            assert check([one for one in predicted if "error" not in one], expected) == good
            for line, one in zip(order, predicted, strict=True):
                if line in BROKEN:
                    assert BROKEN[line] in one["error"] and len(one["error"]) < 400
                    assert one["input"] in (parsed(line), line.decode(errors="backslashreplace"))


def parsed(line: bytes) -> dict | None:
    """The line, if it is a JSON object."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


@pytest.mark.parametrize("line", BROKEN)
def test_a_broken_line_of_a_file_is_an_error_with_its_number(classifier, tmp_path, capsys, line):
    (tmp_path / "rows.jsonl").write_bytes(b'{"text": "a"}\n\n' + line)
    assert predict(classifier, tmp_path / "rows.jsonl") == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert BROKEN[line] in error and "--errors skip" in error
    assert f"{tmp_path / 'rows.jsonl'}: 1 of 2 lines cannot be used: line 3: " in error


def test_the_first_line_may_be_broken(finetune, tmp_path, type_in, capsys):
    choice = {"ctx": "the film", "ending0": "good", "ending1": "bad"}
    train = tmp_path / "train.jsonl"
    train.write_text(json.dumps({**choice, "label": 0}) + "\n")
    assert finetune("multiple-choice", "--train", train, "--num-train-epochs", 1) == 0
    other = {"choices": ["dull", "fine"], "context": "a book", "ending0": None}
    type_in(["plain words", choice, {"ctx": "no choices"}, other])
    capsys.readouterr()
    assert predict(tmp_path / "out", "-", "--errors", "skip") == 0
    first, second, third, fourth = read(capsys.readouterr().out)
    assert "JSON lines with context, choices" in first["error"] and first["input"] == "plain words"
    assert second["text"] in ("good", "bad") and second["input"] == choice
    assert "no column for 'choices'" in third["error"]
    assert fourth["text"] in ("dull", "fine") and fourth["input"] == other


def test_each_line_of_standard_input_is_predicted_when_it_arrives(classifier, monkeypatch):
    (read_end, typed), (printed, write_end) = os.pipe(), os.pipe()
    monkeypatch.setattr("sys.stdin", os.fdopen(read_end))
    monkeypatch.setattr("sys.stdout", output := os.fdopen(write_end, "w"))
    with ThreadPoolExecutor(1) as pool, os.fdopen(printed) as lines:
        status = pool.submit(predict, classifier, "-")
        status.add_done_callback(lambda _: output.close())  # so that no line is waited for after an error
        for text, end in ((b"a good film", b"\n"), (b"a dull film", b"\r"), (b"no", b"\r\n"), (b"yes", b"\n")):
            os.write(typed, text + end)
            assert json.loads(lines.readline())["input"] == {"text": text.decode()}
        os.write(typed, b"the end")
        os.close(typed)
        assert json.loads(lines.readline())["input"] == {"text": "the end"}
        assert status.result() == 0


def test_lines_do_not_depend_on_the_blocks_in_which_they_arrive(classifier, monkeypatch):
    content = "\ufeffone\n\r\ntwo\rthree\x0c\x85\u2028\r\r\n".encode() + b"x" * 50 + b"\nlast"
    expected = ["one", "", "two", "three\x0c\x85\u2028", "", "x" * 50, "last"]
    task = Predictor(classifier, device="cpu").task
    for size in (1, 3, 7, 1000):
        stream = io.BytesIO(content)
        stream.read1 = lambda _, size=size, stream=stream: stream.read(size)
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=stream))
        for at_once in (1, 2, 100):
            stream.seek(0)
            found = list(read_lines("-", task, at_once))
            texts = [line.given["text"] for some in found for line in some]
            assert texts == expected and max(map(len, found)) <= at_once


def test_an_output_must_not_be_an_input_or_a_device_and_a_link_is_kept(classifier, write_rows, tmp_path, capsys):
    rows = write_rows("rows.jsonl", [{"text": "a good film"}])
    assert predict(classifier, rows, "--output", rows, "--overwrite") == 2
    assert f"output {rows} is the input {rows}" in capsys.readouterr().err
    assert json.loads(rows.read_text()) == {"text": "a good film"}
    assert predict(classifier, rows, "--output", "/dev/stdout", "--overwrite") == 2
    assert "/dev/stdout" in capsys.readouterr().err
    link, target = tmp_path / "link.jsonl", tmp_path / "target.jsonl"
    link.symlink_to(target)
    assert predict(classifier, rows, "--output", link) == 0
    assert link.is_symlink() and json.loads(target.read_text())["input"] == {"text": "a good film"}


def test_truncated_texts_are_counted(classifier, write_rows, tmp_path, capsys):
    settings = PredictorSettings(model=str(classifier), device="cpu")
    length = load_finetuned(settings).task.options.max_length
    words = {"fits": length - 2, "cut": length - 1}
    rows = write_rows("rows.jsonl", [{"text": "film " * count, "label": "good"} for count in words.values()])
    assert predict(classifier, rows, "--output", tmp_path / "predictions.jsonl") == 0
    assert "predictions.jsonl: 2, rows truncated to --max-length: 1" in capsys.readouterr().err
    assert json.loads((tmp_path / "predictions.jsonl.manifest.json").read_text())["counts"]["cut"] == 1
    assert predict(classifier, rows, "--long-texts", "window") == 0
    assert "cut" not in capsys.readouterr().err
    assert evaluate(classifier, rows, tmp_path / "scores") == 0
    assert ", 1 truncated" in capsys.readouterr().out


def test_logits_that_are_not_finite_are_an_error(classifier, write_rows, tmp_path, capsys):
    model = MyBertForSequenceClassification.from_pretrained(classifier)
    model.classifier.weight.data[0, 0] = torch.nan
    model.save_pretrained(tmp_path / "broken")
    MyBertTokenizer.from_pretrained(classifier).save_pretrained(tmp_path / "broken")
    assert predict(tmp_path / "broken", write_rows("rows.jsonl", [{"text": "a good film"}])) == 2
    assert "logits are NaN or infinite" in capsys.readouterr().err


def test_a_broken_row_or_an_impossible_output_is_named_and_no_file_is_written(
    classifier, write_rows, tmp_path, capsys
):
    output, below = tmp_path / "predictions.jsonl", tmp_path / "rows.jsonl/predictions.jsonl"
    rows, broken = write_rows("rows.jsonl", [{"text": "a"}, {"text": None}]), tmp_path / "broken.txt"
    broken.write_bytes(b"good\nb\xe4d\n")
    for data, place, message in (
        (rows, output, f"{rows}: 1 of 2 lines cannot be used: line 2: the text is missing"),
        (broken, output, f"{broken}: 1 of 2 lines cannot be used: line 2: not UTF-8"),
        ("nowhere.txt", output, "nowhere.txt: there is no such file"),
        (rows, tmp_path, f"output {tmp_path} is a folder; name a file"),
        (rows, below, f"output {below} cannot be created: {rows} is a file"),
        *((rows, tmp_path / name, ".jsonl, .csv, .tsv, .parquet") for name in ("p.xlsx", "p", "p.jsonl.gz")),
    ):
        assert predict(classifier, data, "--output", place) == 2
        assert message in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.txt", "rows.jsonl"]


@pytest.mark.parametrize("text", ["it's great", "a film for 3.50"])
def test_a_text_instead_of_a_file_gets_the_command_that_reads_it(classifier, text, monkeypatch, capsys):
    assert predict(classifier, text) == 2
    error, _, ours = capsys.readouterr().err.strip().partition(' standard input: echo "TEXT" | ')
    assert f"there is no file {text!r}" in error
    assert shlex.split(ours) == ["mybert", "predict", str(classifier), "-"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{text}\n".encode()), encoding="utf-8"))
    assert predict(*shlex.split(ours)[2:]) == 0
    assert read(capsys.readouterr().out)[0]["input"] == {"text": text}
    assert predict(classifier, f"{text} " * 40) == 2
    assert f"there is no file {text!r}"[:-1] in capsys.readouterr().err.splitlines()[-1]


def test_errors_of_the_last_row_are_reported_before_the_first_prediction(classifier, write_rows, tmp_path, capsys):
    good = write_rows("good.jsonl", [{"text": text} for text in TEXTS])
    for broken, message in (
        (write_rows("last.jsonl", [{"text": "a"}, {"text": ""}]), "line 2: the text is empty"),
        (tmp_path / "god.jsonl", f"no such file; did you mean {good}?"),
        (tmp_path / "god.csv", "no such file"),
        (write_rows("none.jsonl", []), "none.jsonl holds no rows"),
    ):
        assert predict(classifier, good, good, broken) == 2
        predicted = capsys.readouterr()
        assert message in predicted.err and not predicted.out


@pytest.mark.parametrize("name", ["pipe.txt", "63"])  # the shell names <(…) by a number
def test_a_pipe_is_read_once(classifier, expected, tmp_path, capsys, name):
    pipe = tmp_path / name
    os.mkfifo(pipe)
    writer = subprocess.Popen(["sh", "-c", f"printf '%s\\n' {shlex.join(TEXTS)} > {pipe}"])
    try:
        assert predict(classifier, pipe, "--output", tmp_path / "predictions.jsonl") == 0
    finally:
        writer.kill()  # which waits for a reader
        writer.wait()
    check(tmp_path / "predictions.jsonl", expected)
    inputs = json.loads((tmp_path / "predictions.jsonl.manifest.json").read_text())["inputs"]
    assert inputs["rows"] == [{"path": str(pipe)}]  # a pipe has no fingerprint
    assert predict(classifier, pipe, pipe) == 2
    assert f"{pipe} can be read only once; name it once" in capsys.readouterr().err
    os.mkfifo(tmp_path / "pipe.csv")
    assert predict(classifier, tmp_path / "pipe.csv") == 2
    assert "pipe.csv is a pipe; name a file" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_all_broken_rows_of_a_file_are_reported_together(classifier, tmp_path, monkeypatch, capsys, suffix):
    monkeypatch.setattr("mybert.finetuning.evaluation.predict._ROWS_AT_ONCE", 3)
    path = tmp_path / f"rows.{suffix}"
    texts = [" " if number in (2, 3, 7) else "a film" for number in range(8)]
    rows = Dataset.from_dict({"text": texts, "number": range(8)})
    rows.to_json(path) if suffix == "jsonl" else rows.to_csv(path, index=False)
    assert predict(classifier, path) == 2
    places = "3, 4, 8" if suffix == "jsonl" else "4, 5, 9"
    predicted = f"3 of 8 lines cannot be used: lines {places}: the text is empty; correct them, or have errors written"
    assert predicted in capsys.readouterr().err
    assert predict(classifier, path, "--errors", "skip") == 0
    captured = capsys.readouterr()
    assert [number for number, one in enumerate(read(captured.out)) if "error" in one] == [2, 3, 7]
    assert "predictions: 5, errors: 3" in captured.err


@pytest.mark.parametrize("suffix", ["jsonl", "json"])
def test_blank_lines_count_in_line_numbers(classifier, tmp_path, capsys, suffix):
    rows = [{"text": text, "label": "good", "day": "2020-01-01"} for text in ("a", " ", "b", "c")]
    path = tmp_path / f"rows.{suffix}"
    path.write_text("\n\n \n".join(map(json.dumps, rows)))
    assert evaluate(classifier, path, tmp_path / "scores", "--errors", "skip") == 0
    assert f"{path}: 1 of 4 lines cannot be used: line 4: the text is empty; left out" in capsys.readouterr().out
    assert [one["input"] for one in read(tmp_path / "scores/predictions.jsonl")] == [rows[0], *rows[2:]]
    assert predict(classifier, path) == 2
    assert "1 of 4 lines cannot be used: line 4: the text is empty" in capsys.readouterr().err


def test_values_of_a_row_are_returned_as_written(classifier, write_rows, tmp_path):
    others = [{"id": 2**53 + 1}, {"id": 1.5, "of": {"id": 10**23}}, {"id": 2, "of": {"id": 1}}, {"id": None}]
    rows = [{"text": "a film", "label": "good", **other} for other in others]
    lines = write_rows("rows.jsonl", rows)
    array = tmp_path / "rows.json"
    with_nan = [{**row, "of": [1, 2.5, math.nan]} for row in rows]  # Python writes NaN, which JSON does not have
    array.write_text(json.dumps(with_nan))
    for path in (lines, array):
        assert evaluate(classifier, path, tmp_path / "scores", "--overwrite") == 0
        assert predict(classifier, path, "--output", tmp_path / "predictions.jsonl", "--overwrite") == 0
        records = json.loads(array.read_text().replace("NaN", "null")) if path == array else rows
        for written in (tmp_path / "scores/predictions.jsonl", tmp_path / "predictions.jsonl"):
            assert [repr(one["input"]) for one in read(written)] == list(map(repr, records))  # 2 == 2.0


def test_lines_with_and_without_a_column_are_predicted_in_two_batches(changed, write_rows, monkeypatch, capsys):
    others = changed(lambda config: {name: config[name] for name in config if name != "finetuned"})
    texts = [{"text": text, **({"text_pair": "no"} if number % 2 else {})} for number, text in enumerate(TEXTS * 4)]
    rows, counts = write_rows("rows.jsonl", texts), []
    computed = TextClassification.features
    monkeypatch.setattr(
        TextClassification, "features", lambda *given, **how: counts.append(len(given[1])) or computed(*given, **how)
    )
    assert predict(others, rows) == 0
    assert counts == [10, 10]
    predicted = read(capsys.readouterr().out)
    assert [one["input"] for one in predicted] == texts
    for number in range(10):  # each text occurs with and without a pair
        assert predicted[number]["score"] != predicted[(number + 5) % 20]["score"]
        assert predicted[number]["score"] == pytest.approx(predicted[number + 10]["score"], abs=1e-6)


def test_a_text_may_begin_with_a_brace(classifier, tmp_path, capsys):
    (tmp_path / "rows.txt").write_text("{smile} hello\na good film\n")
    assert predict(classifier, tmp_path / "rows.txt") == 0
    inputs = [one["input"] for one in read(capsys.readouterr().out)]
    assert inputs == [{"text": "{smile} hello"}, {"text": "a good film"}]


@pytest.mark.parametrize(("names", "labels"), [([0, 1], ["0", "1"]), ([True, False], ["True", "False"])])
def test_labels_of_a_checkpoint_may_be_numbers_and_booleans(changed, write_rows, tmp_path, names, labels):
    others = changed(lambda config: config | {"id2label": dict(enumerate(names)), "label2id": None})
    rows = write_rows("rows.jsonl", [{"text": text, "label": name} for text, name in zip(TEXTS, names, strict=False)])
    assert evaluate(others, rows, tmp_path / "scores") == 0
    assert [list(one["scores"]) for one in read(tmp_path / "scores/predictions.jsonl")] == [labels] * 2


def test_two_labels_with_one_name_are_refused(changed, write_rows, capsys):
    others = changed(lambda config: config | {"id2label": {"0": "1", "1": 1}})
    assert predict(others, write_rows("rows.jsonl", [{"text": "a"}])) == 2
    assert "`id2label` in its config.json has '1' twice; rename one" in capsys.readouterr().err


def test_id2label_defines_the_labels_of_a_checkpoint(changed, expected, write_rows, tmp_path, capsys):
    others = changed(lambda config: config | {"label2id": None})  # as transformers writes if only id2label was set
    rows = write_rows("rows.jsonl", [{"text": text, "label": "good"} for text in TEXTS])
    assert evaluate(others, rows, tmp_path / "scores") == 0
    check(tmp_path / "scores/predictions.jsonl", expected)
    unknown = write_rows("unknown.jsonl", [{"text": "a", "label": "fine"}, {"text": "a", "label": "good"}])
    assert evaluate(others, unknown, tmp_path / "none") == 2
    assert "line 1: the label 'fine' is not among the 2 trained on (bad, good)" in capsys.readouterr().err


def test_evaluation_keeps_columns_and_line_numbers(classifier, write_rows, tmp_path):
    rows = [{"id": i, "review": text, "label": "bad" if i % 2 else "good"} for i, text in enumerate(["", *TEXTS, " "])]
    data, output = write_rows("rows.jsonl", rows), tmp_path / "scores"
    assert evaluate(classifier, data, output, "--errors", "skip", "--columns", "text=review") == 0
    predicted = read(output / "predictions.jsonl")
    assert [one["input"] for one in predicted] == rows[1:-1]
    assert json.loads((output / "results.json").read_text())["rows_left_out"] == 2
    wrong = {one["input"]["id"] + 1 for one in predicted if one["label"] != one["input"]["label"]}
    text = (output / "errors.txt").read_text()
    assert wrong and {int(line.split()[1][:-1]) for line in text.splitlines() if line.startswith("line ")} == wrong


def test_a_table_is_predicted_in_parts(classifier, expected, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("mybert.finetuning.evaluation.predict._ROWS_AT_ONCE", 2)
    rows = [{"text": text, "number": number} for number, text in enumerate(TEXTS)]
    table = tmp_path / "rows.csv"
    Dataset.from_list(rows).to_csv(table, index=False)
    assert predict(classifier, table) == 0
    assert [row["number"] for row in check(capsys.readouterr().out, expected)] == [*"01234"]
    Dataset.from_list([*rows, {"text": " ", "number": 5}]).to_csv(table, index=False)
    assert predict(classifier, table, "--errors", "skip") == 0
    *whole, error = read(capsys.readouterr().out)
    check(whole, expected)
    assert error == {"error": "the text is empty", "line": 7, "input": {"text": " ", "number": "5"}}


def test_the_flag_bf16_of_training_is_answered_with_dtype(tiny_checkpoint, write_rows, capsys):
    assert predict(tiny_checkpoint, write_rows("rows.jsonl", [{"text": "a"}]), "--bf16", "true") == 2
    assert "did you mean '--dtype" in capsys.readouterr().err


def test_a_checkpoint_without_a_head_is_refused(tiny_checkpoint, write_rows, capsys):
    rows = write_rows("rows.jsonl", [{"text": "a"}])
    assert predict(tiny_checkpoint, rows) == 2
    assert "is not fine-tuned (it is BertForPreTraining)" in capsys.readouterr().err
    assert predict(tiny_checkpoint, rows, "--task", "text-classification") == 2
    assert "lacks 2 weights, such as classifier.bias; fine-tune it" in capsys.readouterr().err


@pytest.mark.draws
def test_evaluation_writes_scores_intervals_and_errors(classifier, write_rows, opinions, tmp_path, capsys):
    rows = [*opinions[:8], {"text": "a good film", "label": "bad"}, {"text": "a dull film", "label": "good"}]
    data = write_rows("test.jsonl", rows)
    output = tmp_path / "scores"
    assert evaluate(classifier, data, output) == 0
    found, predicted = json.loads((output / "results.json").read_text()), read(output / "predictions.jsonl")
    assert [one["input"] for one in predicted] == rows
    right = np.array([one["label"] == row["label"] for one, row in zip(predicted, rows, strict=True)])
    assert found["metrics"]["accuracy"] == pytest.approx(right.mean())
    assert found["constant_baselines"]["accuracy"] == 0.5  # equally many of both labels
    assert found["settings"] == read_manifest(output)["settings"]
    low, high = found["intervals_95"]["accuracy"]
    spread = 1.96 * np.sqrt(right.mean() * (1 - right.mean()) / len(right))  # normal approximation
    assert (low, high) == pytest.approx((right.mean() - spread, min(1, right.mean() + spread)), abs=0.11)
    text = (output / "errors.txt").read_text()
    assert "reference \\ predicted" in text
    assert f"{(~right).sum()} of 10 rows are incorrect" in text
    assert "line 9, error" in text
    assert (output / "errors.png").read_bytes().startswith(b"\x89PNG")
    assert (
        "F1 of the positive class 'good'" in capsys.readouterr().out
    )  # the second label, in the order of the configuration
    assert json.loads((output / "manifest.json").read_text())["stage"] == "evaluate"
    assert evaluate(classifier, data, output) == 2
    assert "exists; add --overwrite" in capsys.readouterr().err
    assert evaluate(classifier, data, tmp_path / "none", "--seed", -1) == 2
    assert "--seed: expected 0 or more, found -1" in capsys.readouterr().err


def evaluation(predictions: list, references: list, errors: list, matrix: Matrix | None, **more) -> Evaluation:
    """An evaluation with one score, with an interval and a baseline."""
    worst = {row: [] for row, error in enumerate(errors) if error}
    scores = {"metrics": {"accuracy": 0.9}, "intervals": {"accuracy": (0.8, 1.0)}, "baselines": {"accuracy": 0.5}}
    values = {**scores, "labels": {}, **more, "matrix": matrix, "errors": errors, "worst": worst}
    return Evaluation(
        predictions=predictions, references=references, lengths=[], truncated=[], seconds=1, **{"simple": {}, **values}
    )


@pytest.mark.draws
def test_labels_of_any_characters_are_drawn_printed_and_written_as_they_are(tmp_path, capsys, recwarn):
    names = ["$\\frac{$", "[red]:joy:", "a/b\tc", "<é & 好>"]
    print_table("Each label", [(name, 1) for name in names])
    assert "[red]:joy:" in capsys.readouterr().out
    found = evaluation([{"label": names[0]}] * 4, names, [0.0, 1.0, 1.0, 1.0], Matrix(names, np.eye(4, dtype=int)))
    draw_errors(tmp_path / "errors.png", found)
    assert (tmp_path / "errors.png").read_bytes().startswith(b"\x89PNG") and not recwarn.list
    text = errors_of(tmp_path, found, text=names, label=names)
    assert "  label: [red]:joy:\n  predicted: {'label': '$" in text
    assert text.count("[red]:joy:") == 4 and "<é & 好>" in text


def errors_of(tmp_path, found: Evaluation, **columns: list[str]) -> str:
    """errors.txt of an evaluation of rows with these columns."""
    rows = Dataset.from_dict(columns)
    write_errors(tmp_path / "errors.txt", Split("rows.jsonl", rows, lambda: rows, range(len(rows))), found)
    return (tmp_path / "errors.txt").read_text(encoding="utf-8")


def drawn(tmp_path, monkeypatch, found: Evaluation) -> list[Axes]:
    """The axes of errors.png, without the colour bar."""
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    draw_errors(tmp_path / "errors.png", found)
    return [axis for axis in figures[0].axes if axis.get_label() != "<colorbar>"]


def test_pictures_depend_on_the_task_and_show_the_best_constant_prediction_dashed(tmp_path, monkeypatch):
    labels = {"grain": LabelScores(8, 4, 3, 0.75, 0.375, 0.5), "wheat": LabelScores(2, 2, 1, 0.5, 0.5, 0.5)}
    several = evaluation([{"labels": []}], [["grain"]], [1.0], None, labels=labels)
    left, right = drawn(tmp_path, monkeypatch, several)
    assert [bar.get_width() for bar in left.patches] == [0.75, 0.5, 0.375, 0.5]  # precision, then recall
    dashed = [list(line.get_xdata()) for line in right.lines if line.get_linestyle() == "--"]
    assert dashed == [[0.5, 0.5]] and [label.get_text() for label in right.get_yticklabels()] == ["accuracy"]
    table = [line.split() for line in errors_of(tmp_path, several, text=["a"]).splitlines() if "grain" in line]
    assert [cell for cell in table[0] if cell != "│"] == ["grain", "8", "4", "3", "0.75", "0.375", "0.5"]
    numbers = evaluation([{"score": 2.5}, {"score": 1.0}], [2.0, 1.5], [0.5, 0.5], None)
    left, _ = drawn(tmp_path, monkeypatch, numbers)
    assert left.collections[0].get_offsets().tolist() == [[2.0, 2.5], [1.5, 1.0]]
    assert [line.get_linestyle() for line in left.lines] == ["-", "--"]
    left, _ = drawn(tmp_path, monkeypatch, evaluation([{"answer": "a"}] * 3, [["b"]] * 3, [1.0, 0.0, 1.0], None))
    assert sum(bar.get_height() for bar in left.patches) == 3


def test_a_label_that_no_installed_font_can_draw_is_numbered(tmp_path, monkeypatch):
    """It would be a row of boxes."""
    characters = [chr(number) for number in range(0x400, 0x30000) if chr(number).isprintable()]
    usual = get_font(findfont(FontProperties()))
    lacking = [character for character in characters if not usual.get_char_index(ord(character))]
    (stix,) = {font.fname for font in fontManager.ttflist if Path(font.fname).name == "STIXGeneral.ttf"}
    other = next(one for one in lacking if get_font(stix).get_char_index(ord(one)))
    entry = next(font for font in fontManager.ttflist if font.fname == stix)
    boxes = [dataclasses.replace(entry, name=name) for name in (".LastResort", "Last Resort High-Efficiency")]
    monkeypatch.setattr(fontManager, "ttflist", [*boxes, entry])
    nowhere = next(one for one in lacking if not get_font(stix).get_char_index(ord(one)))
    names = ["good", f"{other}\tb", f"bad {nowhere}"]
    found = evaluation([{"label": "good"}] * 3, names, [0.0] * 3, Matrix(names, np.eye(3, dtype=int)))
    left, _ = drawn(tmp_path, monkeypatch, found)
    shown = [label.get_text() for label in left.get_yticklabels()]
    assert shown == [label.get_text() for label in left.get_xticklabels()] == ["good", f"{other} b", "label 3"]
    assert left.get_yticklabels()[0].get_fontfamily() == [*rcParams["font.family"], "STIXGeneral"]
    labels = {name: LabelScores(8, 4, 3, 0.75, 0.375, 0.5) for name in names}
    left, _ = drawn(tmp_path, monkeypatch, evaluation([{"labels": []}], [["good"]], [1.0], None, labels=labels))
    assert [label.get_text() for label in left.get_yticklabels()] == ["good (8)", f"{other} b (8)", "label 3 (8)"]


def test_long_labels_leave_room_for_the_picture(tmp_path, monkeypatch):
    names = ["a sentence as a label " * 10, "b"]
    found = evaluation([{"label": "b"}], names[1:], [0.0], Matrix(names, np.eye(2, dtype=int)))
    left, _ = drawn(tmp_path, monkeypatch, found)
    assert [label.get_text() for label in left.get_yticklabels()] == ["a sentence as a label a sente…", "b"]


def test_batches_contain_every_item_once_within_the_limit():
    sizes = np.random.default_rng(0).integers(1, 30, size=100).tolist()
    found = list(batches(range(100), sizes.__getitem__, 64))
    assert sorted(number for batch in found for number in batch) == list(range(100))
    assert all(sum(sizes[number] for number in batch) <= 64 for batch in found)
    assert len(found) < 40
    assert list(batches([100, 1], int, 64)) == [[100], [1]]
    assert list(batches([40, *[1] * 9], int, 64)) == [[40, 1, 1], [1] * 7]  # at most twice the limit with padding


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_length": "128"}, "has max_length = '128'"),
        ({"task": ["text-classification"]}, "has task = ['text-classification']"),
        ({"columns": "text=body"}, "has columns = 'text=body'"),
        ({"max_length": 2}, "--max-length: expected 8 or more, found 2"),
    ],
)
def test_wrong_values_stored_in_a_checkpoint_are_named(changed, write_rows, capsys, values, message):
    odd = changed(lambda config: config["finetuned"].update(values))
    assert predict(odd, write_rows("rows.jsonl", [{"text": "a good film"}])) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_overwrite_replaces_predictions_only(classifier, write_rows, tmp_path, capsys):
    rows, output = write_rows("rows.jsonl", [{"text": "a good film"}]), tmp_path / "predictions.jsonl"
    mine = tmp_path / "mine.jsonl"
    mine.write_text("keep me")
    assert [predict(classifier, rows, "--output", output, *more) for more in ((), ("--overwrite",))] == [0, 0]
    manifest = json.loads((tmp_path / "predictions.jsonl.manifest.json").read_text())
    assert manifest["counts"] == {"predictions": 1, "errors": 0, "cut": 0}
    assert predict(classifier, rows, "--output", mine, "--overwrite") == 2
    assert f"{mine} was not made by mybert" in capsys.readouterr().err
    assert mine.read_text() == "keep me"


def test_json_after_a_broken_first_line_is_an_error(classifier, tmp_path, capsys):
    cut = tmp_path / "tail.txt"  # as `tail -c` leaves it
    cut.write_text('ext": "cut off"}\n{"text": "a good film"}\n')
    assert predict(classifier, cut) == 2
    assert "line 2: a JSON object among texts" in capsys.readouterr().err
    assert predict(classifier, cut, "--errors", "skip") == 0
    predicted = read(capsys.readouterr().out)
    assert "label" in predicted[0] and "a JSON object among texts" in predicted[1]["error"]


def test_a_confusion_matrix_has_whole_names_and_counts(tmp_path):
    names = [f"label number {i}" for i in range(20)]
    counts = np.arange(400).reshape(20, 20) * 1037
    text = errors_of(tmp_path, evaluation([{"label": "x"}], ["y"], [1.0], Matrix(names, counts)), text=["a"])
    lines = [line.replace("┃", "│").split("│") for line in text.splitlines()]
    cells = [[cell.strip() for cell in line[1:-1]] for line in lines if len(line) > 2]
    assert cells[0][1:] == names
    assert cells[1:] == [[name, *map(str, row)] for name, row in zip(names, counts.tolist(), strict=True)]


def test_the_most_frequent_confusions_replace_a_large_matrix(tmp_path):
    names = [f"label{i}" for i in range(1500)]
    counts = np.eye(1500, dtype=int)
    counts[7, 1400], counts[3, 2] = 5, 9
    text = errors_of(tmp_path, evaluation([{"label": "x"}], ["y"], [1.0], Matrix(names, counts)), text=[":smile:"])
    listed = [line.split() for line in text.splitlines() if "label" in line and "│" in line]
    assert [[word for word in line if word != "│"] for line in listed] == [
        ["label3", "label2", "9"],
        ["label7", "label1400", "5"],
    ]
    assert "text: :smile:" in text
