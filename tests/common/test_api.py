"""The public functions of `mybert` do what the commands do, also with rows in memory."""

import json
import pkgutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pandas as pd
import pytest
from datasets import Dataset
from json_files import read_lines, write_lines

import mybert
from mybert import UserError, cli
from mybert.api import Result, _named_rows

ROWS = [{"text": f"a {word} {noun}", "label": "good" if word in ("great", "fine") else "bad"}
        for word in ("great", "fine", "dull", "sad") for noun in ("film", "book", "song")]  # fmt: skip


def test_importing_the_package_does_not_import_torch():
    script = "import sys, mybert; dir(mybert); print('torch' in sys.modules, 'transformers' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "False False\n"


def test_every_public_name_can_be_imported_and_is_typed():
    assert set(mybert.__all__) <= set(dir(mybert))
    for name in mybert.__all__:
        assert getattr(mybert, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'pretrian'"):
        mybert.pretrian  # noqa: B018
    assert all(resources.files(name).joinpath("py.typed").is_file() for name in ("mybert", "modeling_mybert"))


CALLS = {  # function → its command, positional arguments, and settings
    "train_tokenizer": ("tokenizer", (), {"inputs": ["a.txt"], "vocab_size": 200, "output": "o"}),
    "build_corpus": ("corpus", (), {"inputs": ["a.txt"], "tokenizer": "t", "max_length": 32, "output": "o"}),
    "pretrain": ("pretrain", (), {"corpus": "c", "size": "tiny", "learning_rate": 1e-3, "output": "o"}),
    "adapt": ("adapt", (), {"model": "m", "inputs": ["a.txt"], "max_steps": 2, "output": "o"}),
    "trim": ("trim", (), {"model": "m", "inputs": ["a.txt"], "output": "o"}),
    "merge": ("merge", (), {"models": ["m", "n"], "weights": [0.25, 0.75], "output": "o"}),
    "quantize": ("quantize", (), {"model": "m", "texts": ["a.txt"], "output": "o"}),
    "distill": ("distill", (), {"teacher": "m", "corpus": "c", "max_steps": 2, "output": "o"}),
    "finetune": ("finetune", (), {"task": "sentiment", "model": "m", "train": "a.csv", "output": "o"}),
    "evaluate": ("evaluate", (), {"model": "m", "data": "a.csv", "bootstrap": 0, "output": "o"}),
    "compare": ("compare", (["a", "b"],), {"output": "o"}),
    "predict": ("predict", ("m", "a.csv"), {"max_length": 16, "output": "o.jsonl"}),
    "suggest": ("suggest", ("m", "a.csv"), {"count": 3, "output": "o.jsonl"}),
    "explain": ("explain", ("m", "a.csv"), {"method": "occlusion", "output": "o.jsonl"}),
    "embed": ("embed", ("m", "a.txt"), {"pooling": "cls", "output": "o.npy"}),
    "build_index": ("index", ("m", "a.jsonl"), {"language": "de", "output": "o"}),
    "search": ("search", ("v", "a word"), {"top_k": 3}),
    "score": ("score", ("m", "a.txt"), {"masking": "whole-word", "output": "o.jsonl"}),
    "export": ("export", ("m",), {"output": "o"}),
    "push": ("push", ("m",), {"repo_id": "me/m", "dry_run": True}),
    "doctor": ("doctor", ("f",), {"report": True}),
}


def test_every_function_has_a_call_here():
    assert {name for name in mybert.__all__ if name.islower() and name != "__version__"} == {*CALLS}


def values_of(settings) -> dict[str, str]:
    found = settings.to_dict() if hasattr(settings, "to_dict") else vars(settings)
    return {name: str(value) for name, value in found.items() if name != "given"}


@pytest.mark.parametrize("name", CALLS)
def test_a_function_gives_its_command_the_settings_of_the_command_line(name, tmp_path, monkeypatch):
    resolve, got = pkgutil.resolve_name, []

    def spy(place: str):
        if not place.rpartition(":")[2].islower():  # a class of settings
            return resolve(place)
        return lambda *settings: got.append(settings) or tmp_path

    for module in ("cli", "api"):
        monkeypatch.setattr(f"mybert.{module}.check_places", lambda *_: None)
    monkeypatch.setattr(pkgutil, "resolve_name", spy)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m").mkdir()
    (tmp_path / "manifest.json").write_text('{"stage": "test", "metrics": {"a": 1}}')
    command, positional, settings = CALLS[name]
    words = [word for value in positional for word in (value if isinstance(value, list) else [value])]
    for option, value in settings.items():
        values = value if isinstance(value, list) else [value]
        words += [f"--{option.replace('_', '-')}", *(str(one).lower() if one is True else one for one in values)]
    found = getattr(mybert, name)(*positional, **settings)
    assert cli.main([command, *map(str, words)]) == 0
    called, typed = ([values_of(one) for one in settings] for settings in got)
    assert called == typed
    if isinstance(found, Result):
        assert (Path(found), found.metrics, found.manifest["stage"]) == (tmp_path, {"a": 1}, "test")


def test_every_call_names_skipped_files_once(tmp_path, caplog):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("some words of a text\n")
    (tmp_path / "texts" / "b.docx").write_text("others")
    for count in (1, 2):
        mybert.train_tokenizer(
            inputs=[tmp_path / "texts"], vocab_size=200, output=tmp_path / "tokenizer", overwrite=True
        )
        assert caplog.text.count("skipped 1 file of other formats (.docx)") == count


def test_tables_in_memory_have_the_scores_and_predictions_of_a_file(models, tmp_path, capsys):
    model, rows = models("classifier"), tmp_path / "rows.jsonl"
    write_lines(rows, ROWS)
    expected = mybert.evaluate(model=model, data=rows, output=tmp_path / "scores", bootstrap=0, device="cpu")
    for number, table in enumerate((ROWS, Dataset.from_list(ROWS), pd.DataFrame(ROWS))):
        found = mybert.evaluate(model=model, data=table, output=tmp_path / str(number), bootstrap=0, device="cpu")
        assert found.metrics == expected.metrics
    counts = mybert.predict(model, rows, output=tmp_path / "p.jsonl", device="cpu")
    assert (counts.predictions, counts.errors, counts.cut) == (len(ROWS), 0, 0)
    lines = read_lines(tmp_path / "p.jsonl")
    predictions = mybert.Predictor(model, device="cpu")([row["text"] for row in ROWS])
    assert [one["scores"] for one in predictions] == [one["scores"] for one in lines]
    assert not {"Saving the dataset", "Writing model shards"} & {*capsys.readouterr().err.split("\r")}


def test_rows_in_memory_keep_all_columns_and_mixed_types():
    rows = [{"text": "a"}, {"text": "b", "id": 1, "n": 2**53 + 1}, {"text": "c", "id": "x", "n": 0.5}, {"id": None}]
    expected = [{name: row.get(name) for name in ("text", "id", "n")} for row in rows]
    for table in (rows, pd.DataFrame(expected, dtype=object)):
        assert list(_named_rows("train", table).table) == expected


def test_rows_in_memory_are_named_as_such_and_a_run_on_them_can_be_resumed(models, tmp_path, capsys):
    settings = {"task": "sentiment", "model": models("encoder"), "max_steps": 2, "bootstrap": 10, "use_cpu": True}
    run = {**settings, "train": ROWS, "validation": pd.DataFrame(ROWS[:6]), "output": tmp_path / "out"}
    mybert.finetune(**run, max_length=16)
    mybert.evaluate(model=tmp_path / "out", data=ROWS, output=tmp_path / "scores")
    printed = capsys.readouterr().out
    names = ("rows of validation (data in memory (validation))", "validation, data in memory (validation)")
    assert all(name in printed for name in (*names, "\ndata in memory: 12 rows"))
    texts = [path.read_text() for path in tmp_path.rglob("*") if path.suffix in (".json", ".html", ".txt", ".jsonl")]
    assert not any("mybert-" in text for text in [printed, *texts]), "the path of a temporary folder"
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["inputs"]["train"]["path"] == manifest["settings"]["train"] == "data in memory (train)"
    mybert.finetune(**run, max_length=16, resume=True)
    assert "is finished: no step is left" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"--train data in memory \(train\) has other content"):
        mybert.finetune(**{**run, "train": ROWS[:-1]}, max_length=16, resume=True)
