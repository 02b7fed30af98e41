"""Scripts and notebooks of examples/ on tiny data."""

import json
import runpy
import sys
import threading
import urllib.request
from pathlib import Path

import pytest
from json_files import read_lines, write_lines

EXAMPLES = Path(__file__).parents[2] / "examples"
WORDS = [
    {"text": f"the {word} {noun}", "word": noun, "label": i}
    for i, noun in enumerate(("song", "film"))
    for word in "ab"
]
ARGUMENTS = {
    "pretrain": [
        "out",
        "books/0.txt",
        "books/1.txt",
        "--size=tiny",
        "--vocab-size=300",
        "--max-length=32",
        "--steps=2",
    ],
    "custom_masking": ["corpus", "out", "--size=tiny", "--steps=2"],
    "finetune_with_trainer": ["model", "train.csv", "dev.csv", "out", "--epochs=1"],
    "new_task": ["model", "words.jsonl", "out", "--epochs=1"],
    "train_sentence_embeddings": ["model", "pairs.jsonl", "out", "--batch-size=2"],
    "peft_lora": ["model", "train.csv", "out", "--epochs=1"],
    "semantic_search": ["model", "sentences.txt", "a great film"],
}


@pytest.fixture
def folder(workspace, tmp_path, monkeypatch):
    for path in workspace.iterdir():
        (tmp_path / path.name).symlink_to(path)
    pairs = [{"anchor": f"a {noun}", "positive": f"the {noun}"} for noun in ("film", "song", "book", "scene")]
    for name, rows in (("words", WORDS), ("pairs", pairs)):
        write_lines(tmp_path / f"{name}.jsonl", rows)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_script_runs(name, folder, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *ARGUMENTS[name]])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    if name == "semantic_search":
        assert len(capsys.readouterr().out.splitlines()) == 2
    else:
        assert list((folder / "out").rglob("*.safetensors"))


def test_the_onnx_service_answers_as_the_model_predicts(folder, run_mybert):
    run_mybert(["mybert", "export", "classifier", "--output", "onnx"])
    server = runpy.run_path(str(EXAMPLES / "onnx_service.py"))["make_server"](folder / "onnx", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    body = json.dumps(["a great film", "a dull song"]).encode()
    with urllib.request.urlopen(f"http://localhost:{server.server_port}", data=body) as response:
        served = json.loads(response.read())
    server.shutdown()
    server.server_close()
    run_mybert(["mybert", "predict", "classifier", "new.txt", "--output", "predictions.jsonl"])
    predicted = read_lines(folder / "predictions.jsonl")
    assert [row["label"] for row in served] == [row["label"] for row in predicted]
    assert [row["score"] for row in served] == pytest.approx([row["score"] for row in predicted], abs=1e-4)


def test_every_script_is_short_and_is_run_here():
    scripts = {path.stem: len(path.read_text(encoding="utf-8").splitlines()) for path in EXAMPLES.glob("*.py")}
    assert scripts.keys() == {*ARGUMENTS, "onnx_service", "postgres_search"}  # tests/embedding runs the last one
    assert all(lines <= 60 for lines in scripts.values()), scripts
