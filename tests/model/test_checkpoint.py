"""A saved folder loads everywhere: every Auto class, in a process without this project, and as plain BERT."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors import safe_open
from transformers import BertForPreTraining, Trainer, TrainingArguments

from modeling_mybert import (
    AUTO_MAP,
    MyBertConfig,
    MyBertForMaskedLM,
    MyBertForNextSentencePrediction,
    MyBertForPreTraining,
    MyBertModel,
)

HEADS = [MyBertModel, MyBertForPreTraining, MyBertForMaskedLM, MyBertForNextSentencePrediction]

STRANGER = """
import json, sys, torch, transformers
try:
    import modeling_mybert
except ImportError:
    pass
else:
    raise SystemExit("this process was to know nothing of the project")
folder, classes = sys.argv[1], json.loads(sys.argv[2])
found = {}
for name in classes:
    loaded = getattr(transformers, name).from_pretrained(folder, trust_remote_code=True)
    if name != "AutoConfig":
        loaded.eval()
        with torch.no_grad():
            ids = torch.tensor([[2, 7, 9, 3]])
            outputs = loaded(ids[:, None] if name == "AutoModelForMultipleChoice" else ids)
            found[name] = outputs[0].double().sum().item()
print(json.dumps(found))
"""


def as_a_stranger(folder, classes, tmp_path) -> dict:
    """Loads `folder` by Auto classes in an isolated process (-P keeps the working folder off the path)."""
    hide = tmp_path / "stranger.py"
    blocked = "import sys; sys.modules.update(dict.fromkeys(['modeling_mybert', 'tokenization', 'mybert']))\n"
    hide.write_text(blocked + STRANGER)
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}
    run = subprocess.run(
        [sys.executable, "-P", str(hide), str(folder), json.dumps(classes)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def save_with_trainer(model, folder):
    Trainer(model, TrainingArguments(output_dir=str(folder), report_to="none")).save_model(str(folder))


@pytest.mark.parametrize("save", [lambda model, folder: model.save_pretrained(folder), save_with_trainer])
@pytest.mark.parametrize("head", HEADS)
def test_every_head_carries_the_whole_map_and_the_code(tiny_config, tmp_path, head, save):
    save(head(tiny_config), tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["auto_map"] == AUTO_MAP
    code = {path.name for path in tmp_path.glob("*.py")}
    assert {name.split(".")[0] + ".py" for name in AUTO_MAP.values()} <= code
    assert not list(tmp_path.glob("*model*.bin"))
    assert (tmp_path / "model.safetensors").is_file()


@pytest.mark.parametrize("head", [MyBertForPreTraining, MyBertModel])
def test_every_auto_class_loads_in_a_process_without_this_project(tiny_config, tmp_path, head):
    model = head(tiny_config).eval()
    model.save_pretrained(tmp_path / "saved")
    found = as_a_stranger(tmp_path / "saved", list(AUTO_MAP), tmp_path)
    assert set(found) == set(AUTO_MAP) - {"AutoConfig"}
    encoder = model.bert if head is MyBertForPreTraining else model
    ids = torch.tensor([[2, 7, 9, 3]])
    with torch.no_grad():
        assert found["AutoModel"] == encoder(ids)[0].double().sum().item()
        if head is MyBertForPreTraining:
            assert found["AutoModelForPreTraining"] == model(ids).prediction_logits.double().sum().item()


def test_what_a_stranger_saves_again_still_loads(tiny_config, tmp_path):
    MyBertForMaskedLM(tiny_config).save_pretrained(tmp_path / "saved")
    script = (
        "import sys; sys.modules.update(dict.fromkeys(['modeling_mybert', 'mybert']))\n"
        "import transformers\n"
        "model = transformers.AutoModelForMaskedLM.from_pretrained(sys.argv[1], trust_remote_code=True)\n"
        "model.save_pretrained(sys.argv[2])\n"
    )
    (tmp_path / "again.py").write_text(script)
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}
    subprocess.run(
        [sys.executable, "-P", tmp_path / "again.py", tmp_path / "saved", tmp_path / "again"],
        check=True,
        env=environment,
        cwd=tmp_path,
        capture_output=True,
    )
    assert json.loads((tmp_path / "again/config.json").read_text())["auto_map"] == AUTO_MAP
    assert set(as_a_stranger(tmp_path / "again", list(AUTO_MAP), tmp_path)) == set(AUTO_MAP) - {"AutoConfig"}


def test_a_configuration_saved_alone_carries_what_its_map_names(tmp_path):
    MyBertConfig.from_size("tiny").save_pretrained(tmp_path)
    modules = {name.split(".")[0] for name in json.loads((tmp_path / "config.json").read_text())["auto_map"].values()}
    assert all((tmp_path / f"{module}.py").is_file() for module in modules)


def test_weights_are_named_and_shaped_as_berts(tiny_config, tmp_path):
    ours = MyBertForPreTraining(tiny_config).eval()
    ours.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config.update(model_type="bert", architectures=["BertForPreTraining"])
    config.pop("auto_map")
    (tmp_path / "config.json").write_text(json.dumps(config))
    theirs, report = BertForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ids = torch.randint(0, 99, (2, 12))
    with torch.no_grad():
        expected, found = theirs.eval()(ids), ours(ids)
    assert (expected.prediction_logits - found.prediction_logits).abs().max() < 2e-5
    assert (expected.seq_relationship_logits - found.seq_relationship_logits).abs().max() < 2e-5


def test_a_bert_checkpoint_comes_in_and_goes_out_without_a_key_missing(minilm_folder, tmp_path):
    model, report = MyBertModel.from_pretrained(minilm_folder, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["mismatched_keys"]
    assert model.config.model_type == "mybert"
    model.save_pretrained(tmp_path)
    with (
        safe_open(minilm_folder / "model.safetensors", "pt") as old,
        safe_open(tmp_path / "model.safetensors", "pt") as new,
    ):
        names = set(old.keys()) - {"embeddings.position_ids"}  # a constant that older versions of transformers wrote
        assert names == set(new.keys())
        assert all(torch.equal(old.get_tensor(name), new.get_tensor(name)) for name in names)
