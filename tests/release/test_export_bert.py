"""Export to BERT and import back: the same tensors, outputs, labels and files, for every head and real weights."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, BertModel

import modeling_mybert
from modeling_mybert import MyBertModel
from mybert import cli
from mybert.common.errors import UserError
from mybert.common.manifest import read_manifest
from mybert.release.convert.compare_models import ragged_batches
from mybert.release.convert.export import export
from mybert.release.convert.full_checkpoint import load_checkpoint
from mybert.release.convert.import_bert import import_bert
from mybert.release.settings import ExportSettings, ImportSettings

HEADS = [
    *("Model", "ForPreTraining", "ForMaskedLM", "ForNextSentencePrediction", "ForSequenceClassification"),
    *("ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice"),
]


def to_bert(checkpoint, output, **more):
    return export(ExportSettings(model=str(checkpoint), to="bert", output=str(output), **more))


@pytest.mark.parametrize("head", HEADS)
def test_every_head_loads_by_transformers_class_and_imports_back(saved_head, tmp_path, head):
    source = saved_head(f"MyBert{head}", num_labels=2 if head == "ForQuestionAnswering" else 3)
    folder = to_bert(source, tmp_path / "bert")
    theirs, report = getattr(transformers, f"Bert{head}").from_pretrained(folder, output_loading_info=True)
    assert not any(report.values())
    ours = getattr(modeling_mybert, f"MyBert{head}").from_pretrained(source)
    for batch in ragged_batches(ours, seed=7):
        with torch.no_grad():
            expected, found = ours.eval()(**batch), theirs.eval()(**batch)
        real = batch["attention_mask"].bool()
        for name in expected.keys() - {"past_key_values", "cache"}:  # its name since transformers 5.24
            a, b = expected[name], found[name]
            a, b = (a[real], b[real]) if a.shape[: real.dim()] == real.shape else (a, b)
            torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)
    back = import_bert(ImportSettings(model=str(folder), output=str(tmp_path / "back")))
    before, after = load_file(source / "model.safetensors"), load_file(back / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    for file in ("tokenizer.json", "vocab.txt"):
        assert (source / file).read_text() == (back / file).read_text()
    before, after = (json.loads((path / "config.json").read_text()) for path in (source, back))
    assert {name: after.get(name) for name in before} == before


def test_the_export_is_a_plain_bert_without_remote_code(saved_head, tmp_path):
    folder = to_bert(saved_head("MyBertForPreTraining"), tmp_path / "bert")
    assert not [path.name for path in folder.iterdir() if path.suffix in (".py", ".bin")]
    config = json.loads((folder / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("bert", ["BertForPreTraining"])
    assert not {"auto_map", "custom_pipelines"} & config.keys()
    assert config["position_embedding_type"] == "absolute"  # CTranslate2 4.8 requires it
    model = transformers.AutoModelForPreTraining.from_pretrained(folder, trust_remote_code=False)
    assert type(model) is transformers.BertForPreTraining
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    assert tokenizer("piece0 piece3")["input_ids"] == [2, 5, 8, 3]


def test_labels_and_task_settings_are_kept(saved_head, tmp_path):
    labels = {0: "bad", 1: "fair", 2: "good"}
    settings = {"id2label": labels, "label2id": {name: i for i, name in labels.items()}}
    source = saved_head("MyBertForSequenceClassification", problem_type="multi_label_classification", **settings)
    config = transformers.AutoConfig.from_pretrained(to_bert(source, tmp_path / "bert"))
    assert config.id2label == labels
    assert config.problem_type == "multi_label_classification"


def test_question_answering_has_two_outputs_for_any_number_of_labels(saved_head, tmp_path):
    """transformers' BERT sizes this head by num_labels and fails on any number but two."""
    folder = to_bert(saved_head("MyBertForQuestionAnswering", num_labels=5), tmp_path / "bert")
    assert transformers.BertForQuestionAnswering.from_pretrained(folder).config.num_labels == 2


def test_half_precision_stays_half(tiny_config, tmp_path):
    MyBertModel(tiny_config).to(torch.bfloat16).save_pretrained(tmp_path / "mybert")
    weights = load_file(to_bert(tmp_path / "mybert", tmp_path / "bert") / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}


def test_a_real_checkpoint_is_unchanged_and_stays_a_sentence_transformer(minilm_folder, tmp_path):
    ours = import_bert(ImportSettings(model=str(minilm_folder), output=str(tmp_path / "mybert")))
    plain = to_bert(ours, tmp_path / "bert")
    before, after = (load_file(folder / "model.safetensors") for folder in (minilm_folder, plain))
    assert before.keys() - after.keys() == {"embeddings.position_ids"}  # a constant of older transformers
    assert after.keys() <= before.keys()
    assert all(torch.equal(before[name], after[name]) for name in after)
    for folder in (ours, plain):
        differences = read_manifest(folder)["differences"]
        assert differences.keys() == {"last_hidden_state", "pooler_output"}
        assert max(differences.values()) < 1e-5
    texts = ["A cat sat on the mat.", "Ein Satz, déjà vu — 東京", "[MASK] unaffable"]
    one, other = (AutoTokenizer.from_pretrained(folder)(texts)["input_ids"] for folder in (minilm_folder, plain))
    assert one == other
    expected, found = (SentenceTransformer(str(folder)).encode(texts) for folder in (minilm_folder, plain))
    assert abs(expected - found).max() < 1e-6


def test_differing_outputs_are_refused_and_nothing_is_written(saved_head, tmp_path, monkeypatch, capsys):
    source = saved_head("MyBertForMaskedLM")
    save = BertForMaskedLM.save_pretrained

    def spoil(model, folder, **kwargs):
        bias = model.bert.encoder.layer[1].output.dense.bias
        bias.data = bias.data * 1.05
        save(model, folder, **kwargs)

    monkeypatch.setattr(BertForMaskedLM, "save_pretrained", spoil)
    assert cli.main(["export", str(source), "--to", "bert", "--output", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "logits differs by 0.0" in error
    assert "above --tolerance 0.0001" in error
    assert [path.name for path in tmp_path.iterdir()] == [source.name]


def test_nan_outputs_are_refused(saved_head, tmp_path, monkeypatch):
    monkeypatch.setattr("mybert.release.convert.export.write_bert", lambda model, folder: {"logits": float("nan")})
    with pytest.raises(UserError, match="logits differs by nan"):
        to_bert(saved_head("MyBertForMaskedLM"), tmp_path / "out")


def test_an_import_with_differing_outputs_is_refused_and_nothing_is_written(tmp_path, capsys):
    """A causal BertModel has the weights of an encoder; a NaN in the weights is in both outputs."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 37}
    causal = BertModel(BertConfig(**sizes, is_decoder=True))
    causal.save_pretrained(tmp_path / "causal")
    spoilt = BertForMaskedLM(BertConfig(**sizes))
    spoilt.cls.predictions.bias.data[3] = torch.nan
    spoilt.save_pretrained(tmp_path / "spoilt")
    for name, message in (("causal", "last_hidden_state differs by"), ("spoilt", "logits differs by nan")):
        assert cli.main(["import", str(tmp_path / name), "--output", str(tmp_path / "out")]) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert message in error
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output", "o", "--to", "bert"], "MODEL"),
        (["c", "--to", "bert"], "required: --output"),
        (["c", "--output", "o"], "required: --to"),
        (["c", "--output", "o", "--to", "tflite"], "'tflite' (choose from 'bert', 'onnx')"),
        (["c", "--output", "o", "--to", "bert", "--int8"], "--int8 needs --to onnx"),
        (["c", "--output", "o", "--to", "bert", "--tolerance", "0"], "--tolerance: expected a positive number"),
        (["nowhere", "--output", "o", "--to", "bert"], "nowhere: no such folder"),
    ],
)
def test_invalid_settings_are_one_message(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["export", *arguments]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_an_existing_folder_is_replaced_only_with_overwrite(saved_head, tmp_path):
    source = saved_head("MyBertModel")
    folder = to_bert(source, tmp_path / "bert")
    with pytest.raises(UserError, match="--overwrite"):
        to_bert(source, folder)
    to_bert(source, folder, overwrite=True)
    assert load_checkpoint(str(folder)).tokenizer is not None
