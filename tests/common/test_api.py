"""The public functions of `mybert` give what the commands give."""

import json
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from datasets import Dataset
from safetensors.torch import load_file

import mybert
from mybert import UserError, cli
from mybert.api import _named_rows

TEXTS = [f"The {noun} {verb} in the {place}. It is {word}.\n" for noun in ("film", "book", "song", "sea")
         for verb in ("ends", "begins") for place in ("house", "wood") for word in ("good", "dull")]  # fmt: skip
ROWS = [{"text": f"a {word} {noun}", "label": "good" if word in ("great", "fine") else "bad"}
        for word in ("great", "fine", "dull", "sad") for noun in ("film", "book", "song")]  # fmt: skip


def command(name: str, *words) -> None:
    assert cli.main([name, *map(str, words)]) == 0


def same_files(one: Path, other: Path, *names: str) -> bool:
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Text and rows, and from these by commands a tokenizer, a corpus, a model and a classifier."""
    folder = tmp_path_factory.mktemp("api")
    (folder / "books").mkdir()
    for number, text in enumerate(TEXTS):
        (folder / "books" / f"{number}.txt").write_text(text)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (folder / "texts.txt").write_text("a good film\na dull sea\n")
    command("tokenizer", folder / "books", "--vocab-size", 200, "--num-proc", 1, "--output", folder / "tokenizer")
    corpus = ("--tokenizer", folder / "tokenizer", "--max-length", 32, "--num-proc", 1, "--validation-share", 0.2)
    command("corpus", folder / "books", *corpus, "--output", folder / "corpus")
    options = ("--size", "tiny", "--max-steps", 2, "--learning-rate", "1e-3", "--use-cpu", "true")
    command("pretrain", "--corpus", folder / "corpus", *options, "--output", folder / "model")
    data = ("--train", folder / "rows.jsonl", "--validation", folder / "rows.jsonl", "--max-length", 16)
    options = ("--task", "text-classification", "--max-steps", 2, "--bootstrap", 10, "--use-cpu", "true")
    command("finetune", "--model", folder / "model", *data, *options, "--output", folder / "classifier")
    return folder


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


def test_tokenizer_and_corpus_are_those_of_the_commands(folder, tmp_path):
    found = mybert.train_tokenizer(
        inputs=[folder / "books"], vocab_size=200, num_proc=1, output=tmp_path / "tokenizer"
    )
    assert found.path == tmp_path / "tokenizer" and found.manifest["stage"] == "tokenizer"
    assert same_files(found.path, folder / "tokenizer", "vocab.txt", "tokenizer.json")
    found = mybert.build_corpus(
        inputs=folder / "books", tokenizer=found, max_length=32, num_proc=1, validation_share=0.2,
        output=tmp_path / "corpus",
    )  # fmt: skip
    expected = json.loads((folder / "corpus/manifest.json").read_text())
    assert found.manifest["counts"] == expected["counts"]


def test_every_call_names_skipped_files_once(tmp_path, caplog):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("some words of a text\n")
    (tmp_path / "texts" / "b.docx").write_text("others")
    for count in (1, 2):
        mybert.train_tokenizer(
            inputs=[tmp_path / "texts"], vocab_size=200, output=tmp_path / "tokenizer", overwrite=True
        )
        assert caplog.text.count("skipped 1 file of other formats (.docx)") == count


def test_pretraining_gives_the_weights_and_metrics_of_the_command(folder, tmp_path, capsys):
    output = tmp_path / "model"
    settings = {"size": "tiny", "max_steps": 2, "learning_rate": 1e-3, "use_cpu": True}
    found = mybert.pretrain(corpus=folder / "corpus", output=output, **settings)
    assert "Writing model shards" not in capsys.readouterr().err, "a bar of transformers"
    expected = json.loads((folder / "model/results.json").read_text())["metrics"]
    assert found.metrics == expected and "mlm_accuracy" in expected
    for name, weights in load_file(folder / "model/model.safetensors").items():
        assert (load_file(output / "model.safetensors")[name] == weights).all()


def test_fine_tuning_evaluation_and_prediction_give_what_the_commands_give(folder, tmp_path, capsys):
    rows = folder / "rows.jsonl"
    settings = {"max_steps": 2, "bootstrap": 10, "use_cpu": True, "max_length": 16}
    found = mybert.finetune(
        task="text-classification", model=folder / "model", train=rows, validation=rows, output=tmp_path / "out",
        **settings,
    )  # fmt: skip
    expected = json.loads((folder / "classifier/results.json").read_text())["validation"]["metrics"]
    assert found.metrics["validation"] == expected
    scores = mybert.evaluate(model=found, data=rows, output=tmp_path / "scores", bootstrap=0, device="cpu")
    assert scores.metrics == expected
    for table in (ROWS, Dataset.from_list(ROWS), pd.DataFrame(ROWS)):
        scores = mybert.evaluate(model=found, data=table, output=tmp_path / "again", overwrite=True, bootstrap=0)
        assert scores.metrics == pytest.approx(expected)
    assert "Saving the dataset" not in capsys.readouterr().err
    counts = mybert.predict(folder / "classifier", rows, output=tmp_path / "p.jsonl", device="cpu")
    assert (counts.predictions, counts.errors, counts.cut) == (len(ROWS), 0, 0)
    command("predict", folder / "classifier", rows, "--output", tmp_path / "q.jsonl", "--device", "cpu")
    assert (tmp_path / "p.jsonl").read_bytes() == (tmp_path / "q.jsonl").read_bytes()
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    predictions = mybert.Predictor(folder / "classifier", device="cpu")([row["text"] for row in ROWS])
    assert [one["scores"] for one in predictions] == [one["scores"] for one in lines]


def test_rows_in_memory_keep_columns_that_the_first_row_lacks():
    rows = [{"text": "a"}, {"text": "b", "place": "sea", "number": 1}, {"number": "two"}]
    found = _named_rows("train", rows)
    assert list(found.table) == [{name: row.get(name) for name in ("text", "place", "number")} for row in rows]


def test_rows_in_memory_keep_columns_of_mixed_types():
    rows = [{"text": "a", "id": 1, "n": 2**53 + 1}, {"text": "b", "id": "x", "n": 0.5}, {"text": "c", "id": None}]
    expected = [{name: row.get(name) for name in ("text", "id", "n")} for row in rows]
    assert list(_named_rows("train", rows).table) == expected
    frame = pd.DataFrame(rows, dtype=object)
    assert list(_named_rows("train", frame).table) == expected


def test_rows_in_memory_are_named_as_such_and_a_run_on_them_can_be_resumed(folder, tmp_path, capsys):
    settings = {"task": "sentiment", "model": folder / "model", "max_steps": 2, "bootstrap": 10, "use_cpu": True}
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


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (pd.DataFrame({"text": [], "label": []}), "data: found no rows"),
        ([{"text": "a"}, "b"], "data: the rows cannot be read as a table"),
        ([{1: "a"}], "data: the rows cannot be read as a table"),
        (pd.DataFrame([["a", "b"]], columns=["text", "text"]), "data: the rows cannot .*Duplicate column names"),
        (Dataset.from_list(ROWS).to_iterable_dataset(), "data: expected the name of a file, found a IterableDataset"),
    ],
)
def test_rows_in_memory_that_are_no_table_are_a_mistake_of_the_user(rows, message):
    with pytest.raises(UserError, match=message):
        mybert.evaluate(model="model", data=rows, output="scores")


def test_vectors_searches_and_exports_are_those_of_the_commands(folder, tmp_path):
    found = mybert.embed(folder / "model", folder / "texts.txt", output=tmp_path / "a.npy", device="cpu")
    command("embed", folder / "model", folder / "texts.txt", "--output", tmp_path / "b.npy", "--device", "cpu")
    assert found.manifest["counts"]["texts"] == 2
    assert np.array_equal(np.load(found), np.load(tmp_path / "b.npy"))
    vectors = mybert.Embedder(folder / "model", device="cpu").texts(["a good film", "a dull sea"])
    assert np.allclose(vectors, np.load(found), atol=1e-6)
    found = mybert.export(folder / "model", output=tmp_path / "onnx")
    command("export", folder / "model", "--output", tmp_path / "onnx2")
    assert same_files(found.path, tmp_path / "onnx2", "config.json")
    assert found.manifest["stage"] == "export"


def test_push_takes_its_settings_by_name(folder, capsys):
    assert mybert.push(folder / "classifier", repo_id="me/my-bert", dry_run=True, verify=False) is None
    assert "me/my-bert" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mybert.pretrain(corpus="c", output="o", lerning_rate=1), "did you mean 'learning_rate'"),
        (lambda: mybert.pretrain(corpus="c", output="o", epochs=1), "'epochs'; did you mean 'num_train_epochs'"),
        (lambda: mybert.evaluate(modell="m", data="d", output="o"), "'modell'; did you mean 'model'"),
        (lambda: mybert.evaluate(model="m", data="d"), "missing arguments: output"),
        (lambda: mybert.finetune(task="text-classification"), "missing arguments: model, output"),
        (lambda: mybert.Predictor("m", max_lenght=5), "'max_lenght'; did you mean 'max_length'"),
        (lambda: mybert.pretrain(corpus="c", output="o", num_train_epochs=-1), "num_train_epochs: expected above 0"),
        (lambda: mybert.score("m", "t", output="o", pairs=["a", "b"]), r"pairs: expected a text or None, found \['a'"),
        (lambda: mybert.evaluate(model="m", data="d", output="o", max_length="4"), "max_length: expected a whole nu"),
        (lambda: mybert.pretrain(corpus="c", output="o", max_steps=1.5), "max_steps: .* number, found 1.5"),
        (lambda: mybert.Embedder("m", layers=[0.5]), r"layers: expected a whole number or .*, found \[0.5\]"),
        (lambda: mybert.Scorer("m", max_lenght=5), "'max_lenght'; did you mean 'max_length'"),
        (lambda: mybert.Predictor(5), "model: expected a text, found 5"),
        (lambda: mybert.export("nowhere/at/all", output="o"), "nowhere/at/all"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_a_user_error_with_the_remedy(call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c").mkdir()
    with pytest.raises(UserError, match=message):
        call()
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_results_are_paths(tmp_path):
    shutil.copy(__file__, tmp_path / "file.py")
    assert Path(mybert.Result(tmp_path / "file.py")).name == "file.py"
