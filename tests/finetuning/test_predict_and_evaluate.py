"""`mybert predict`, `mybert evaluate` and `Predictor` with a classifier of the tiny checkpoint."""

import csv
import io
import json
import math
import os
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import Dataset
from json_files import change_json
from json_files import read_lines as read
from safetensors.torch import load_file, save_file
from scipy.special import softmax
from sentence_transformers import CrossEncoder

from modeling_mybert import MyBertForSequenceClassification
from mybert import cli
from mybert.inference.batches import batches
from mybert.inference.checkpoint_tokenizer import trained_tokens
from mybert.inference.predictor import Predictor
from mybert.inference.task_checkpoint import load_config, load_finetuned
from mybert.tasks.lines import read_lines
from mybert.tasks.settings import PredictorSettings
from mybert.tasks.text_classification import TextClassification
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
    """A function that sets entries of the configuration of a copy of the classifier, and returns its folder."""

    def call(**entries) -> Path:
        folder = shutil.copytree(classifier, tmp_path / "changed")
        change_json(folder / "config.json", **entries)
        return folder

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
    monkeypatch.setattr("mybert.inference.predict._ROWS_AT_ONCE", 2)
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
    formulas = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1", "-", '=H("x")']
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


def test_a_predictor_reads_every_kind_of_row(classifier):
    predictor = Predictor(classifier, device="cpu")
    records, predicted = [{"text": text, "id": 1} for text in TEXTS], predictor(TEXTS)
    for rows in (records, Dataset.from_list(records), pd.DataFrame(records), pd.Series(TEXTS), iter(TEXTS)):
        assert predictor(rows) == predicted
    assert [predictor(text) for text in TEXTS] == [predictor((text,)) for text in TEXTS]
    assert predictor(TEXTS[1])["scores"] == pytest.approx(predicted[1]["scores"], abs=1e-6)
    assert predictor([]) == [] and predictor(" ") == {"error": "empty text"}
    assert predictor(pd.DataFrame({"text": ["a", None]}), errors="skip")[1] == {"error": "the text is missing"}
    assert [*map(len, predictor(["a", {"text": None}, "\ud800"], errors="skip"))] == [3, 1, 1]


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


def test_a_broken_record_of_standard_input_ends_after_the_predictions_before_it(classifier, type_in, capsys):
    type_in([{"text": "a"}, {"id": 7}])
    assert predict(classifier, "-") == 2
    captured = capsys.readouterr()
    assert "line 2: it has no column for 'text'" in captured.err.splitlines()[-1]
    assert len(captured.out.splitlines()) == 1


def test_a_given_column_may_be_missing_in_some_rows(classifier, write_rows, capsys):
    rows = write_rows("rows.jsonl", [{"n": 1}, {"review": "a good film"}])
    assert predict(classifier, rows, "--columns", "text=review", "--errors", "skip") == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["error"].startswith("it has no column 'review'") and second["label"] == "good"


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
    b"[1, 2]": "not an object (found list)",
    b"null": "not an object (found NoneType)",
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


def test_the_first_line_may_be_broken(models, type_in, capsys):
    choice = {"ctx": "the film", "ending0": "good", "ending1": "bad"}
    other = {"choices": ["dull", "fine"], "context": "a book", "ending0": None}
    type_in(["plain words", choice, {"ctx": "no choices"}, other])
    assert predict(models("chooser"), "-", "--errors", "skip") == 0
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


def test_truncated_texts_are_counted(classifier, write_rows, tmp_path, capsys):
    settings = PredictorSettings(model=str(classifier), device="cpu")
    length = load_finetuned(settings).task.options.max_length
    words = {"fits": length - 2, "cut": length - 1}
    rows = write_rows("rows.jsonl", [{"text": "film " * count, "label": "good"} for count in words.values()])
    assert predict(classifier, rows, "--output", tmp_path / "predictions.jsonl") == 0
    assert "predictions: 2, rows truncated to --max-length: 1" in capsys.readouterr().err
    assert json.loads((tmp_path / "predictions.jsonl.manifest.json").read_text())["counts"]["cut"] == 1
    assert predict(classifier, rows, "--long-texts", "window") == 0
    assert "truncated" not in capsys.readouterr().err
    assert evaluate(classifier, rows, tmp_path / "scores") == 0
    assert ", 1 truncated" in capsys.readouterr().out


def test_a_text_instead_of_a_file_gets_the_command_that_reads_it(classifier, monkeypatch, type_in, capsys):
    text = "it's for 3.50"
    assert predict(classifier, text) == 2
    error, _, ours = capsys.readouterr().err.strip().partition(' standard input: echo "TEXT" | ')
    assert f"there is no file {text!r}" in error
    assert shlex.split(ours) == ["mybert", "predict", str(classifier), "-"]
    type_in(f"{text}\n")
    assert predict(*shlex.split(ours)[2:]) == 0
    assert read(capsys.readouterr().out)[0]["input"] == {"text": text}
    assert predict(classifier, f"{text} " * 40) == 2
    assert f"there is no file {text!r}"[:-1] in capsys.readouterr().err.splitlines()[-1]


def test_a_pipe_is_read_once(classifier, expected, tmp_path):
    pipe = tmp_path / "63"  # the shell names <(…) by a number
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


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_all_broken_rows_of_a_file_are_reported_together(classifier, tmp_path, monkeypatch, capsys, suffix):
    monkeypatch.setattr("mybert.inference.predict._ROWS_AT_ONCE", 3)
    path = tmp_path / f"rows.{suffix}"
    texts = [" " if number in (2, 3, 7) else "a film" for number in range(8)]
    rows = Dataset.from_dict({"text": texts, "number": range(8)})
    rows.to_json(path) if suffix == "jsonl" else rows.to_csv(path, index=False)
    if suffix == "jsonl":  # blank lines count
        path.write_text("\n" + path.read_text())
    assert predict(classifier, path) == 2
    captured = capsys.readouterr()
    assert (
        "3 of 8 lines cannot be used: lines 4, 5, 9: the text is empty; correct them, or go on without" in captured.err
    )
    assert not captured.out, "nothing is predicted before"
    assert predict(classifier, path, "--errors", "skip") == 0
    captured = capsys.readouterr()
    found = read(captured.out)
    assert [number for number, one in enumerate(found) if "error" in one] == [2, 3, 7]
    assert found[2] == {
        "error": "the text is empty",
        "line": 4,
        "input": {"text": " ", "number": found[2]["input"]["number"]},
    }
    assert "predictions: 5, errors: 3" in captured.err


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
    others = changed(finetuned=None)
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


def test_a_text_may_begin_with_a_brace_and_json_after_a_broken_first_line_is_an_error(classifier, tmp_path, capsys):
    (tmp_path / "rows.txt").write_text("{smile} hello\na good film\n")
    assert predict(classifier, tmp_path / "rows.txt") == 0
    inputs = [one["input"] for one in read(capsys.readouterr().out)]
    assert inputs == [{"text": "{smile} hello"}, {"text": "a good film"}]
    cut = tmp_path / "tail.txt"  # as `tail -c` leaves it
    cut.write_text('ext": "cut off"}\n{"text": "a good film"}\n')
    assert predict(classifier, cut, "--errors", "skip") == 0
    predicted = read(capsys.readouterr().out)
    assert "label" in predicted[0] and "a JSON object among texts" in predicted[1]["error"]


@pytest.mark.parametrize("names", [[0, 1], [True, False], ["bad", "good"]])
def test_id2label_defines_the_labels_of_a_checkpoint_also_numbers_and_booleans(
    changed, expected, write_rows, tmp_path, names
):
    others = changed(id2label=dict(enumerate(names)), label2id=None)
    rows = write_rows("rows.jsonl", [{"text": text, "label": names[0]} for text in TEXTS])
    assert evaluate(others, rows, tmp_path / "scores") == 0
    renamed = [dict(zip(map(str, names), one.values(), strict=True)) for one in expected]
    check(tmp_path / "scores/predictions.jsonl", renamed)


def test_evaluation_keeps_columns_and_line_numbers(classifier, write_rows, tmp_path, capsys):
    rows = [{"id": i, "review": text, "label": "bad" if i % 2 else "good"} for i, text in enumerate(["", *TEXTS, " "])]
    data, output = write_rows("rows.jsonl", rows), tmp_path / "scores"
    assert evaluate(classifier, data, output, "--errors", "skip", "--columns", "text=review") == 0
    assert "F1 of 'good'" in capsys.readouterr().out  # the second label of the configuration
    predicted = read(output / "predictions.jsonl")
    assert [one["input"] for one in predicted] == rows[1:-1]
    assert json.loads((output / "results.json").read_text())["rows_left_out"] == 2
    wrong = {one["input"]["id"] + 1 for one in predicted if one["label"] != one["input"]["label"]}
    text = (output / "errors.txt").read_text()
    assert wrong and {int(line.split()[1][:-1]) for line in text.splitlines() if line.startswith("line ")} == wrong


def test_batches_contain_every_item_once_within_the_limit():
    sizes = np.random.default_rng(0).integers(1, 30, size=100).tolist()
    found = list(batches(range(100), sizes.__getitem__, 64))
    assert sorted(number for batch in found for number in batch) == list(range(100))
    assert all(sum(sizes[number] for number in batch) <= 64 for batch in found)
    assert len(found) < 40
    assert list(batches([100, 1], int, 64)) == [[100], [1]]
    assert list(batches([40, *[1] * 9], int, 64)) == [[40, 1, 1], [1] * 7]  # at most twice the limit with padding


@pytest.mark.parametrize(("given", "length"), [(16.0, 16), (1e30, 64), (None, 64)])
def test_the_length_of_a_tokenizer_is_read_if_it_is_one(changed, given, length):
    odd = changed()
    change_json(odd / "tokenizer_config.json", model_max_length=given)
    assert repr(trained_tokens(*load_config(str(odd)))) == repr(length)


def test_a_configuration_that_asks_for_tuples_and_all_states_predicts_the_same(changed, expected):
    odd = changed(return_dict=False, output_attentions=True)
    found = [list(one["scores"].values()) for one in Predictor(str(odd), device="cpu")(TEXTS)]
    assert np.allclose(found, [list(one.values()) for one in expected], atol=1e-6)


def test_weights_that_bert_lacks_in_what_it_does_not_compute_are_ignored(changed):
    odd = changed()
    names = ("bert.embeddings.position_ids", "cls.predictions.bias", "bert.encoder.layer.9.output.dense.bias")
    state = load_file(odd / "model.safetensors") | {name: torch.ones(1) for name in names}
    save_file(state, odd / "model.safetensors", {"format": "pt"})
    assert Predictor(str(odd), device="cpu")("a good film")["label"]


@pytest.mark.parametrize("place", ["config_sentence_transformers.json", "sentence_transformers", "sbert_ce"])
@pytest.mark.parametrize("activation", ["activation.Sigmoid", "activation.Tanh", "linear.Identity", None])
def test_the_score_of_a_cross_encoder_is_that_of_sentence_transformers(models, tmp_path, place, activation):
    folder, name = tmp_path / "cross_encoder", activation and f"torch.nn.modules.{activation}"
    shutil.copytree(models("regression"), folder)
    change_json(folder / "config.json", problem_type=None)
    if place == "config_sentence_transformers.json":
        CrossEncoder(str(folder), device="cpu").save_pretrained(str(folder))
        change_json(folder / place, activation_fn=name)
    elif name and place == "sentence_transformers":
        change_json(folder / "config.json", sentence_transformers={"activation_fn": name})
    elif name:
        change_json(folder / "config.json", sbert_ce_default_activation_function=name)
    pairs = [("who is bert", "bert sings in rome"), ("the sea", "a very dull film")]
    scores = [one["score"] for one in Predictor(str(folder), device="cpu")(pairs)]
    assert np.allclose(scores, CrossEncoder(str(folder), device="cpu").predict(pairs), atol=1e-6)


@pytest.mark.parametrize("activation", ["activation.Sigmoid", "linear.Identity", "activation.Softmax", None])
def test_scores_of_a_cross_encoder_with_labels_are_a_sigmoid_if_it_names_one_else_a_softmax(
    models, tmp_path, activation
):
    folder = tmp_path / "cross_encoder"
    shutil.copytree(models("classifier"), folder)
    named = {"sentence_transformers": {"activation_fn": f"torch.nn.modules.{activation}"}} if activation else {}
    change_json(folder / "config.json", problem_type=None, finetuned={"inputs": ["text", "text_pair"]}, **named)
    pairs = [("who is bert", "bert sings in rome"), ("the sea", "a very dull film")]
    found = Predictor(str(folder), device="cpu")(pairs)
    if activation == "activation.Sigmoid":
        expected = CrossEncoder(str(folder), device="cpu").predict(pairs)
    else:
        expected = CrossEncoder(str(folder), device="cpu").predict(
            pairs, apply_softmax=True, activation_fn=torch.nn.Identity()
        )
    assert expected.shape[1] > 2
    assert np.allclose([list(one["scores"].values()) for one in found], expected, atol=1e-6)
    assert [one["score"] for one in found] == [max(one["scores"].values()) for one in found]
    assert [list(one["scores"]).index(one["label"]) for one in found] == expected.argmax(1).tolist()


EVERY_TASK = pytest.mark.parametrize(
    ("head", "row"),
    [
        ("reader", {"question": "who sings", "context": "ann sings in rome"}),
        ("chooser", {"context": "the sea", "choices": ["is dull", "sings"]}),
        ("tagger", {"tokens": ["ann", "sings"]}),
        ("pairs", {"text": "who is bert", "text_pair": "bert sings"}),
    ],
)


@EVERY_TASK
def test_a_tokenizer_that_pads_on_the_left_gives_the_same_predictions(models, tmp_path, head, row):
    folder = shutil.copytree(models(head), tmp_path / head)
    change_json(folder / "tokenizer_config.json", padding_side="left")
    longer = {name: value + value for name, value in row.items()}
    left, right = (Predictor(str(name), device="cpu")([row, longer]) for name in (folder, models(head)))
    assert repr(left) == repr(right)


@EVERY_TASK
def test_every_task_reads_a_model_with_one_segment_type(models, tmp_path, head, row):
    table = "bert.embeddings.token_type_embeddings.weight"
    for types in (1, 2):
        folder = shutil.copytree(models(head), tmp_path / str(types))
        state = load_file(folder / "model.safetensors")
        same = state[table][:1].repeat(types, 1)
        save_file(state | {table: same}, folder / "model.safetensors", {"format": "pt"})
        change_json(folder / "config.json", type_vocab_size=types)
    one, two = (Predictor(str(tmp_path / str(types)), device="cpu")([row]) for types in (1, 2))
    assert repr(one) == repr(two)
