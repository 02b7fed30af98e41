"""Verification finds a model that others would not get as intended, before and after the upload."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hub_protocol import MAIN, File
from hub_server import REPO
from json_files import change_json
from safetensors.torch import load_file

import modeling_mybert
from mybert.common.errors import UserError
from mybert.release.card.model_card import write_card
from mybert.release.hub import push as push_module
from mybert.release.hub import verify as verify_module
from mybert.release.hub.bundle import make_bundle
from mybert.release.hub.clean_process_check import check_classes, check_tokenizer_and_labels
from mybert.release.hub.publish import check_upload, publish
from mybert.release.hub.verify import compare_with_bert, verify, write_reference
from mybert.release.settings import PushSettings

CLASSES = ["AutoModel", "AutoModelForPreTraining"]


@pytest.fixture(autouse=True)
def quick_processes(clean_processes, monkeypatch):
    """Checks run in forks; test_round_trip.py checks in processes of their own."""
    fork = SimpleNamespace(run=lambda command, cwd, **_: clean_processes(*command[3:], cwd=cwd))
    monkeypatch.setattr(verify_module, "subprocess", fork)


@pytest.fixture
def reference(checkpoint, tmp_path) -> Path:
    """The reference of the checkpoint."""
    return reference_of(checkpoint, tmp_path)


def reference_of(checkpoint: Path, tmp_path: Path) -> Path:
    write_reference(checkpoint, folder := tmp_path / "reference")
    return folder


@pytest.mark.parametrize("head", ["PreTraining", "SequenceClassification", "TokenClassification", "QuestionAnswering"])
def test_each_head_is_verified_by_its_own_class_and_pipeline(checkpoint, tmp_path, head):
    getattr(modeling_mybert, f"MyBertFor{head}").from_pretrained(checkpoint).save_pretrained(checkpoint)
    reference = reference_of(checkpoint, tmp_path)
    assert json.loads((reference / "reference.json").read_text())["pipeline"] is not None
    verify(str(checkpoint), reference, [f"AutoModelFor{head}"])
    assert compare_with_bert(checkpoint) < 1e-5


def test_a_clean_process_has_the_same_threads_and_instructions_and_no_token(checkpoint, reference, monkeypatch):
    """Outputs are compared bit for bit."""
    given = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "HF_TOKEN": "hf_x", "PYTHONPATH": "."}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    seen = {}
    run = SimpleNamespace(run=lambda command, env, **_: seen.update(env) or SimpleNamespace(returncode=0))
    monkeypatch.setattr(verify_module, "subprocess", run)
    verify(str(checkpoint), reference, [])
    assert {name for name in given if name in seen} == {"ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA"}
    assert seen["OMP_NUM_THREADS"] == str(torch.get_num_threads())


def test_code_that_imports_this_project_is_found(checkpoint, reference):
    path = checkpoint / "padding_mybert.py"
    path.write_text(path.read_text() + "\nimport mybert.common.errors\n")
    with pytest.raises(UserError, match=r"in a clean process: .*mybert"):
        verify(str(checkpoint), reference, ["AutoModelForPreTraining"])


def test_a_tokenizer_that_does_not_truncate_makes_the_pipeline_fail(checkpoint, reference):
    change_json(checkpoint / "tokenizer_config.json", model_max_length=10**6)
    with pytest.raises(UserError, match="in a clean process"):
        verify(str(checkpoint), reference, ["AutoModelForPreTraining"])


def test_outputs_labels_and_token_ids_are_compared(checkpoint, reference, monkeypatch):
    monkeypatch.setattr("mybert.inference.INTERFACE", None)
    for name, module in sys.modules.items():
        if name.endswith(".operations_mybert"):  # loaded from a checkpoint by another test
            monkeypatch.setattr(module, "faster", None)
    model, source = str(checkpoint), {}
    expected, tensors = (
        json.loads((reference / "reference.json").read_text()),
        load_file(reference / "reference.safetensors"),
    )
    check_classes(model, source, tensors, expected, CLASSES)
    check_tokenizer_and_labels(model, source, expected)
    with pytest.raises(SystemExit, match="labels"):
        check_tokenizer_and_labels(model, source, {**expected, "labels": {"0": "no", "1": "yes"}})
    with pytest.raises(SystemExit, match="token ids by AutoTokenizer"):
        check_tokenizer_and_labels(model, source, {**expected, "ids": expected["ids"][::-1]})
    with pytest.raises(SystemExit, match="none of AutoModel loads the saved head, MyBertForPreTraining"):
        check_classes(model, source, tensors, expected, ["AutoModel"])
    for name, auto in (("encoder", "AutoModel"), ("outputs/4/seq_relationship_logits", "AutoModelForPreTraining")):
        output = "last_hidden_state" if name == "encoder" else "seq_relationship_logits"
        with pytest.raises(SystemExit, match=f"{output} by {auto} differs"):
            check_classes(model, source, {**tensors, name: tensors[name] * (1 + 1e-6)}, expected, CLASSES)


def test_an_upload_that_changed_on_the_hub_is_found(hub, client, checkpoint, tmp_path):
    settings = PushSettings(str(checkpoint), REPO)
    bundle = make_bundle(settings, tmp_path / "bundle")
    write_card(bundle, settings, "v1", "Checked.")
    published = publish(bundle, settings, "v1")
    check_upload(bundle, settings, published, tmp_path / "home")
    repo = hub.repos[REPO]
    repo.commits[published.commit] = {**repo.commits[published.commit], "vocab.txt": File(b"other")}
    with pytest.raises(UserError, match=r"vocab\.txt"):
        check_upload(bundle, settings, published, tmp_path / "another-home")
    del repo.commits[published.commit]["vocab.txt"]
    with pytest.raises(UserError, match=r"vocab\.txt"):
        check_upload(bundle, settings, published, tmp_path / "a-third-home")


def test_an_upload_that_fails_verification_gets_no_tag(hub, client, send, monkeypatch):
    def fail(*arguments):
        raise UserError("it differs")

    monkeypatch.setattr(push_module, "verify_bundle", lambda *arguments: "Checked.")
    monkeypatch.setattr(push_module, "verify_upload", fail)
    with pytest.raises(UserError, match="it differs"):
        send(verify=True)
    assert hub.repos[REPO].refs.keys() == {MAIN}
