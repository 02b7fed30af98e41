"""Messages about checkpoints that do not exist or are incomplete."""

import pytest

from mybert.artifacts.manifest import write_manifest
from mybert.common.errors import UserError, did_you_mean
from mybert.inference.checkpoint import explain_unreadable


@pytest.mark.parametrize(
    ("name", "meant"),
    [("modle", "model"), ("trian.jsonl", "train.jsonl"), ("elsewhere", None), ("no/such/folder", None), ("\0", None)],
)
def test_the_most_similar_name_in_the_folder_is_suggested(tmp_path, monkeypatch, name, meant):
    for there in ("model", "train.jsonl", "test.csv"):
        (tmp_path / there).touch()
    for stem in ("", f"{tmp_path}/"):
        monkeypatch.chdir(tmp_path)
        assert did_you_mean(stem + name) == (f"; did you mean {stem}{meant}?" if meant else "")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("modle", "modle: no such folder, .*did you mean model?"),
        ("./modle", r"no such folder; did you mean model\?"),
        ("./elsewhere", "a repository of the Hub as OWNER/NAME"),
        ("quickstart", r"no config.json; did you mean quickstart.model\?"),
        ("onnx", "checkpoint onnx is an ONNX export; name the checkpoint that it was made from"),
        ("model", "checkpoint model is not finished; run the command that started it again, with --resume"),
    ],
)
def test_a_missing_checkpoint_is_distinguished_from_an_unfinished_one(tmp_path, monkeypatch, name, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    for file in ("quickstart/model/config.json", "onnx/config.json", "onnx/onnx/model.onnx"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("{}")
    write_manifest("model", "finetune", settings={}, inputs={}, counts={}, complete=False)
    with pytest.raises(UserError, match=message), explain_unreadable(name):
        raise OSError("an error of the Hub")
