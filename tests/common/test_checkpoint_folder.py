"""Checkpoints that do not exist, are incomplete, do not fit their weights, or whose folder holds more than files."""

import contextlib
import os
import shutil
import socket

import pytest
import torch
from huggingface_hub import constants
from json_files import change_json
from safetensors.torch import load_file
from tiny_models import tiny_config
from transformers import BertConfig, BertModel

from modeling_mybert import MyBertConfig, MyBertForMultipleChoice, MyBertModel
from mybert import cli
from mybert.artifacts.checkpoint_folder import check_checkpoint
from mybert.artifacts.manifest import write_manifest
from mybert.common.errors import UserError, did_you_mean
from mybert.common.json_io import MAX_DEPTH, parse_json
from mybert.inference.checkpoint import explain_unreadable
from tokenization import MyBertTokenizer

HUGE = 10**9  # a model of this size would never be built
FIELDS = ["num_hidden_layers", "vocab_size", "hidden_size", "intermediate_size", "max_position_embeddings",
          "type_vocab_size", "num_labels", "num_attention_heads"]  # fmt: skip


@pytest.fixture
def saved(tmp_path, models):
    """A function that saves a model of transformers or MyBERT in a form, and returns its folder."""

    def save(form: str):
        model = BertModel(tiny_config(kind=BertConfig)) if form == "bert" else MyBertModel(tiny_config())
        model.save_pretrained(tmp_path, max_shard_size="20KB" if form == "sharded" else "1GB")
        if form == "pytorch":
            weights = tmp_path / "model.safetensors"
            torch.save(load_file(weights), tmp_path / "pytorch_model.bin")
            weights.unlink()
        return tmp_path

    return save


@pytest.mark.parametrize("form", ["mybert", "bert", "sharded", "pytorch"])
def test_a_field_that_contradicts_the_weights_is_named_before_the_model_is_built(saved, form):
    folder = saved(form)
    with explain_unreadable(str(folder)):
        pass
    before = (folder / "config.json").read_bytes()
    for field in FIELDS:
        change_json(folder / "config.json", **{field: HUGE})
        message = f"{field} in config.json is {HUGE}[,;] "
        with pytest.raises(UserError, match=message) as found, explain_unreadable(str(folder)):
            pytest.fail("the model would be built")
        assert "\n" not in str(found.value)
        (folder / "config.json").write_bytes(before)


@pytest.mark.parametrize("form", ["bert", "sharded", "pytorch"])
def test_a_model_of_the_hub_is_checked_as_a_folder(saved, tmp_path, monkeypatch, form):
    folder, cached = saved(form), tmp_path / "cache" / "models--someone--model"
    change_json(folder / "config.json", num_hidden_layers=HUGE)
    shutil.copytree(folder, cached / "snapshots" / "0123", ignore=shutil.ignore_patterns("cache"))
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("0123")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    message = f"someone/model: num_hidden_layers in config.json is {HUGE}, "
    with pytest.raises(UserError, match=message), explain_unreadable("someone/model"):
        pytest.fail("the model would be built")


INDEX = "model.safetensors.index.json"


@pytest.mark.parametrize(
    ("form", "file", "changes", "message"),
    [
        ("mybert", "config.json", {"id2label": ["a"]}, r"id2label in config.json is \['a'\], not an object"),
        ("mybert", "config.json", {"label2id": ["a"]}, r"label2id in config.json is \['a'\], not an object"),
        *(
            ("sharded", INDEX, {"weight_map": {"a": name}}, "a file outside of its folder")
            for name in ("../outside.safetensors", "/dev/zero", "a/../../b")
        ),
        ("sharded", INDEX, {"weight_map": {"a": "b.safetensors"}}, f"lacks b.safetensors, which {INDEX} names"),
    ],
)
def test_a_file_that_is_no_part_of_a_checkpoint_is_refused_by_name(saved, form, file, changes, message):
    folder = saved(form)
    change_json(folder / file, **changes)
    with pytest.raises(UserError, match=message):
        check_checkpoint(str(folder))


def test_fewer_layers_than_the_weights_have_may_be_read(saved):
    folder = saved("mybert")
    change_json(folder / "config.json", num_hidden_layers=1)
    check_checkpoint(str(folder))
    change_json(folder / "config.json", num_hidden_layers=3)
    with pytest.raises(UserError, match=r"num_hidden_layers in config.json is 3, and the weights have 2"):
        check_checkpoint(str(folder))


def test_a_tokenizer_that_is_nested_too_deeply_is_said_in_one_line(saved):
    folder = saved("mybert")
    (folder / "tokenizer.json").write_text('{"a":' * 10**5 + "1" + "}" * 10**5)
    with pytest.raises(UserError, match="nested too deeply") as found, explain_unreadable(str(folder)):
        MyBertTokenizer.from_pretrained(folder)
    assert "\n" not in str(found.value)


def test_the_labels_are_those_of_the_head(models, tmp_path):
    config = MyBertConfig.from_pretrained(models("chooser"))
    assert config.num_labels == 2, "one output gives a score to each choice"
    MyBertForMultipleChoice(config).save_pretrained(tmp_path)
    check_checkpoint(str(tmp_path))
    check_checkpoint(str(models("classifier")))


def test_the_encoder_of_a_sentence_encoder_may_be_in_a_folder_of_its_own(saved):
    folder = saved("bert")
    (folder / "0_Transformer").mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).rename(folder / "0_Transformer" / name)
    with pytest.raises(UserError, match=r"no config\.json"):
        check_checkpoint(str(folder))
    (folder / "modules.json").write_text(
        '[{"type": "sentence_transformers.models.Transformer", "path": "0_Transformer"}]'
    )
    check_checkpoint(str(folder))
    change_json(folder / "0_Transformer/config.json", vocab_size=HUGE)
    with pytest.raises(UserError, match="vocab_size"):
        check_checkpoint(str(folder))


def _socket(path):
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as made:  # its path has at most 107 bytes
        made.bind(path.name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors", "manifest.json"])
@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda path: os.mkfifo(path), "a named pipe"),
        (_socket, "a socket"),
        (lambda path: path.mkdir(), "a folder"),
        (lambda path: path.symlink_to(path.name), "a link to no file"),
        (lambda path: path.symlink_to("/dev/zero"), "a link to a device"),
    ],
    ids=["pipe", "socket", "folder", "loop", "device"],
)
def test_only_regular_files_of_a_checkpoint_are_read(saved, name, make, kind):
    folder = saved("mybert")
    (folder / name).unlink(missing_ok=True)
    make(folder / name)
    with pytest.raises(UserError, match=f"{name} is {kind}, not a regular file; replace or remove it"):
        check_checkpoint(str(folder))
    for command in (["push", str(folder), "--repo-id", "a/b", "--dry-run"], ["doctor", str(folder)]):
        assert cli.main(command) == 2, "and nothing hangs"


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


@pytest.mark.parametrize("text", ["[" * 500 + "]" * 500, '{"a":' * 900 + "1" + "}" * 900, "[" * 10**5])
def test_json_is_read_to_a_depth_that_every_reader_and_writer_can_handle(text):
    with pytest.raises(ValueError, match=f"nested too deeply: more than {MAX_DEPTH} levels"):
        parse_json(text)
    shallow = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert parse_json(f'{{"a": {shallow[1:-1]}, "b": "{"[" * 500}"}}')["b"] == "[" * 500


def test_a_duplicate_key_is_found_in_linear_time():
    keys = ",".join(f'"{number}": 0' for number in range(200_000))
    with pytest.raises(ValueError, match=r"'199999' is given twice"):
        parse_json(f'{{{keys}, "199999": 1}}', unique=True)
