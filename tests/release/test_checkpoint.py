"""Loading of BERT checkpoints in every form: file formats, old names, prefixes and heads; without running code."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from json_files import change_json
from safetensors.torch import save_file
from tiny_models import tiny_config
from transformers import BertConfig, BertForPreTraining

import modeling_mybert
from modeling_mybert import MyBertForPreTraining, MyBertModel
from mybert import cli
from mybert.artifacts.manifest import read_manifest
from mybert.common.errors import UserError
from mybert.inference.checkpoint import open_checkpoint
from mybert.release.convert import export
from mybert.release.convert.companions import save_companions

HEADS = [
    *("Model", "ForPreTraining", "ForMaskedLM", "ForNextSentencePrediction", "ForSequenceClassification"),
    *("ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice"),
]


class Code:
    """Creates a file when it is unpickled."""

    def __init__(self, trace: Path):
        self.trace = trace

    def __reduce__(self):
        return os.system, (f"touch {self.trace}",)


@pytest.fixture(scope="module")
def bert() -> BertForPreTraining:
    """A model of transformers with random weights."""
    torch.manual_seed(0)
    model = BertForPreTraining(tiny_config(50, BertConfig)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def folder_of(bert: BertForPreTraining, folder: Path, weights: dict, file: str = "pytorch_model.bin") -> Path:
    bert.config.save_pretrained(folder)
    if file.endswith(".bin"):
        torch.save(weights, folder / file)
    else:
        save_file({name: tensor.clone() for name, tensor in weights.items()}, folder / file)
    return folder


def old_names(weights: dict) -> dict:
    names = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    return {next((k.replace(a, b) for a, b in names.items() if a in k), k): v for k, v in weights.items()}


def encoder_alone(weights: dict) -> dict:
    return {name.removeprefix("bert."): x for name, x in weights.items() if name.startswith("bert.")}


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("rename", [dict, old_names, encoder_alone])
@pytest.mark.parametrize("head", HEADS)
def test_every_head_starts_from_every_form_of_a_bert_folder(bert, tmp_path, file, rename, head):
    folder = folder_of(bert, tmp_path, rename(bert.state_dict()), file)
    model, report = getattr(modeling_mybert, f"MyBert{head}").from_pretrained(folder, output_loading_info=True)
    new = ("classifier.", "qa_outputs.", *(["cls."] if rename is encoder_alone else []))
    assert all(name.startswith(new) for name in report["missing_keys"])
    expected = bert.bert.state_dict()
    found = getattr(model, "bert", model).state_dict()
    assert found.keys() >= {name for name in expected if not name.startswith("pooler.")}
    assert all(torch.equal(expected[name], tensor) for name, tensor in found.items())


@pytest.mark.parametrize("zipped", [True, False])
def test_code_in_a_pickle_is_refused_in_one_line_and_not_run(bert, tmp_path, capsys, zipped):
    trace = tmp_path / "trace"
    folder = folder_of(bert, tmp_path / "evil", {})
    weights = {**bert.state_dict(), "more": Code(trace)}
    torch.save(weights, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    torch.load(folder / "pytorch_model.bin", weights_only=False)
    assert trace.exists(), "the premise: unpickling runs it"
    trace.unlink()
    for head in HEADS:
        with pytest.raises(Exception, match=r"(?s)Weights only load failed.*GLOBAL posix.system"):
            getattr(modeling_mybert, f"MyBert{head}").from_pretrained(folder)
    assert cli.main(["export", str(folder), "--output", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("mybert export: error: ")
    assert "posix.system" in error
    assert "use a copy in safetensors" in error
    assert not trace.exists()
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_with_both_heads_keeps_both_if_it_names_only_one(bert, tmp_path):
    """As google-bert/bert-base-uncased does."""
    folder = folder_of(bert, tmp_path, old_names(bert.state_dict()))
    change_json(folder / "config.json", architectures=["BertForMaskedLM"])
    checkpoint = open_checkpoint(str(folder))
    assert isinstance(checkpoint.model, MyBertForPreTraining)
    assert not checkpoint.left_out
    assert checkpoint.tokenizer is None


def test_unexpected_weights_are_named(bert, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(export, "write_onnx", lambda model, folder: {})  # takes seconds
    weights = bert.state_dict() | {"my_own.weight": torch.ones(1)}
    folder = str(folder_of(bert, tmp_path / "bert", weights))
    assert open_checkpoint(folder).left_out == ["my_own.weight"]
    assert cli.main(["export", folder, "--output", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "my_own.weight" in printed
    assert "none in the checkpoint" in printed  # tokenizer
    assert read_manifest(tmp_path / "out")["left_out"] == ["my_own.weight"]


def test_without_architectures_the_weights_decide_the_head(bert, minilm_folder, tmp_path):
    folder = folder_of(bert, tmp_path / "heads", bert.state_dict())
    shutil.copytree(minilm_folder, tmp_path / "encoder")
    for path in (folder, tmp_path / "encoder"):
        change_json(path / "config.json", architectures=None)
    assert isinstance(open_checkpoint(str(folder)).model, MyBertForPreTraining)
    encoder = open_checkpoint(str(tmp_path / "encoder"))
    assert isinstance(encoder.model, MyBertModel)
    assert not encoder.left_out


def test_an_encoder_saved_without_a_pooler_has_none(bert, tmp_path):
    MyBertModel.from_pretrained(folder_of(bert, tmp_path / "a", bert.state_dict()), add_pooling_layer=False)
    weights = {name: x for name, x in bert.bert.state_dict().items() if not name.startswith("pooler.")}
    folder = folder_of(bert, tmp_path / "b", weights)
    change_json(folder / "config.json", architectures=["BertModel"])
    assert open_checkpoint(str(folder)).model.pooler is None


@pytest.mark.parametrize("outside", ["../secret", "absolute"])
def test_only_folders_of_the_checkpoint_are_copied(bert, tmp_path, outside):
    """modules.json may name any path."""
    folder = folder_of(bert, tmp_path / "a/bert", bert.state_dict())
    for path in (tmp_path / "a/secret", folder / "1_Pooling"):
        path.mkdir()
        (path / "config.json").write_text("{}")
    modules = [{"path": path, "type": "sentence_transformers.models.Any"} for path in ("", "1_Pooling", "2_Normalize")]
    (folder / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "b/out").mkdir(parents=True)
    save_companions(open_checkpoint(str(folder)), tmp_path / "b/out")
    copied = {"out", "modules.json", "1_Pooling", "config.json"}
    assert {path.name for path in (tmp_path / "b").rglob("*")} == copied
    modules[1]["path"] = str(tmp_path / "a/secret") if outside == "absolute" else outside
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(UserError, match="leads out of the folder"):
        save_companions(open_checkpoint(str(folder)), tmp_path / "b/out")
