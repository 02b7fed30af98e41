"""Checkpoints that do not exist, are incomplete, do not fit their weights, or whose folder holds more than files."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys

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


MISSING = """
predict {model} nofile.csv
predict {model} nofile.txt --device cpu
predict ./nofolder have.csv
explain {model} nofile.csv --output o.html
embed {model} nofile.txt --output o.npy
embed {model} have.txt --output have.txt/o.npy
search nofile.npy query
search done query
search {model} query
score {model} nofile.txt --output o.jsonl
finetune --task ner --model {model} --train nofile.conll --output o
finetune --task sentiment --model owner/name --train nofile.csv --output o --max-steps 3
finetune --task sentiment --model {model} --train have.csv --output done
evaluate --model {model} --data nofile.csv --output o
evaluate --model {model} --data have.csv --output have.csv
pretrain --text nofile.txt --output o --max-steps 3
pretrain --corpus nofolder --output o
tokenizer no-match-*.txt --output o
tokenizer have.txt --output done
corpus have.txt --tokenizer ./nofolder --output o
corpus have.txt --tokenizer done --output o
adapt --model {model} nofile.txt --output o
adapt --model {model} have.txt --words nofile.txt --output o
trim --model {model} --task-data nofile.csv --output o
distill --teacher ./nofolder --corpus done --output o
demo ./nofolder
serve ./nofolder
export ./nofolder --output o
merge {model} ./nofolder --output o
quantize {model} --texts nofile.txt --output o
push ./nofolder --repo-id a/b
quickstart --output done
quickstart --text nofile.txt
pretrain --corpus done --output o --max-length 3
finetune --task text-classification --model {model} --train have.csv --output o --learning-rate -1
finetune --task text-classification --model {model} --train have.csv --output o --fp16 --bf16
finetune --task text-classification --model {model} --train have.csv --output o --save-strategy steps
finetune --task text-classification --model {model} --train have.csv --output o --push-to-hub
pretrain --corpus done --output o --adam-beta1 1.5
pretrain --corpus done --output o --warmup-steps -1
pretrain --corpus done --output o --label-smoothing-factor 0.1
adapt have.txt --model {model} --output o --max-grad-norm -1
pretrain --corpus done --output o --report-to nonsense
finetune --task text-classification --model {model} --train have.csv --output o --report-to none nonsense
"""
_NAMED = (
    *("no-match", "nofile", "nofolder", "done", "have", "--max-length", "learning_rate", "--bf16 and --fp16"),
    *("--save-strategy", "push_to_hub", "adam_beta1", "warmup_steps", "label_smoothing_factor", "max_grad_norm"),
    *("--report-to: expected", "is no index"),
)


def test_every_command_names_a_missing_input_or_an_existing_output_before_large_imports(models, tmp_path):
    for name in ("have.txt", "have.csv", "done/manifest.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    commands = [line.split() for line in MISSING.format(model=models("classifier")).strip().splitlines()]
    script = f"""
import sys
from mybert import cli
for command in {commands!r}:
    print(cli.main(command), *{{"torch", "transformers", "datasets", "pandas", "pyarrow"}} & sys.modules.keys())
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    errors = done.stderr.splitlines()
    assert done.stdout.splitlines() == ["2"] * len(commands), errors
    for command, error in zip(commands, errors, strict=True):
        assert error.startswith(f"mybert {command[0]}: error: "), command
        assert any(name in error for name in _NAMED), error
