"""Every task: a run, its folder and scores, the same predictions in every form of rows, and rows that are refused."""

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
        assert files == {"results.json", "predictions.jsonl", "errors.txt", "errors.png", "analysis.json"}
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


TEXT, PAIR = {"text": "a good film", "label": "good"}, {"premise": "a film", "hypothesis": "a book", "label": "yes"}
SEVERAL, NUMBER = {"text": "a film", "label": ["good", "new"]}, {"text": "a film", "label": 2.5}
TAGS, SPANS = {"tokens": ["a", "b"], "tags": ["B-PER", "O"]}, {"text": "Ada met Bo Lee.", "spans": [[0, 3, "PER"]]}
ANSWER = {"question": "who", "context": "the good film", "answers": {"text": ["good film"], "answer_start": [4]}}
CHOICE = {"context": "the film", "choices": ["one", "two"], "label": "A"}
REFUSED = {  # a good row, what is wrong in another one, and words of the message
    "text-classification": [
        (TEXT, {"text": " "}, "the text is empty"),
        (TEXT, {"text": ["b"]}, "the text is ['b'], not a string"),
        (TEXT, {"label": None}, "the label is missing"),
        (TEXT, {"label": " "}, "the label is missing"),
        (PAIR, {"hypothesis": None}, "the text_pair is missing"),
        (SEVERAL, {"label": "good"}, "the labels 'good' are not a list"),
        (NUMBER, {"label": 1e39}, "the label 1e+39 is too large for float32"),
        *((SEVERAL | {"label": "['a']"}, {"label": label}, label) for label in ("['a', b]", "['a'", "[a]", "[nan]")),
    ],
    "token-classification": [
        (TAGS, {"tags": ["O"]}, "2 tokens, but 1 tag"),
        (TAGS, {"tokens": [], "tags": []}, "the sentence is empty"),
        (TAGS, {"tokens": ["a", " "]}, "token 2 is empty"),
        (TAGS, {"tags": ["O", None]}, "token 2 ('b'): the label is missing"),
        (SPANS, {"spans": [[0, 3, "PER"], [0, 7, "LOC"]]}, "'Ada' (PER) and 'Ada met' (LOC) share a word"),
        (SPANS, {"spans": [[0, 99, "PER"]]}, "0 to 99 (PER) lies outside the text of 15 characters"),
        (SPANS, {"spans": [[3, 4, "PER"]]}, "3 to 4 (PER) holds no word"),
        (SPANS, {"spans": [[0, 3, ""]]}, "expected spans of start, end and one label"),
        (SPANS, {"spans": [{"start": 0, "end": 3, "labels": ["PER", "LOC"]}]}, "one label"),
        (SPANS, {"spans": None}, "write [] for a text without entities"),
        (SPANS, {"spans": [], "answer": "reject", "_task_hash": 1}, "answer is 'reject'"),
        (SPANS, {"text": " ", "spans": []}, "the sentence is empty"),
        (SPANS, {"spans": [{"result": []}, {"result": []}]}, "2 finished annotations; keep one"),
        (SPANS, {"spans": [{"result": [], "was_cancelled": True}]}, "0 finished annotations"),
    ],
    "question-answering": [
        (ANSWER, {"answers": {"text": ["film"], "answer_start": [4]}}, "('good' does); the context has it at 9"),
        (ANSWER, {"answers": {"text": ["book"], "answer_start": [9]}}, "('film' does); the context does not have it"),
        (ANSWER, {"answers": {"text": ["film"], "answer_start": []}}, "1 answer, but 0 answer_start"),
        (ANSWER, {"answers": None}, "expected answers {'text'"),
        (ANSWER, {"question": " "}, "the question is empty"),
    ],
    "multiple-choice": [
        (CHOICE, {"label": "C"}, "the label 'C' is none of the choices"),
        (CHOICE, {"label": None}, "the label is missing"),
        (CHOICE, {"label": "9" * 5000}, "the label '999"),
        (CHOICE, {"choices": ["one"]}, "expected two or more choices, found ['one']"),
        (CHOICE, {"choices": ["one", "two", "three"]}, "3 choices, most rows have 2"),
        (CHOICE, {"choices": ["one", ""]}, "choice 1 is empty"),
        (CHOICE, {"context": " "}, "the context is empty"),
    ],
}


@pytest.mark.parametrize(
    ("task", "good", "wrong", "message"), [(task, *case) for task, cases in REFUSED.items() for case in cases]
)
def test_a_row_that_cannot_be_used_is_named_with_its_line_before_training(
    finetune, write_rows, tmp_path, capsys, task, good, wrong, message
):
    train = write_rows("train.jsonl", [good, good | wrong, good, good])
    assert finetune(task, "--train", train) == 2
    captured = capsys.readouterr()
    error = captured.err.splitlines()[-1].replace("sentences", "lines")
    assert error.startswith(f"mybert finetune: error: {train}: 1 of 4 lines cannot be used: line 2: ")
    assert message in error and error.endswith("; correct them, or leave them out by --errors skip")
    assert "Traceback" not in captured.out + captured.err and not (tmp_path / "out").exists()


LOOKED_FOR = (
    "looked for text, sentence1, premise, question1, question, sentence, review, document, content, body, tweet, data"
)
FILES = {  # task, file and message
    "empty": ("text-classification", "train.jsonl", "", " is empty"),
    "no row is usable": ("text-classification", "train.csv", "text,label\n ,a\n", "are file and columns right?"),
    "no columns": (
        "text-classification",
        "train.csv",
        "words,opinion\na,good\n",
        f"no column for 'text' ({LOOKED_FOR})",
    ),
    "no labels": ("text-classification", "train.csv", "text,opinion\na,good\n", "name it by --columns label=COLUMN"),
    "no numbers": (
        *("text-classification", "train.csv"),
        "text,label\n" + "".join(f"a,{i / 2}\n" for i in range(1, 19)) + 'a,high\na,"2,5"\n',
        "line 20: the label 'high' is not a number; line 21: the label '2,5' is not a number (write 2.5)",
    ),
}


@pytest.mark.parametrize("wrong", FILES)
def test_a_file_that_cannot_be_used_is_one_line(finetune, tmp_path, capsys, wrong):
    task, name, content, message = FILES[wrong]
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert finetune(task, "--train", tmp_path / name) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"mybert finetune: error: {tmp_path / name}") and message in error
    assert not (tmp_path / "out").exists()
