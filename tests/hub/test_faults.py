"""Failures during a push: a clear message, and either the old state of the repository or the complete new one."""

import resource
import tempfile

import huggingface_hub
import pytest
from hub_protocol import MAIN, File
from hub_server import READER, REPO

from mybert.common.errors import UserError
from mybert.release.hub import bundle as bundle_module
from mybert.release.hub import push as push_module

COMMIT, WEIGHTS = r"/commit/", r"^/[0-9a-f]{64}$"


@pytest.fixture
def old(hub, client, send) -> str:
    """The commit of an earlier push."""
    return send().commit


@pytest.fixture
def changed(checkpoint):
    """The checkpoint with other weights, which the Hub does not have."""
    path = checkpoint / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-4:] = b"\0\0\0\0"
    path.write_bytes(data)
    return checkpoint


def finishes(hub, send, old: str) -> int:
    """Pushes again; returns the number of bytes of large files that were sent."""
    before = hub.received("PUT", WEIGHTS)
    published = send()
    assert hub.repos[REPO].refs[MAIN] == published.commit != old
    assert len(hub.repos[REPO].commits[published.commit]) == len(hub.repos[REPO].commits[old])
    return hub.received("PUT", WEIGHTS) - before


def refused(hub, send, old: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        send()
    assert hub.repos[REPO].refs[MAIN] == old, "the old state"
    assert "\n" not in str(caught.value) and "Traceback" not in str(caught.value)


def test_the_client_resumes_after_a_connection_lost_within_a_file(hub, client, send, old, changed):
    hub.fail("PUT", WEIGHTS, cut_after=100_000)
    finishes(hub, send, old)
    assert client == [1], "one wait"


LOST = {"cut_after": 100_000, "times": 6}
GONE = {"status": 404, "headers": {"X-Error-Code": "RepoNotFound"}}
FAILURES = {  # of which request, what is wrong, and the message
    "connection": ("PUT", WEIGHTS, LOST, "connection.*the repository is unchanged"),
    "server": ("POST", "/preupload/", {"status": 503, "times": 6}, "503"),
    "connection of the commit": ("POST", COMMIT, {"cut_after": 1000}, "connection.*not sent again"),
    "too many requests": ("POST", COMMIT, {"status": 429, "headers": {"Retry-After": "7"}}, "429.*wait 7 s"),
    "token": ("POST", COMMIT, {"status": 401}, "401.*hf auth login"),
    "quota": ("POST", COMMIT, {"status": 402, "body": {"error": "\x1b[31mq\nx\x07"}}, r"402.* \[31mq x;"),
    "vanished": ("POST", COMMIT, GONE, "404.*name of the repository"),
    "conflict": ("POST", COMMIT, {"status": 409}, "409.*changed by somebody"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_push_changes_nothing_and_the_next_one_sends_no_large_file_that_is_there(
    hub, client, send, old, changed, failure
):
    method, path, fault, message = FAILURES[failure]
    hub.fail(method, path, **fault)
    refused(hub, send, old, message)
    assert finishes(hub, send, old) == 0 or path != COMMIT


def test_of_two_files_the_one_that_arrived_is_not_sent_again(hub, client, send, checkpoint):
    weights = (checkpoint / "model.safetensors").stat().st_size
    picture = (checkpoint / "training_curves.png").stat().st_size
    hub.fail("PUT", WEIGHTS, cut_after=0, times=6, larger_than=weights - 1)
    with pytest.raises(UserError, match="connection"):
        send()
    first = hub.received("PUT", WEIGHTS)
    send()
    assert (first, hub.received("PUT", WEIGHTS) - first) == (picture, weights)


def test_a_commit_whose_response_was_lost_is_found_by_the_next_push(hub, client, send, old, changed):
    hub.fail("POST", COMMIT, drop_answer=True)
    with pytest.raises(UserError, match="connection"):
        send()
    new = hub.repos[REPO].refs[MAIN]
    assert new != old and send().commit == new, "the complete new state, and no second commit"


def test_without_a_token_or_a_hub_the_push_ends_before_the_bundle_is_made(hub, client, send, monkeypatch, tmp_path):
    monkeypatch.setattr(push_module, "make_bundle", None)
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    with monkeypatch.context() as patch:
        patch.delenv("HF_TOKEN")
        with pytest.raises(UserError, match=r"not logged in.*hf auth login"):
            send()
    with monkeypatch.context() as patch:
        patch.setenv("HF_TOKEN", "hf_数字")
        with pytest.raises(UserError, match="invalid characters") as caught:
            send()
        assert "数字" not in str(caught.value)
    assert hub.requests == []
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UserError, match=r"Hub cannot be reached.*nothing was sent"):
        send()


@pytest.mark.parametrize(
    "token, message", [("hf_" + "Expired" * 5, "refuses the token.*hf auth login"), (READER, "403.*access")]
)
def test_a_token_without_access_is_named(hub, client, send, old, changed, monkeypatch, token, message):
    with monkeypatch.context() as patch:
        patch.setenv("HF_TOKEN", token)
        refused(hub, send, old, message)
    finishes(hub, send, old)


def test_a_server_that_is_not_the_hub_is_reported(hub, client, send):
    hub.fail("GET", r"/api/models/", status=200, body=b"<html>Please log in to this network</html>", times=9)
    with pytest.raises(UserError, match=r"the Hub cannot be used.*nothing was sent"):
        send()


def test_a_commit_by_somebody_else_during_the_push_is_not_overwritten(hub, client, send, old, changed):
    repo = hub.repos[REPO]

    def somebody_else():
        repo.commit(MAIN, {**repo.commits[old], "hello.txt": File(b"hello")}, "meanwhile")

    hub.fail("POST", COMMIT, run=somebody_else)
    with pytest.raises(UserError, match=r"412.*changed by somebody else"):
        send()
    weights = repo.commits[old]["model.safetensors"].data
    assert set(repo.files()) == {*repo.commits[old], "hello.txt"} and repo.files()["model.safetensors"] == weights
    send()
    assert "hello.txt" in repo.files() and repo.files()["model.safetensors"] != weights


def test_a_checkpoint_that_changes_during_the_upload_is_published_as_it_was(hub, client, send, old, changed):
    before = (changed / "model.safetensors").read_bytes()
    hub.fail("PUT", WEIGHTS, run=lambda: (changed / "model.safetensors").write_bytes(b"new weights"))
    send()
    assert hub.repos[REPO].files()["model.safetensors"] == before


def test_a_checkpoint_that_changes_while_it_is_copied_is_refused(hub, client, send, old, changed, monkeypatch):
    copy = bundle_module.shutil.copyfile

    def copy_and_write(source, target):
        copy(source, target)
        if target.name == "vocab.txt":
            (changed / "config.json").write_text("{}")

    monkeypatch.setattr(bundle_module.shutil, "copyfile", copy_and_write)
    refused(hub, send, old, "changed while it was read")


def test_a_file_of_the_bundle_that_changes_during_the_upload_is_refused(
    hub, client, send, old, changed, monkeypatch, tmp_path
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # the default one may hold bundles of other tests

    def write():
        (folder,) = tmp_path.glob("mybert-push-*/bundle")
        data = bytearray((folder / "model.safetensors").read_bytes())
        data[-1] ^= 1
        (folder / "model.safetensors").write_bytes(data)

    hub.fail("POST", "/objects/batch", run=write)
    refused(hub, send, old, "not the one announced")


def test_a_full_disk_during_the_download_says_that_the_commit_is_complete(hub, client, send, monkeypatch):
    def check_on_a_full_disk(*arguments):
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))  # the weights are larger
        try:
            check(*arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

    check = push_module.check_upload
    monkeypatch.setattr(push_module, "check_upload", check_on_a_full_disk)
    monkeypatch.setattr(push_module, "verify_bundle", lambda *arguments: "Checked.")
    with pytest.raises(UserError, match=r"no room to write.*commit \w+ is complete, but not verified"):
        send(verify=True)
    assert "model.safetensors" in hub.repos[REPO].files()
