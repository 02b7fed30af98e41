"""Export to ONNX: every head against the model on new batches, int8, and invalid input."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from json_files import change_json

import modeling_mybert
from mybert import cli
from mybert.artifacts.manifest import read_manifest
from mybert.common.errors import UserError
from mybert.inference.onnx_model import onnx_outputs
from mybert.release.convert.compare_models import largest_differences, outputs_of, ragged_batches
from mybert.release.convert.export import export, write_int8
from mybert.release.settings import ExportSettings

OUTPUTS = {
    "Model": ["last_hidden_state", "pooler_output"],
    "ForPreTraining": ["prediction_logits", "seq_relationship_logits"],
    "ForMaskedLM": ["logits"],
    "ForNextSentencePrediction": ["logits"],
    "ForSequenceClassification": ["logits"],
    "ForTokenClassification": ["logits"],
    "ForQuestionAnswering": ["start_logits", "end_logits"],
    "ForMultipleChoice": ["logits"],
}


def to_onnx(checkpoint, output, **more):
    return export(ExportSettings(model=str(checkpoint), output=str(output), **more))


TASK = {"task": "the task", "max_length": 48}


@pytest.fixture(scope="module")
def tagger(models, tmp_path_factory) -> tuple[Path, Path]:
    """The folders of a token classifier and of its export."""
    folder = tmp_path_factory.mktemp("tagger")
    shutil.copytree(models("tagger"), folder / "source")
    change_json(folder / "source/config.json", finetuned=TASK)
    return folder / "source", to_onnx(folder / "source", folder / "onnx")


@pytest.fixture(params=["ForPreTraining", "ForTokenClassification", "ForMultipleChoice"])
def exported(request, tagger, saved_head, tmp_path) -> tuple[str, Path, Path]:
    """A head, the folder of its model, and that of its export.

    Each export takes seconds. Other tests export the other heads, whose graphs are parts of these.
    """
    if request.param == "ForTokenClassification":
        return request.param, *tagger
    source = saved_head(f"MyBert{request.param}", num_hidden_layers=1, finetuned=TASK)
    return request.param, source, to_onnx(source, tmp_path / "onnx")


def test_a_head_has_the_same_named_outputs_on_any_shape(exported):
    head, source, folder = exported
    session = onnxruntime.InferenceSession(folder / "onnx/model.onnx")
    assert [output.name for output in session.get_outputs()] == OUTPUTS[head]
    model = getattr(modeling_mybert, f"MyBert{head}").from_pretrained(source).eval()
    for lengths in ([64], [1], [3, 1, 2], [10, 20, 5, 20]):
        mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
        batch = {"input_ids": torch.randint(5, 99, mask.shape) * mask, "attention_mask": mask}
        batch["token_type_ids"] = mask * (torch.arange(max(lengths)) > 1)
        if head == "ForMultipleChoice":
            batch = {name: torch.stack([x, x.flip(0), x], 1) for name, x in batch.items()}
        with torch.no_grad():
            expected = model(**batch)
        found = session.run(None, {name: x.numpy() for name, x in batch.items()})
        for name, array in zip(OUTPUTS[head], found, strict=True):
            assert array.shape == expected[name].shape
            real = mask.bool().numpy() if array.shape[:2] == mask.shape else ...
            np.testing.assert_allclose(array[real], expected[name].numpy()[real], rtol=1e-4, atol=1e-5)
    assert set(read_manifest(folder)["differences"]) == set(OUTPUTS[head])
    config = json.loads((folder / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("bert", [f"Bert{head}"])
    assert config["finetuned"] == TASK
    if head == "ForTokenClassification":
        assert config["id2label"] == {str(number): label for number, label in model.config.id2label.items()}
    assert (folder / "tokenizer.json").is_file()
    assert not list(folder.glob("*.py"))


def test_real_weights_in_float32_and_int8(minilm_folder, tmp_path, capsys):
    """Only the first layer, which takes less time."""
    source = tmp_path / "source"
    shutil.copytree(minilm_folder, source)
    change_json(source / "config.json", num_hidden_layers=1)
    folder = to_onnx(source, tmp_path / "onnx", int8=True)
    manifest, printed = read_manifest(folder), capsys.readouterr().out
    assert len(manifest["left_out"]) == 5 * 16
    assert 0 < max(manifest["differences"].values()) < 1e-5
    assert 0.01 < max(manifest["int8_errors"].values()) < 0.3
    for name, value in [*manifest["differences"].items(), *manifest["int8_errors"].items()]:
        assert name in printed
        assert f"{value:.4g}" in printed
    assert (folder / "onnx/model_quantized.onnx").stat().st_size < 0.3 * (folder / "onnx/model.onnx").stat().st_size
    weights = {
        tensor.data_type for tensor in onnx.load(folder / "onnx/model_quantized.onnx").graph.initializer if tensor.dims
    }
    assert onnx.TensorProto.INT8 in weights
    onnx.checker.check_model(folder / "onnx/model.onnx")


def test_differing_outputs_are_refused_and_nothing_is_written(tagger, tmp_path, monkeypatch, capsys):
    source, exported = tagger

    def write(model, folder):
        shutil.copytree(exported / "onnx", folder / "onnx")
        return {"logits": difference}

    monkeypatch.setattr("mybert.release.convert.export.write_onnx", write)
    words = ["export", str(source), "--output", str(tmp_path / "out"), "--int8"]
    difference = 0.0
    assert cli.main([*words, "--int8-tolerance", "1e-6"]) == 2
    assert "logits differs by" in capsys.readouterr().err.splitlines()[-1]
    difference = 2e-4
    assert cli.main(words) == 2
    assert "logits differs by 0.0002, above --tolerance" in capsys.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_without_the_optional_packages_the_install_command_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UserError, match=r"the export to ONNX needs onnxruntime: pip install 'mybert\[onnx\]'"):
        to_onnx("anything", tmp_path / "out")


def test_a_graph_with_other_weights_is_found(tagger, tmp_path):
    model = modeling_mybert.MyBertForTokenClassification.from_pretrained(tagger[0]).eval()
    assert read_manifest(tagger[1])["differences"]["logits"] < 1e-5
    shutil.copytree(tagger[1] / "onnx", tmp_path / "onnx")
    near = write_int8(model, tmp_path)
    model.bert.embeddings.LayerNorm.weight.data.neg_()
    graph = onnx_outputs(tmp_path / "onnx/model.onnx")
    assert largest_differences(lambda x: outputs_of(model, x), graph, ragged_batches(model))["logits"] > 0.1
    assert write_int8(model, tmp_path)["logits"] > 3 * near["logits"]
