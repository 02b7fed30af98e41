"""A run is resumed only with the settings, arguments and inputs that it was started with, unless these are free."""

import dataclasses
from typing import ClassVar

import pytest
from transformers import TrainingArguments

from mybert.artifacts.manifest import identity, read_manifest
from mybert.artifacts.run_fingerprint import RunFingerprint
from mybert.artifacts.staging import exclusive_lock
from mybert.common.errors import UserError
from mybert.training.options import DECISIVE, decisive_arguments
from mybert.training.run_folder import RunFolder


@dataclasses.dataclass
class Settings:
    free: ClassVar = ("samples",)

    data: str
    output: str = "out"
    size: str = "small"
    samples: int = 5
    resume: bool = False
    overwrite: bool = False


@pytest.fixture
def start(tmp_path):
    """A function that opens the folder of a run; settings, then training arguments by name."""
    (tmp_path / "data").write_text("rows")

    def call(resume=False, finish=False, settings=None, **arguments):
        place = {"output": str(tmp_path / "out"), "resume": resume}
        settings = Settings(**{"data": str(tmp_path / "data")} | place | (settings or {}))
        arguments = TrainingArguments(str(tmp_path / "out"), use_cpu=True, **arguments)
        inputs, decisive = {"data": identity(settings.data)}, decisive_arguments(arguments)
        folder = RunFolder(settings, "pretrain", [settings.data])
        folder.check_same(settings, inputs, arguments, decisive)
        with folder.opened():
            if finish:
                folder.finish(counts={})
        return folder

    return call


@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("--size is 'base', the run was started with 'small'", {"settings": {"size": "base"}}),
        ("--learning-rate is 0.1, the run was started with 5e-05", {"learning_rate": 0.1}),
        ("--lr-scheduler-type is 'cosine'", {"lr_scheduler_type": "cosine"}),
        ("sequences_per_step is 16, the run was started with 8", {"gradient_accumulation_steps": 2}),
    ],
)
def test_a_changed_value_is_refused_by_name(start, message, change):
    start()
    with pytest.raises(UserError, match=message):
        start(resume=True, **change)


def test_an_argument_that_changes_the_weights_is_decisive():
    names = {field.name for field in dataclasses.fields(TrainingArguments)}
    assert set(DECISIVE) <= names
    of_the_optimizer = {name for name in names if name.startswith(("adam_", "optim", "lr_", "learning", "warmup"))}
    assert of_the_optimizer <= {*DECISIVE, "warmup_ratio"}


def test_free_values_and_the_place_of_an_input_may_change(start, tmp_path):
    start()
    (tmp_path / "moved").write_text("rows")
    change = {"data": str(tmp_path / "moved"), "samples": 6}
    twice_as_many = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}
    assert start(resume=True, settings=change, logging_steps=3, **twice_as_many).is_resumed
    (tmp_path / "moved").write_text("other rows")
    with pytest.raises(UserError, match=r"--data .*moved has other content"):
        start(resume=True, settings=change)


def test_other_files_are_named_before_settings_that_depend_on_their_rows():
    def of(rate: float, *paths: str) -> RunFingerprint:
        names = ["train", *(f"train-{number}" for number in range(2, 9))]
        inputs = {name: {"path": path, "sha256": path} for name, path in zip(names, paths, strict=False)}
        return RunFingerprint({"learning_rate": rate}, inputs)

    before = of(1e-4, "a.csv", "b.csv").as_dict()
    for other, message in [
        (of(5e-5, "a.csv"), "--train a.csv has other content than a.csv b.csv, with which the run was started"),
        (of(5e-5, "a.csv", "c.csv"), "--train a.csv c.csv has other content than a.csv b.csv"),
        (of(5e-5), "--train is not given, and the run was started with a.csv b.csv; name it again"),
        (of(5e-5, "a.csv", "b.csv"), "--learning-rate is 5e-05, the run was started with 0.0001"),
    ]:
        with pytest.raises(UserError, match=message):
            other.check_same(before)
    with pytest.raises(UserError, match=r"--train a.csv was not given when the run was started; leave it out, or"):
        of(1e-4, "a.csv").check_same(of(1e-4).as_dict())
    changed = {"choices": {"learning_rate": 1e-4}, "inputs": {"train": {"path": "a.csv", "sha256": "other"}}}
    with pytest.raises(UserError, match=r"--train a.csv has other content than when the run was started; restore it"):
        of(1e-4, "a.csv").check_same(changed)
    texts = [RunFingerprint({}, {"input-0": {"path": "a.txt", "sha256": content}}) for content in "ab"]
    with pytest.raises(UserError, match=r"--resume: the text a.txt has other content"):
        texts[0].check_same(texts[1].as_dict())


def test_a_setting_that_an_old_manifest_lacks_counts_as_its_default(start, tmp_path):
    start()
    manifest = read_manifest(tmp_path / "out")
    del manifest["choices"]["size"]
    settings = Settings(str(tmp_path / "data"))
    RunFingerprint.of(settings, manifest["inputs"]).check_same(manifest)
    with pytest.raises(UserError, match="--size is 'base', the run was started with 'small'"):
        RunFingerprint.of(dataclasses.replace(settings, size="base"), manifest["inputs"]).check_same(manifest)


def test_a_folder_is_fresh_unfinished_or_complete(start, tmp_path):
    first = start(resume=True)
    assert not first.is_resumed and read_manifest(tmp_path / "out")["complete"] is False
    second = start(resume=True, finish=True)
    assert second.is_resumed and not second.was_complete
    assert start(resume=True).was_complete
    with pytest.raises(UserError, match="add --resume"):
        start()


def test_a_folder_of_another_stage_or_in_use_is_refused(start, tmp_path):
    start()
    with pytest.raises(UserError, match="no run of `mybert finetune`"):
        RunFolder(Settings("data", str(tmp_path / "out"), resume=True), "finetune", [])
    with exclusive_lock(tmp_path / "out"), pytest.raises(UserError, match="another run is writing"):
        start(resume=True)
    start(resume=True)
    assert not list(tmp_path.glob(".*"))
