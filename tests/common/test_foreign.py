"""What is said of names that lead nowhere."""

import pytest

from mybert.common.checkpoint_loading import explain_unreadable
from mybert.common.errors import UserError
from mybert.common.manifest import write_manifest
from mybert.common.paths import did_you_mean


@pytest.mark.parametrize(
    ("name", "meant"),
    [("modle", "model"), ("trian.jsonl", "train.jsonl"), ("elsewhere", None), ("no/such/folder", None), ("\0", None)],
)
def test_the_nearest_name_beside_a_missing_one_is_named(tmp_path, monkeypatch, name, meant):
    for there in ("model", "train.jsonl", "test.csv"):
        (tmp_path / there).touch()
    for stem in ("", f"{tmp_path}/"):
        monkeypatch.chdir(tmp_path)
        assert did_you_mean(stem + name) == (f"; did you mean {stem}{meant}?" if meant else "")


def test_a_missing_checkpoint_is_told_from_an_unfinished_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    write_manifest("model", "finetune", settings={}, inputs={}, counts={}, complete=False)
    for name, message in (
        ("modle", "checkpoint modle: there is no such folder, and the Hub gives none; did you mean model?"),
        ("./modle", r"no such folder\); did you mean model\?"),
        ("./elsewhere", "a repository of the Hub as OWNER/NAME"),
        ("model", r"checkpoint model is not finished; `mybert finetune … --resume` goes on with it"),
    ):
        with pytest.raises(UserError, match=message), explain_unreadable(name):
            raise OSError("what the Hub says")
