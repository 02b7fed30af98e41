"""Import of google-research/bert checkpoints: outputs against BERT's formula in NumPy, and invalid files."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from json_files import change_json
from transformers import AutoTokenizer

from modeling_mybert import MyBertForPreTraining
from mybert import cli
from mybert.common.errors import UserError
from mybert.common.manifest import read_manifest
from mybert.release.convert.import_bert import import_bert
from mybert.release.convert.import_tensorflow import load_tensorflow_checkpoint, pytorch_name
from mybert.release.convert.tensorflow_checkpoint import TensorFlowCheckpoint
from mybert.release.settings import ImportSettings, find_prefix

FOLDER = Path(__file__).with_name("tensorflow_checkpoint")
PREFIX = FOLDER / "bert_model.ckpt"


@pytest.fixture
def source(tmp_path) -> Path:
    shutil.copytree(FOLDER, tmp_path / "source")
    return tmp_path / "source"


class Renamed(TensorFlowCheckpoint):
    """The checkpoint with tensors removed or renamed."""

    def __init__(self, changes: dict[str, str | None]):
        super().__init__(PREFIX)
        for old, new in changes.items():
            for slot in ("", "/adam_m", "/adam_v"):
                entry = self.entries.pop(f"{old}{slot}")
                if new:
                    self.entries[f"{new}{slot}"] = entry


def google(tensors, ids: np.ndarray, segments: np.ndarray, heads: int) -> tuple[np.ndarray, np.ndarray]:
    """BERT's outputs for one sequence in NumPy, with the names and layout of google-research/bert.

    Returns:
        Logits of the vocabulary (S, V) and of the next sentence (2,).
    """
    erf = np.vectorize(math.erf)

    def dense(x, name):
        return x @ tensors[f"{name}/kernel"] + tensors[f"{name}/bias"]

    def norm(x, name):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        return x * tensors[f"{name}/LayerNorm/gamma"] + tensors[f"{name}/LayerNorm/beta"]

    def gelu(x):
        return x * 0.5 * (1 + erf(x / math.sqrt(2)))

    def split(x):
        return x.reshape(len(x), heads, -1).transpose(1, 0, 2)

    table = {part: tensors[f"bert/embeddings/{part}_embeddings"] for part in ("word", "token_type", "position")}
    x = table["word"][ids] + table["token_type"][segments] + table["position"][: len(ids)]
    x = norm(x, "bert/embeddings")
    layer = "bert/encoder/layer_0"
    query, key, value = (split(dense(x, f"{layer}/attention/self/{part}")) for part in ("query", "key", "value"))
    scores = np.exp(query @ key.transpose(0, 2, 1) / math.sqrt(query.shape[-1]))
    mixed = (scores / scores.sum(-1, keepdims=True) @ value).transpose(1, 0, 2).reshape(x.shape)
    x = norm(x + dense(mixed, f"{layer}/attention/output/dense"), f"{layer}/attention/output")
    x = norm(x + dense(gelu(dense(x, f"{layer}/intermediate/dense")), f"{layer}/output/dense"), f"{layer}/output")
    pooled = np.tanh(dense(x[0], "bert/pooler/dense"))
    next_sentence = pooled @ tensors["cls/seq_relationship/output_weights"].T
    y = norm(gelu(dense(x, "cls/predictions/transform/dense")), "cls/predictions/transform")
    return (
        y @ table["word"].T + tensors["cls/predictions/output_bias"],
        next_sentence + tensors["cls/seq_relationship/output_bias"],
    )


def test_the_folder_says_what_googles_formula_says_and_the_optimizer_stays_behind(tmp_path, capsys):
    assert cli.main(["import", str(FOLDER), "--output", str(tmp_path / "out")]) == 0
    model, report = MyBertForPreTraining.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    ids, segments = np.array([2, 5, 6, 4, 11, 3]), np.array([0, 0, 0, 1, 1, 1])
    expected = google(TensorFlowCheckpoint(PREFIX), ids, segments, heads=2)
    with torch.no_grad():
        found = model.eval()(torch.tensor(ids)[None], token_type_ids=torch.tensor(segments)[None])
    np.testing.assert_allclose(found.prediction_logits[0].numpy(), expected[0], atol=2e-5)
    np.testing.assert_allclose(found.seq_relationship_logits[0].numpy(), expected[1], atol=2e-5)
    manifest = read_manifest(tmp_path / "out")
    assert (manifest["tensors"], manifest["optimizer_tensors_skipped"], manifest["left_out"]) == (30, 61, [])
    assert "directionality" in capsys.readouterr().out


def test_the_tokenizer_and_the_auto_map_are_saved(tmp_path):
    output = import_bert(ImportSettings(model=str(PREFIX), output=str(tmp_path / "out")))
    tokenizer = AutoTokenizer.from_pretrained(output)
    assert tokenizer("The cats sat")["input_ids"] == [2, 5, 6, 11, 7, 3]
    assert tokenizer.model_max_length == 8
    assert "AutoModelForMaskedLM" in json.loads((output / "config.json").read_text())["auto_map"]
    assert (output / "modeling_mybert.py").is_file()
    assert "sha256" in json.loads((output / "manifest.json").read_text())["inputs"]["checkpoint"], (
        "not a name on the Hub"
    )


@pytest.mark.parametrize(
    ("last", "casing", "lower"), [("##s", "auto", True), ("Mat", "auto", False), ("Mat", "uncased", True)]
)
def test_casing_is_that_of_the_vocabulary_unless_given(source, last, casing, lower):
    pieces = (source / "vocab.txt").read_text().split()
    (source / "vocab.txt").write_text("\n".join([*pieces[:-1], last]) + "\n")
    checkpoint, found = load_tensorflow_checkpoint(str(source / "bert_model.ckpt"), casing)
    assert checkpoint.tokenizer.do_lower_case is lower
    assert found["casing"] == ("uncased" if lower else "cased")


@pytest.mark.parametrize(
    ("masked_words", "second_head", "head"),
    [
        (True, None, "ForMaskedLM"),
        (False, "cls/seq_relationship/", "ForNextSentencePrediction"),
        (False, "cls/squad/", "ForQuestionAnswering"),
        (False, "", "ForSequenceClassification"),
        (False, None, "Model"),
    ],
)
def test_the_head_is_the_one_whose_tensors_exist(monkeypatch, masked_words, second_head, head):
    outputs = ("output_weights", "output_bias")
    changes = {f"cls/seq_relationship/{x}": None if second_head is None else f"{second_head}{x}" for x in outputs}
    if not masked_words:
        changes["cls/predictions/output_bias"] = None
    stored = Renamed(changes)
    monkeypatch.setattr("mybert.release.convert.import_tensorflow.TensorFlowCheckpoint", lambda prefix: stored)
    checkpoint, found = load_tensorflow_checkpoint(str(PREFIX), "auto")
    assert type(checkpoint.model).__name__ == f"MyBert{head}"
    weights = {f"bert.{name}" if head == "Model" else name: x for name, x in checkpoint.model.state_dict().items()}
    taken = [name for name in stored if pytorch_name(name) in weights]
    assert len(taken) == found["tensors"] > 20
    for name in taken:
        array = stored[name].T if name.endswith("kernel") else stored[name]
        np.testing.assert_array_equal(weights[pytorch_name(name)].numpy(), array)
    rest = {name for name in stored if name not in taken and not name.endswith(("adam_m", "adam_v", "global_step"))}
    assert set(checkpoint.left_out) == rest


def test_an_unknown_tensor_is_named_and_left_out(monkeypatch, tmp_path, capsys):
    stored = Renamed({})
    stored.entries["my/own/head"] = stored.entries["bert/pooler/dense/bias"]
    monkeypatch.setattr("mybert.release.convert.import_tensorflow.TensorFlowCheckpoint", lambda prefix: stored)
    output = import_bert(ImportSettings(model=str(PREFIX), output=str(tmp_path / "out")))
    assert read_manifest(output)["left_out"] == ["my/own/head"]
    assert "my/own/head" in capsys.readouterr().out


def test_a_checkpoint_that_lacks_a_tensor_of_the_encoder_is_refused(monkeypatch):
    monkeypatch.setattr(
        "mybert.release.convert.import_tensorflow.TensorFlowCheckpoint",
        lambda prefix: Renamed({"bert/encoder/layer_0/output/dense/kernel": "electra/kernel"}),
    )
    with pytest.raises(UserError, match=r"lacks 1 tensors of .*, such as bert.encoder.layer.0.output.dense.weight"):
        load_tensorflow_checkpoint(str(PREFIX), "auto")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bert_config.json", None, "bert_config.json is missing"),
        ("bert_config.json", "[]", "bert_config.json is not a BERT configuration"),
        ("bert_config.json", '{"hidden_size": -4}', "hidden_size must be at least 1"),
        ("vocab.txt", None, "vocab.txt is missing"),
        (
            "vocab.txt",
            "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n",
            "vocab.txt has 5 pieces, bert_config.json has vocab_size 12",
        ),
        ("vocab.txt", "the\n", "lacks the special tokens"),
        ("bert_model.ckpt.data-00000-of-00001", None, "data-00000-of-00001 is missing"),
    ],
)
def test_a_missing_or_wrong_file_is_one_message_and_nothing_is_left(source, tmp_path, capsys, name, content, message):
    (source / name).unlink()
    if content is not None:
        (source / name).write_text(content)
    assert cli.main(["import", str(source), "--output", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("mybert import: error: ")
    assert message in error
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_configuration_of_another_size_is_refused(source):
    change_json(source / "bert_config.json", intermediate_size=7)
    with pytest.raises(UserError, match=r"intermediate_size in bert_config.json is 7, and the weights have 6"):
        load_tensorflow_checkpoint(str(source / "bert_model.ckpt"), "auto")


def test_a_checkpoint_is_found_by_its_folder_its_path_and_any_of_its_files(source, minilm_folder):
    prefix = str(source / "bert_model.ckpt")
    for name in (source, prefix, f"{prefix}.index", f"{prefix}.data-00000-of-00001"):
        assert find_prefix(str(name)) == prefix
    assert find_prefix(str(minilm_folder)) is None
    assert find_prefix("google-bert/bert-base-uncased") is None
    shutil.copy(f"{prefix}.index", source / "model.ckpt-20.index")
    with pytest.raises(UserError, match=r"several checkpoints, bert_model.ckpt, model.ckpt-20; name one"):
        find_prefix(str(source))
