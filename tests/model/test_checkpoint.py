"""Saved folders load with every Auto class, in a process without this project, and as plain BERT."""

import copy
import json

import pytest
import torch
from safetensors import safe_open
from transformers import Trainer, TrainingArguments

import modeling_mybert
from modeling_mybert import AUTO_MAP, MyBertConfig, MyBertForMaskedLM, MyBertModel

HEADS = [getattr(modeling_mybert, name.split(".")[1]) for auto, name in AUTO_MAP.items() if auto != "AutoConfig"]

LOAD_ALL = """
import json, torch, transformers
classes, folders = json.loads(sys.argv[1]), sys.argv[2:]
ids = torch.tensor([[2, 7, 9, 3]])
for folder in folders:
    found = {}
    assert transformers.AutoConfig.from_pretrained(folder, trust_remote_code=True).model_type == "bert"
    for name in classes:
        model, report = getattr(transformers, name).from_pretrained(
            folder, trust_remote_code=True, output_loading_info=True, ignore_mismatched_sizes=True
        )
        with torch.no_grad():
            outputs = model.eval()(ids[:, None] if name == "AutoModelForMultipleChoice" else ids)
        found[name] = type(model).__name__, outputs[0].flatten().tolist(), sorted(
            {*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])}
        )
    print(json.dumps(found))
"""
CLASSES = [auto for auto in AUTO_MAP if auto != "AutoConfig"]


def load_all(run_foreign, *folders) -> list[dict]:
    """For each folder and Auto class: the name of the model class, its first output, and the names of new weights."""
    return [json.loads(line) for line in run_foreign(LOAD_ALL, json.dumps(CLASSES), *folders)]


def test_a_folder_of_trainer_carries_the_whole_map_and_the_code(tiny_config, tmp_path):
    Trainer(MyBertForMaskedLM(tiny_config), TrainingArguments(str(tmp_path), report_to="none")).save_model()
    assert json.loads((tmp_path / "config.json").read_text())["auto_map"] == AUTO_MAP
    code = {path.name for path in tmp_path.glob("*.py")}
    assert {name.split(".")[0] + ".py" for name in AUTO_MAP.values()} <= code
    assert not list(tmp_path.glob("*model*.bin"))
    assert (tmp_path / "model.safetensors").is_file()


def weights_of(model) -> set[tuple]:
    """Names and shapes of the saved weights, without the prefix of the encoder."""
    tied, state = model._tied_weights_keys or {}, model.state_dict()
    return {(name.removeprefix("bert."), state[name].shape) for name in state if name not in tied}


def test_every_auto_class_loads_saved_heads_in_a_process_without_this_project(tiny_config, tmp_path, run_foreign):
    """Heads of pretraining, of an encoder with a pooler, and of one without; the loading of each is shared code."""
    models = [head(copy.copy(tiny_config)).eval() for head in HEADS]
    saved = [models[CLASSES.index(f"AutoModel{name}")] for name in ("ForPreTraining", "", "ForQuestionAnswering")]
    for number, model in enumerate(saved):
        model.save_pretrained(tmp_path / str(number))
    matrix = load_all(run_foreign, *(tmp_path / str(number) for number in range(len(saved))))

    ids = torch.tensor([[2, 7, 9, 3]])
    for model, found in zip(saved, matrix, strict=True):
        assert list(found) == CLASSES
        for auto, other in zip(CLASSES, models, strict=True):
            name, _, new = found[auto]
            assert name == type(other).__name__
            expected = {name for name, _ in weights_of(other) - weights_of(model)}
            assert {key.removeprefix("bert.") for key in new} - set(other._tied_weights_keys or {}) == expected
        own = CLASSES[models.index(model)]
        with torch.no_grad():
            outputs = model(ids)
        assert found[own][1] == pytest.approx(outputs[0].flatten().tolist(), abs=1e-6)


def test_a_configuration_saved_alone_carries_what_its_map_names(tmp_path):
    MyBertConfig.from_size("tiny").save_pretrained(tmp_path)
    modules = {name.split(".")[0] for name in json.loads((tmp_path / "config.json").read_text())["auto_map"].values()}
    assert all((tmp_path / f"{module}.py").is_file() for module in modules)


def test_a_bert_checkpoint_comes_in_and_goes_out_without_a_key_missing(minilm_folder, tmp_path):
    model, report = MyBertModel.from_pretrained(minilm_folder, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["mismatched_keys"]
    model.save_pretrained(tmp_path)
    with (
        safe_open(minilm_folder / "model.safetensors", "pt") as old,
        safe_open(tmp_path / "model.safetensors", "pt") as new,
    ):
        names = set(old.keys()) - {"embeddings.position_ids"}  # a constant that older versions of transformers wrote
        assert names == set(new.keys())
        assert all(torch.equal(old.get_tensor(name), new.get_tensor(name)) for name in names)
