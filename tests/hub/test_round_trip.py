"""From the command line to loading the published model in a clean process."""

import json
import re
import zipfile
from pathlib import Path

import torch
from hub_protocol import MAIN, File
from hub_server import REPO, WRITER
from transformers import AutoTokenizer, Trainer, TrainingArguments

import modeling_mybert
from modeling_mybert import AUTO_MAP, MyBertConfig, MyBertForPreTraining, MyBertForTokenClassification

ROOT = Path(modeling_mybert.__file__).parents[1]
FIXTURE = Path(__file__).parent / "fixtures" / "checkpoint.zip"

LOAD = """
import json, sys
from transformers import AutoModelForMaskedLM, AutoTokenizer, pipeline
repo, *revisions = sys.argv[1:]
found = []
for revision in revisions:
    source = {"revision": revision, "trust_remote_code": True}
    model = AutoModelForMaskedLM.from_pretrained(repo, **source)
    tokenizer = AutoTokenizer.from_pretrained(repo, **source)
    guesses = pipeline("fill-mask", model=model, tokenizer=tokenizer)(f"The {tokenizer.mask_token} sat.")
    version = getattr(model.base_model, "version_of_code", 1)
    found.append([version, type(model).__module__, [guess["token_str"] for guess in guesses]])
print(json.dumps(found))
"""


def test_a_published_model_loads_in_a_clean_process_online_and_offline_in_two_versions_of_its_code(
    hub, client, send, process, clean_process, checkpoint
):
    done = process(
        ROOT / "hub_upload.py", checkpoint, "--repo-id", REPO, "--license", "mit", token=WRITER, home="mine"
    )
    assert done.returncode == 0, done.stderr
    assert "before and after the upload" in done.stdout and REPO in done.stdout
    assert f"runs the code in {checkpoint} (trust_remote_code=True)" in done.stdout.splitlines()[0]
    assert WRITER not in done.stdout + done.stderr
    repo = hub.repos[REPO]
    card = repo.files()["README.md"].decode()
    pin = re.search(r"revision = .*, '(mybert-\w+)'", card)[1]
    assert repo.refs[f"refs/tags/{pin}"] == repo.refs[MAIN]
    assert all(auto in card for auto in AUTO_MAP.keys() - {"AutoConfig", "AutoModelForCausalLM"}), (
        "the classes that were verified"
    )

    path = checkpoint / "backbone_mybert.py"
    path.write_text(path.read_text() + "\nMyBertModel.version_of_code = 2\n")
    send(tag="v2")
    online = clean_process(LOAD, REPO, pin, "v2", pin, token=WRITER)
    assert [version for version, *_ in online] == [1, 2, 1]
    assert online[0] == online[2] and online[0][1] != online[1][1]
    assert len(online[0][2]) == 5 and online[0][2] == online[1][2]
    assert clean_process(LOAD, REPO, pin, "v2", pin, offline=True) == online


def test_push_to_hub_of_model_tokenizer_and_trainer_includes_auto_map_and_code(hub, client, trained, tmp_path):
    model, tokenizer = MyBertForPreTraining.from_pretrained(trained), AutoTokenizer.from_pretrained(trained)
    model.push_to_hub("alice/model")
    tokenizer.push_to_hub("alice/model")
    arguments = TrainingArguments(
        str(tmp_path / "out"), hub_model_id="alice/trainer", push_to_hub=True, report_to="none", use_cpu=True
    )
    head = MyBertForTokenClassification.from_pretrained(trained)
    Trainer(head, arguments, processing_class=tokenizer).push_to_hub()
    model.config.save_pretrained(str(tmp_path / "config"), push_to_hub=True, repo_id="alice/config")
    for name in ("alice/model", "alice/trainer", "alice/config"):
        files = hub.repos[name].files()
        assert json.loads(files["config.json"])["auto_map"] == AUTO_MAP
        assert {f"{module.split('.')[0]}.py" for module in AUTO_MAP.values()} <= files.keys()
        assert name == "alice/config" or {"model.safetensors", "tokenizer.json"} <= files.keys()
        code = {path.name: path.read_bytes() for path in MyBertConfig().code().values()}
        assert {path: files[path] for path in code} == code


OLD_UPLOAD = """
import json, torch
from transformers import AutoModel, AutoModelForPreTraining
found = []
for upgraded in (False, True):
    if upgraded:
        del sys.modules["modeling_mybert"]
        sys.path.append(sys.argv[3])
        import modeling_mybert  # registers the classes of this version too
    model = AutoModelForPreTraining.from_pretrained(sys.argv[1], revision="v1", trust_remote_code=True).eval()
    with torch.no_grad():
        found.append(model(torch.tensor([json.loads(sys.argv[2])])).prediction_logits.flatten().tolist())
print(json.dumps(found))
"""


def test_an_upload_of_an_earlier_version_loads_with_and_without_this_package(hub, clean_process):
    with zipfile.ZipFile(FIXTURE) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    expected = json.loads(files.pop("expected.json"))
    repo = hub.new_repo(REPO)
    repo.refs["refs/tags/v1"] = repo.commit(MAIN, {name: File(data) for name, data in files.items()}, "old")
    found = torch.tensor(clean_process(OLD_UPLOAD, REPO, json.dumps(expected["input_ids"]), ROOT))
    assert found.shape[0] == 2 and (found - torch.tensor(expected["logits"])).abs().max() < 1e-4


def test_the_classes_of_this_version_read_a_checkpoint_of_an_earlier_version(tmp_path):
    zipfile.ZipFile(FIXTURE).extractall(tmp_path)
    expected = json.loads((tmp_path / "expected.json").read_text())
    model, report = MyBertForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    with torch.no_grad():
        found = model.eval()(torch.tensor([expected["input_ids"]])).prediction_logits.flatten()
    assert (found - torch.tensor(expected["logits"])).abs().max() < 1e-4
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer(expected["text"])["input_ids"] == expected["input_ids"]
