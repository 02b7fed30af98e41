"""Messages of `mybert predict` and `evaluate`: for each mistake, and each odd checkpoint, what the one line must say.

" … " in a message stands for anything.
"""

import os
import shutil
import sys
from pathlib import Path

import pytest
import torch
from json_files import change_json, write_files
from safetensors.torch import load_file, save_file

from mybert import Predictor, UserError

FILES = {
    "good.jsonl": [{"text": "a"}],
    "rows.jsonl": [{"text": "a"}, {"text": None}],
    "none.jsonl": [],
    "blank.txt": "\n \n",
    "bytes.txt": b"good\nb\xe4d\n",
    "cut.txt": 'ext": "cut off"}\n{"text": "a good film"}\n',  # as `tail -c` leaves it
    "lines.txt": "one line\n",
    "labels.jsonl": [{"text": "a", "label": "fine"}],
    "pairs.jsonl": [{"text": "a", "text_pair": "b", "label": "yes"}],
    "misspelt.jsonl": [{"premise": "a", "hypotesis": "b", "label": "no"}],
    "unusual.jsonl": [{"premise": "a", "sentence2": "b", "label": "no"}],
    "rows.xlsx": b"PK",
    "pipe.csv": os.mkfifo,
    "63": os.mkfifo,  # the shell names <(…) by a number
}
THRESHOLD = "expected LABEL=NUMBER or NUMBER"
PREDICT = [  # words of `mybert predict`, with the names of models in braces, and message
    ("{classifier} rows.jsonl", "rows.jsonl: 1 of 2 lines cannot be used: line 2: the text is missing"),
    ("{classifier} bytes.txt", "bytes.txt: 1 of 2 lines cannot be used: line 2: not UTF-8"),
    ("{classifier} nowhere.txt", "nowhere.txt: there is no such file"),
    ("{classifier} god.jsonl", "no such file; did you mean good.jsonl?"),
    ("{classifier} good.jsonl none.jsonl", "none.jsonl holds no rows"),
    ("{classifier} blank.txt", "blank.txt holds no rows"),
    ("{classifier} pipe.csv", "pipe.csv is a pipe; name a file"),
    ("{classifier} 63 63", "63 can be read only once; name it once"),
    ("{classifier} cut.txt", "line 2: a JSON object among texts"),
    ("{classifier} good.jsonl --output .", "output . is a folder; name a file"),
    ("{classifier} good.jsonl --output rows.jsonl/p.jsonl", "output rows.jsonl/p.jsonl cannot be created: "),
    ("{classifier} good.jsonl --output good.jsonl --overwrite", "output good.jsonl is the input good.jsonl"),
    ("{classifier} good.jsonl --output rows.jsonl --overwrite", "rows.jsonl was not made by mybert"),
    ("{classifier} good.jsonl --output /dev/stdout --overwrite", "/dev/stdout"),
    ("{classifier} good.jsonl --output p.xlsx", ".jsonl, .csv, .tsv, .parquet"),
    ("{classifier} good.jsonl --output p", ".jsonl, .csv, .tsv, .parquet"),
    ("{classifier} good.jsonl --output p.jsonl --spreadsheet-safe", "--spreadsheet-safe has no effect"),
    ("{classifier} good.jsonl --columns text=texd", "has no column 'texd' (did you mean 'text'?)"),
    ("{classifier} good.jsonl --columns txt=text --errors skip", "--columns txt=text: text"),
    ("{classifier} good.jsonl --bf16 true", "did you mean '--dtype"),
    (
        "{classifier} good.jsonl --stride 4",
        "--stride has no effect without --long-texts window; add that, or leave it out",
    ),
    ("{classifier} good.jsonl --problem multi-label", "--problem multi-label: … single_label_classification"),
    ("{classifier} good.jsonl --threshold x=0.5", "--threshold x=…: the labels are bad, good, odd"),
    ("{classifier} good.jsonl --threshold bad=1.5", f"--threshold bad=1.5: {THRESHOLD}"),
    ("{classifier} good.jsonl --threshold bad=nan", f"--threshold bad=nan: {THRESHOLD}"),
    ("{classifier} good.jsonl --threshold bad", f"--threshold bad: {THRESHOLD}"),
    ("{classifier} good.jsonl --threshold bad=0.1 bad=0.2", "bad is given twice"),
    ("{regression} good.jsonl --threshold 0.5", "no effect on a regression"),
    ("{pairs} lines.txt", "reads JSON lines with text, text_pair"),
    *(
        (f"{{{model}}} good.jsonl --task {task}", f"--task … has the head of {own}; leave --task out")
        for model, task, own in (
            ("classifier", "ner", "text-classification"),
            ("tagger", "sentiment", "token-classification"),
            ("chooser", "qa", "multiple-choice"),
        )
    ),
    ("{filler} good.jsonl", "is not fine-tuned (it is BertForPreTraining)"),
    ("{filler} good.jsonl --task sentiment", "lacks 2 weights, such as classifier.bias; fine-tune it"),
]
EVALUATE = [  # words of `mybert evaluate`, and message
    ("--model {pairs} --data misspelt.jsonl", "misspelt.jsonl has no column for 'text_pair'"),
    (
        "--model {pairs} --data unusual.jsonl",
        "'premise' and 'sentence2' are no usual pair; name both by --columns",
    ),
    (
        "--model {pairs} --data pairs.jsonl --suspects doccano",
        "--suspects doccano: doccano shows one text … use label-studio",
    ),
    (
        "--model {classifier} --data labels.jsonl",
        "line 1: the label 'fine' is not among the 3 trained on (bad, good, odd)",
    ),
]
COMMANDS = [(f"predict {words}", message) for words, message in PREDICT]
COMMANDS += [(f"evaluate {words} --output scores", message) for words, message in EVALUATE]


@pytest.fixture
def refused(assert_refused, models, tmp_path):
    """A function from a command, with names of models in braces, and the message with which it refuses."""
    write_files(tmp_path, FILES)

    def check(command: str, message: str) -> None:
        words = [str(models(word.strip("{}"))) if word[0] == "{" else word for word in command.split()]
        assert_refused([*words, "--device", "cpu"], message)

    return check


@pytest.mark.parametrize(("command", "message"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_a_mistake_is_one_line_and_no_file_is_written(refused, command, message):
    refused(command, message)


@pytest.mark.parametrize(
    ("module", "command", "message"),
    [
        (
            "openpyxl",
            "{classifier} rows.xlsx",
            "rows.xlsx needs openpyxl: pip install 'mybert[xlsx]', or save the sheet",
        ),
        ("onnxruntime", "onnx good.jsonl", "pip install 'mybert[onnx]'"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(onnx, refused, monkeypatch, module, command, message):
    monkeypatch.setitem(sys.modules, module, None)
    refused(f"predict {command}", message)


@pytest.mark.parametrize(("file", "content"), [("tokenizer.json", '{"model": 3}'), ("tokenizer_config.json", "[1]")])
def test_a_damaged_tokenizer_is_named(classifier, refused, tmp_path, file, content):
    shutil.copytree(classifier, tmp_path / "damaged")
    write_files(tmp_path / "damaged", {file: content})
    refused("predict damaged good.jsonl", "damaged: its tokenizer is damaged ( … copy its tokenizer.json and")


@pytest.fixture
def onnx(classifier, tmp_path):
    """A folder with a graph that was cut off."""
    shutil.copytree(classifier, tmp_path / "onnx", ignore=shutil.ignore_patterns("*.safetensors"))
    write_files(tmp_path / "onnx", {"onnx/model.onnx": b"cut off"})


@pytest.mark.parametrize(
    ("words", "message"),
    [("--dtype bfloat16", "float32; leave out --device and --dtype"), ("", "onnx/onnx/model.onnx cannot be read")],
)
def test_an_onnx_folder_that_cannot_be_used_is_refused(onnx, refused, words, message):
    refused(f"predict onnx good.jsonl {words}", message)


def odd(finetuned=(), tokenizer=(), weights=(), **config) -> dict:
    """What is changed in a checkpoint; without `finetuned` it is one of another program."""
    return {"finetuned": finetuned, "tokenizer": tokenizer, "weights": weights, "config": config}


def activation(name: str) -> dict:
    return odd(problem_type=None, finetuned=None, sentence_transformers={"activation_fn": name})


ADDED = [
    "bert.encoder.layer.0.attention.self.query.lora_A.default.weight",
    "bert.encoder.layer.0.adapter.down.weight",
    "bert.embeddings.task_type_embeddings.weight",
    "classifier.out_proj.weight",
]
OTHER_TYPE = "a value of another type; correct or remove it"
CHANGED = [  # a model, what is changed in it, and message
    ("trained", odd(finetuned={"max_length": "128"}), f"has max_length = '128', {OTHER_TYPE}"),
    ("trained", odd(finetuned={"task": ["text-classification"]}), "has task = ['text-classification']"),
    ("trained", odd(finetuned={"columns": "text=body"}), f"has columns = 'text=body', {OTHER_TYPE}"),
    ("trained", odd(finetuned={"max_length": 2}), "config.json: --max-length: expected 8 or more, found 2"),
    ("trained", odd(id2label={"0": "1", "1": 1}), "`id2label` in its config.json has '1' twice; rename one"),
    (
        *("trained", odd(finetuned=None, problem_type="classification")),
        "problem_type in its config.json is 'classification'",
    ),
    ("trained", odd(finetuned=None, problem_type="regression"), "predicts 2 numbers for a text"),
    (
        *("trained", odd(finetuned=None, id2label={"1": "bad", "2": "good"})),
        "numbers the labels 1, 2, expected 0 to 1",
    ),
    ("trained", odd(finetuned={"task": "sst2"}), "`finetuned` in its config.json has task = 'sst2'"),
    *(
        ("trained", odd(tokenizer={"model_max_length": n}), f"model_max_length in tokenizer_config.json is {n!r}")
        for n in ("16", 0, -1)
    ),
    *(
        ("trained", odd(weights={name: [1.0]}), f"has 1 weight that BERT does not have, such as {name}")
        for name in ADDED
    ),
    (
        "trained",
        odd(weights={"classifier.bias": [0.0, float("nan")]}),
        "logits are NaN or infinite: … copy it again, or train it with",
    ),
    *(
        ("tagger", odd(word_rules=rules), "changed: word_rules must be an object … correct it in config.json")
        for rules in ("x", [1], {"left": 3}, {"words": 7})
    ),
    ("regression", activation("custom.Act"), "the activation 'custom.Act' is not one of torch.nn"),
    ("classifier", activation("torch.nn.modules.activation.Tanh"), "gives no probabilities"),
]


@pytest.mark.parametrize(("model", "change", "message"), CHANGED)
def test_a_checkpoint_that_has_no_meaning_is_named(refused, models, classifier, tmp_path, model, change, message):
    folder = Path(shutil.copytree(classifier if model == "trained" else models(model), tmp_path / "changed"))
    change_json(folder / "tokenizer_config.json", **dict(change["tokenizer"]))
    weights = {name: torch.tensor(values) for name, values in dict(change["weights"]).items()}
    save_file(load_file(folder / "model.safetensors") | weights, folder / "model.safetensors", {"format": "pt"})
    config = change["config"]
    if change["finetuned"] is None:
        config = config | {"finetuned": None}
    elif change["finetuned"]:
        config = config | {"finetuned": {"task": "text-classification"} | change["finetuned"]}
    change_json(folder / "config.json", **config)
    refused("predict changed pairs.jsonl", message)


@pytest.mark.parametrize(
    ("rows", "errors", "message"),
    [
        (["a", {"text": None}, 7], "strict", r"2 of 3 rows .*: row 2: the text is missing; row 3: .* int"),
        (["a", {"text": None}], "strct", r"errors: expected strict or skip, found 'strct'"),
        (("a", "b"), "strict", r"2 values; the model reads 1: text"),
    ],
)
def test_rows_that_a_predictor_cannot_read_are_named(classifier, rows, errors, message):
    with pytest.raises(UserError, match=message):
        Predictor(classifier, device="cpu")(rows, errors=errors)
