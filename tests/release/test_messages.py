"""Messages of `mybert export`, `merge` and `quantize`, and of commands that read int8 weights."""

import json
import shutil

import pytest
import torch
from json_files import change_json, write_files
from safetensors.torch import load_file, save_file

from mybert.inference.cpu.int8 import int8_obstacle
from tokenization import SPECIAL_TOKENS, MyBertTokenizer

CLASSIFIER = "MyBertForSequenceClassification"
MERGED = [  # settings of two models, and message; " … " in a message stands for anything
    ({}, {"name": "MyBertForTokenClassification"}, "different heads"),
    ({}, {"last_piece": "q"}, "differ in their vocabulary"),
    ({}, {"cased": True}, "differ in their normalisation"),
    ({}, {"id2label": {0: "good", 1: "bad"}}, "different labels"),
    ({}, {"num_attention_heads": 2}, "num_attention_heads is 4 and 2"),
    ({}, {"tie_word_embeddings": False}, "tie_word_embeddings is True and False"),
    ({}, {"intermediate_size": 24}, "intermediate.dense.bias is (37,) in a and (24,) in b; merge"),
    ({}, {"num_hidden_layers": 3}, "bert.encoder.layer.2. … is missing"),
    *(
        ({name: first}, {name: second}, f"a and b have different settings: {name}")
        for name, first, second in (
            ("problem_type", "single_label_classification", "multi_label_classification"),
            ("tag_scheme", "IOB1", "IOB2"),
            ("finetuned", {"task": "text-classification"}, {"task": "own"}),
            ("finetuned", {"inputs": ["text"]}, {"inputs": ["text", "text_pair"]}),
        )
    ),
]


@pytest.mark.parametrize(("first", "second", "message"), MERGED)
def test_models_of_different_meaning(saved_head, assert_refused, first, second, message):
    for folder, settings in (("a", first), ("b", second)):
        saved_head(**{"name": CLASSIFIER, "folder": folder} | settings)
    assert_refused(["merge", "a", "b", "--output", "merged"], message)


def test_modules_after_the_encoder_that_would_not_be_averaged(saved_head, assert_refused):
    kinds = [{"type": f"sentence_transformers.models.{name}", "path": name} for name in ("Transformer", "Dense")]
    for number, folder in enumerate("ab"):
        model = saved_head("MyBertModel", folder)
        write_files(model, {"modules.json": json.dumps([kinds[0] | {"path": ""}, kinds[1]])})
        (model / "Dense").mkdir()
        save_file({"linear.weight": torch.full((2, 2), float(number))}, model / "Dense/model.safetensors")
    assert_refused(["merge", "a", "b", "--output", "merged"], "different weights in the modules after the encoder")


WEIGHTS = [(f"a b --weights {weights}", "--weights") for weights in ("1", "1 -1", "0 0", "1 nan", "1 inf")]


@pytest.mark.parametrize(
    ("words", "message"), [*WEIGHTS, *((words, "checkpoints, each once") for words in ("a", "a b a/"))]
)
def test_models_and_weights_without_an_average(assert_refused, words, message):
    assert_refused(["merge", *words.split(), "--output", "merged"], message)


def cut(folder) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])


def without_weights(folder) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin").write_bytes(b"")


def without_tokenizer(folder) -> None:
    for name in ("tokenizer.json", "vocab.txt"):
        (folder / name).unlink(missing_ok=True)


def with_many_tokens(folder) -> None:
    MyBertTokenizer([*SPECIAL_TOKENS, *(f"piece{number}" for number in range(500))]).save_pretrained(folder)


def with_nan(folder, value: float = torch.nan) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["encoder.layer.0.output.dense.weight"][3] = value
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def with_overflow(folder) -> None:
    with_nan(folder, 3e38)


EXPORT, QUANTIZE = "export model --output out", "quantize model --output out --texts"
NAN = (
    "model: encoder.layer.0.output.dense.weight has NaN or infinite values; … copy it again, or train it with a lower"
)
CHECKPOINTS = [  # words, a change of config.json or of the folder of the model, and message
    ("export nowhere --output out", {}, "nowhere: no such folder"),
    (f"{EXPORT} --int8-tolerance 0.1", {}, "--int8-tolerance has no effect without --int8"),
    (EXPORT, {"architectures": ["RobertaForMaskedLM"]}, "a RobertaForMaskedLM, which has no counterpart"),
    (
        *(EXPORT, {"architectures": ["BertForTokenClassification"]}),
        "lacks 2 weights, such as classifier.bias; they would be random in MyBertForTokenClassif",
    ),
    (EXPORT, {"model_type": "encoder-decoder"}, "model_type must be 'bert', … 'encoder-d"),
    (EXPORT, {"position_embedding_type": "relative_key"}, "must be 'absolute', the checkpoint has 'relat"),
    (EXPORT, {"vocab_size": 98}, "vocab_size in config.json is 98, and the weights have 124 … copy the checkpoint"),
    (EXPORT, {"num_hidden_layers": 0}, "num_hidden_layers must be at least 1"),
    (EXPORT, lambda folder: (folder / "config.json").unlink(), "no config.json; name a MyBERT or BERT checkpoint"),
    (EXPORT, lambda folder: (folder / "config.json").write_text("[]"), "config.json … expected a JSON object"),
    (EXPORT, cut, "model: its weights are damaged … copy it again"),
    (EXPORT, without_weights, "model cannot be used (EOFError)"),
    (EXPORT, with_many_tokens, "has 505 tokens, the model 124"),
    (f"{QUANTIZE} empty.txt", {}, "no document holds text; check the inputs and --text-column"),
    (f"{QUANTIZE} texts.txt", without_tokenizer, "checkpoint model has no tokenizer … ; copy its tokenizer.json"),
    (f"{QUANTIZE} texts.txt", with_nan, NAN),
    (f"{QUANTIZE} texts.txt", with_overflow, "computes NaN or infinity; its weights are damaged; copy it again"),
    (EXPORT, with_nan, NAN),
]


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "texts.txt").write_text("the great film sings\nann bert in rome\n" * 4)


@pytest.mark.parametrize(("words", "change", "message"), CHECKPOINTS)
def test_a_checkpoint_that_cannot_be_used(models, texts, tmp_path, assert_refused, words, change, message):
    if words.startswith("quantize") and (obstacle := int8_obstacle()):
        pytest.skip(obstacle)
    shutil.copytree(models("encoder"), tmp_path / "model")
    if callable(change):
        change(tmp_path / "model")
    else:
        change_json(tmp_path / "model/config.json", **change)
    assert_refused(words.split(), message)


FLOAT = "has int8 weights; name the checkpoint that it was quantised from"
UNTRAINED = "has int8 weights, which cannot be trained; name the checkpoint that it was quantised from"
ONLY_FLOAT = "int8 weights runs on the CPU in float32; leave out --device and --dtype"
NO_INT8 = "model has no int8 weights; run `mybert quantize model --texts FILES --output int8` and use the folder int8"
INT8 = [
    ("export int8 --output out", FLOAT),
    ("merge int8 model --output out", FLOAT),
    ("quantize int8 --texts texts.txt --output out", FLOAT),
    ("finetune --model int8 --task sentiment --train missing.jsonl --output out", UNTRAINED),  # before rows are read
    ("adapt texts.txt --model int8 --output out", UNTRAINED),
    ("explain int8 texts.txt --output out.jsonl", "int8 weights have no gradients; use --method occlusion"),
    ("embed int8 texts.txt --dtype bfloat16 --output out.npy", ONLY_FLOAT),
    ("predict int8 texts.txt --dtype bfloat16 --output out.jsonl", ONLY_FLOAT),
    ("embed model texts.txt --dtype int8 --output out.npy", NO_INT8),
    ("predict model texts.txt --dtype int8 --output out.jsonl", NO_INT8),
]


@pytest.mark.skipif(int8_obstacle() is not None, reason=str(int8_obstacle()))
@pytest.mark.parametrize(("words", "message"), INT8)
def test_what_int8_weights_cannot_do(models, quantised, texts, tmp_path, assert_refused, words, message):
    for name, source in (("model", models("classifier")), ("int8", quantised("classifier"))):
        shutil.copytree(source, tmp_path / name)
    assert_refused(words.split(), message)
