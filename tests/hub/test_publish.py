"""Publishing: one commit or none, on the branch that was named, and what is there already."""

import json
import shutil

import pytest
from hub_protocol import MAIN, File
from hub_server import REPO, WRITER

from mybert.common.errors import UserError
from mybert.release.settings import PushSettings


def test_a_push_is_one_commit_that_holds_the_whole_bundle(hub, client, send, checkpoint):
    published = send()
    repo = hub.repos[REPO]
    assert len(repo.commits) == 2 and repo.refs[MAIN] == published.commit  # the first is the Hub's own
    files = repo.files()
    expected = {path.name for path in checkpoint.iterdir()} | {"README.md", "provenance.json", ".gitattributes"}
    assert set(files) == expected
    assert files["model.safetensors"] == (checkpoint / "model.safetensors").read_bytes()
    summary, description = repo.messages[published.commit]
    assert "MyBertForPreTraining" in summary and "trust_remote_code" in description


def test_a_repository_is_private_unless_public_is_said(hub, client, send, capsys):
    assert send().private and hub.repos[REPO].private
    assert not send(repo_id="alice/open", public=True).private
    assert not hub.repos["alice/open"].private
    assert "alice/open, public" in capsys.readouterr().out


def test_the_tag_that_the_card_pins_names_the_commit(hub, client, send):
    published = send()
    (tag,) = [ref for ref in hub.repos[REPO].refs if ref.startswith("refs/tags/")]
    assert hub.repos[REPO].refs[tag] == published.commit
    assert tag.removeprefix("refs/tags/") in hub.repos[REPO].files()["README.md"].decode()


def test_a_tag_of_ones_own_is_set_once_and_for_the_same_files(hub, client, send, checkpoint):
    first = send(tag="v1.0")
    assert hub.repos[REPO].refs["refs/tags/v1.0"] == first.commit
    assert send(tag="v1.0").commit == first.commit
    (checkpoint / "notes.txt").write_text("Something new.")
    with pytest.raises(UserError, match=r"--tag v1\.0 names something else"):
        send(tag="v1.0")
    assert hub.repos[REPO].refs[MAIN] == first.commit


def test_a_branch_that_is_not_there_is_made_and_main_stays(hub, client, send):
    send()
    main = hub.repos[REPO].refs[MAIN]
    published = send(revision="trial/b", license="mit")
    assert hub.repos[REPO].refs["refs/heads/trial/b"] == published.commit != main
    assert hub.repos[REPO].refs[MAIN] == main


def test_a_pull_request_leaves_main_alone_and_can_be_gone_on_with(hub, client, send):
    send()
    main = hub.repos[REPO].refs[MAIN]
    published = send(create_pr=True, license="mit")
    assert published.url.endswith("/discussions/1")
    again = send(revision="refs/pr/1", license="apache-2.0")
    assert hub.repos[REPO].refs["refs/pr/1"] == again.commit
    assert hub.repos[REPO].refs[MAIN] == main
    with pytest.raises(UserError, match="no such pull request"):
        send(revision="refs/pr/7")


def test_pushing_the_same_again_sends_nothing_and_makes_no_commit(hub, client, send):
    first = send()
    sent = len(hub.requests)
    assert send().commit == first.commit
    assert [r.path for r in hub.requests[sent:] if r.method == "PUT" or "/commit/" in r.path] == []


def test_an_update_takes_away_what_would_be_loaded_beside_it(hub, client, send):
    send()
    repo = hub.repos[REPO]
    files = dict(repo.commits[repo.refs[MAIN]])
    files |= {n: File(b"old") for n in ("model-00001-of-00002.safetensors", "old_mybert.py", "onnx/model.onnx")}
    repo.commit(MAIN, files, "by hand")
    send()
    there = repo.files()
    assert "model-00001-of-00002.safetensors" not in there and "old_mybert.py" not in there
    assert "onnx/model.onnx" in there, "what is not ours stays"


@pytest.mark.parametrize("config", [None, {"model_type": "llama"}])
def test_a_repository_that_holds_something_else_is_replaced_only_when_asked(hub, client, send, config):
    repo = hub.new_repo(REPO)
    files = dict(repo.commits[repo.refs[MAIN]]) | {"weights.gguf": File(b"other")}
    files |= {"config.json": File(json.dumps(config).encode())} if config else {}
    before = repo.commit(MAIN, files, "something else")
    with pytest.raises(UserError, match=r"holds something else \(.*weights\.gguf.*--overwrite"):
        send()
    assert repo.refs[MAIN] == before
    send(overwrite=True)
    assert "weights.gguf" not in repo.files() and "model.safetensors" in repo.files()


def test_a_dry_run_shows_files_and_card_and_sends_nothing(hub, client, send, capsys):
    assert send(dry_run=True) is None
    said = capsys.readouterr().out
    assert "model.safetensors" in said and "pipeline_tag: fill-mask" in said and "# tiny" in said
    assert hub.requests == []


def test_what_stays_here_is_named_by_folder(client, send, checkpoint, tmp_path, capsys):
    folder = shutil.copytree(checkpoint, tmp_path / "model")
    for name in ("drafts/1.md", "drafts/old/2.md", "plan.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("words")
    send(folder, dry_run=True, exclude=["drafts/*", "plan.md"])
    assert "left out: drafts/ (2 files), plan.md\n" in capsys.readouterr().out


def test_the_token_is_in_nothing_that_is_printed_or_sent_as_content(hub, client, send, capfd, caplog, monkeypatch):
    monkeypatch.setenv("HF_DEBUG", "1")
    with caplog.at_level("DEBUG"):
        send()
        hub.fail("POST", "/commit/", status=500, body={"error": f"Bearer {WRITER} is odd"})
        with pytest.raises(UserError) as caught:
            send(license="mit")
    said = "".join(capfd.readouterr()) + caplog.text + str(caught.value)
    assert WRITER not in said and "is odd" in said
    assert all(WRITER.encode() not in data for data in hub.repos[REPO].files().values())


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"repo_id": "no-owner"}, "owner/name"),
        ({"repo_id": "a/b/c"}, "repo-id"),
        ({"create_pr": True, "tag": "v1"}, "excludes"),
        ({"create_pr": True, "revision": "dev"}, "excludes"),
        ({"revision": "a..b"}, "revision"),
        ({"tag": "refs/tags/v1"}, "without refs/"),
        ({"language": ["English"]}, "ISO 639"),
        ({"license": "Apache License"}, "identifier"),
        ({"max_file_size": "5"}, "max-file-size"),
        ({"checkpoint": "nowhere"}, "not a folder"),
        ({"checkpoint": ""}, "expected a checkpoint"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_by_name(tmp_path, settings, message):
    with pytest.raises(UserError, match=message):
        PushSettings(**{"checkpoint": str(tmp_path), "repo_id": REPO, **settings})
