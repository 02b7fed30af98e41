"""Publication: one commit or none, on the named branch, beside the existing files."""

import json
import tempfile
from pathlib import Path

import pytest
from hub_protocol import MAIN, File
from hub_server import READER, REPO, WRITER
from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import RepositoryNotFoundError

from modeling_mybert import MyBertForPreTraining, MyBertModel
from mybert.cli import main
from mybert.common.errors import UserError
from mybert.inference.checkpoint import Checkpoint, open_checkpoint
from mybert.release.convert.companions import save_companions
from mybert.release.hub.push import NOT_VERIFIED


def test_a_push_is_one_private_commit_of_the_whole_bundle_under_its_tag(hub, client, send, checkpoint, capsys):
    published = send()
    repo = hub.repos[REPO]
    assert len(repo.commits) == 2 and repo.refs[MAIN] == published.commit  # the first is the Hub's own
    files = repo.files()
    private = {"report.html", "samples.jsonl"}  # may quote the user's text
    expected = {path.name for path in checkpoint.iterdir()} - private
    expected |= {"README.md", "provenance.json", ".gitattributes", "handler.py", "requirements.txt"}
    assert set(files) == expected
    assert files["model.safetensors"] == (checkpoint / "model.safetensors").read_bytes()
    summary, description = repo.messages[published.commit]
    assert "MyBertForPreTraining" in summary and "trust_remote_code" in description
    (tag,) = [ref for ref in repo.refs if ref.startswith("refs/tags/")]
    assert repo.refs[tag] == published.commit and tag.removeprefix("refs/tags/") in files["README.md"].decode()
    assert published.private and repo.private
    sent = len(hub.requests)
    assert send().commit == published.commit, "the same files again"
    assert [r.path for r in hub.requests[sent:] if r.method == "PUT" or "/commit/" in r.path] == []
    assert not send(repo_id="alice/open", public=True).private and not hub.repos["alice/open"].private
    assert "alice/open, public" in capsys.readouterr().out


def test_the_hub_counts_the_parameters_and_its_client_verifies_the_files(hub, client, send, checkpoint, tmp_path):
    send()
    found = HfApi().get_safetensors_metadata(REPO)
    assert found.parameter_count == {"F32": MyBertForPreTraining.from_pretrained(checkpoint).num_parameters()}
    assert [file.metadata["format"] for file in found.files_metadata.values()] == ["pt"]
    where = {"cache_dir": tmp_path / "cache"}
    with pytest.raises(RepositoryNotFoundError):
        snapshot_download(REPO, **where, token=False)
    snapshot_download(REPO, **where, token=READER)
    verified = HfApi().verify_repo_checksums(REPO, **where, token=READER)
    assert verified.checked_count == len(hub.repos[REPO].files())
    assert not (verified.mismatches or verified.missing_paths or verified.extra_paths)


def test_a_gated_repository_is_loaded_by_those_who_have_access(hub, client, send, monkeypatch, tmp_path):
    send(public=True)
    hub.repos[REPO].readers, stranger = {"alice"}, "hf_" + "Stranger" * 4
    hub.users[stranger] = ("bob", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", stranger)
    with pytest.raises(ValueError, match="gated repo") as refused:
        open_checkpoint(REPO, MyBertModel)
    assert REPO in str(refused.value)
    monkeypatch.setenv("HF_TOKEN", READER)
    assert type(open_checkpoint(REPO, MyBertModel).model) is MyBertModel


def test_the_modules_of_a_sentence_encoder_on_the_hub_are_kept(hub, client, send, checkpoint, monkeypatch, tmp_path):
    modules = '[{"path": "", "type": "a.Transformer"}, {"path": "1_Pooling", "type": "a.Pooling"}]'
    parts = {"modules.json": modules, "1_Pooling/config.json": "{}"}
    for name, text in (parts | {"config_sentence_transformers.json": "{}", "other/config.json": "{}"}).items():
        (checkpoint / name).parent.mkdir(exist_ok=True)
        (checkpoint / name).write_text(text)
    send()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    for offline in (False, True):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
        save_companions(Checkpoint(REPO, None, None, [], []), folder := Path(tempfile.mkdtemp(dir=tmp_path)))
        found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert found == {*parts, "config_sentence_transformers.json"}
    (tmp_path / "cache" / "models--alice--plain").mkdir()  # cached without modules.json
    save_companions(Checkpoint("alice/plain", None, None, [], []), empty := Path(tempfile.mkdtemp(dir=tmp_path)))
    assert not [*empty.iterdir()]


def test_a_given_tag_is_set_once_and_for_the_same_files(hub, client, send, checkpoint):
    first = send(tag="v1.0")
    assert hub.repos[REPO].refs["refs/tags/v1.0"] == first.commit
    assert send(tag="v1.0").commit == first.commit
    (checkpoint / "notes.txt").write_text("Something new.")
    with pytest.raises(UserError, match=r"--tag v1\.0 already names other files"):
        send(tag="v1.0")
    assert hub.repos[REPO].refs[MAIN] == first.commit


def test_a_branch_and_a_pull_request_leave_main_unchanged_and_can_be_updated(hub, client, send):
    main = send().commit
    published = send(revision="trial/b", license="mit")
    assert hub.repos[REPO].refs["refs/heads/trial/b"] == published.commit != main
    published = send(create_pr=True, license="mit")
    assert published.url.endswith("/discussions/1")
    again = send(revision="refs/pr/1", license="apache-2.0")
    assert hub.repos[REPO].refs["refs/pr/1"] == again.commit and hub.repos[REPO].refs[MAIN] == main
    with pytest.raises(UserError, match="no such pull request"):
        send(revision="refs/pr/7")


def test_an_update_deletes_weights_and_code_of_an_older_upload(hub, client, send):
    send()
    repo = hub.repos[REPO]
    files = dict(repo.commits[repo.refs[MAIN]])
    files |= {n: File(b"old") for n in ("model-00001-of-00002.safetensors", "old_mybert.py", "onnx/model.onnx")}
    repo.commit(MAIN, files, "by hand")
    send()
    there = repo.files()
    assert "model-00001-of-00002.safetensors" not in there and "old_mybert.py" not in there
    assert "onnx/model.onnx" in there, "other files stay"


@pytest.mark.parametrize("config", [None, {"model_type": "llama"}])
def test_a_repository_with_something_else_is_replaced_only_with_overwrite(hub, client, send, config):
    repo = hub.new_repo(REPO)
    files = dict(repo.commits[repo.refs[MAIN]]) | {"weights.gguf": File(b"other")}
    files |= {"config.json": File(json.dumps(config).encode())} if config else {}
    before = repo.commit(MAIN, files, "something else")
    with pytest.raises(UserError, match=r"holds something else \(.*weights\.gguf.*--overwrite"):
        send()
    assert repo.refs[MAIN] == before
    send(overwrite=True)
    assert "weights.gguf" not in repo.files() and "model.safetensors" in repo.files()


def test_a_dry_run_shows_files_and_card_without_a_token_and_sends_nothing(hub, client, trained, capsys, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    assert main(["push", str(trained), "--repo-id", REPO, "--dry-run", "--no-verify"]) == 0
    printed = capsys.readouterr().out
    assert "model.safetensors" in printed and "pipeline_tag: fill-mask" in printed and "# tiny" in printed
    assert "## Limitations" in printed and "```" not in printed and "encoder_mybert.py" not in printed
    assert "the card lacks metadata: add --license and --language" in printed
    assert NOT_VERIFIED in printed and "Verifying" not in printed
    assert "general examples" not in printed  # the sentence with [MASK] fits every model
    assert hub.requests == []


@pytest.mark.parametrize(("given", "general"), [([], True), (["--example", "a great film"], False)])
def test_a_dry_run_says_that_a_classifier_needs_examples_of_its_own(hub, client, models, capsys, given, general):
    words = ["push", str(models("classifier")), "--repo-id", REPO, "--dry-run", "--no-verify", "--language", "de"]
    assert main([*words, *given]) == 0
    assert ("the card has general examples: add --example" in capsys.readouterr().out) == general


def test_the_token_is_neither_printed_nor_sent_as_content(hub, client, send, capfd, caplog, monkeypatch):
    monkeypatch.setenv("HF_DEBUG", "1")
    with caplog.at_level("DEBUG"):
        send()
        hub.fail("POST", "/commit/", status=500, body={"error": f"Bearer {WRITER} is odd"})
        with pytest.raises(UserError) as caught:
            send(license="mit")
    printed = "".join(capfd.readouterr()) + caplog.text + str(caught.value)
    assert WRITER not in printed and "is odd" in printed
    assert all(WRITER.encode() not in data for data in hub.repos[REPO].files().values())
