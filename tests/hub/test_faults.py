"""What can go wrong on the way: a clear message, the old state or the whole new one; a second run finishes."""

import resource
import tempfile

import huggingface_hub
import pytest
from hub_protocol import MAIN, File
from hub_server import READER, REPO

from mybert.common.errors import UserError
from mybert.release.hub import push as push_module

COMMIT, WEIGHTS = r"/commit/", r"^/[0-9a-f]{64}$"


@pytest.fixture
def old(hub, client, send) -> str:
    """The commit of an earlier push."""
    return send().commit


@pytest.fixture
def changed(checkpoint):
    """The checkpoint trained on: other weights, of which nothing is there yet."""
    path = checkpoint / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-4:] = b"\0\0\0\0"
    path.write_bytes(data)
    return checkpoint


def finishes(hub, send, old: str) -> int:
    """Pushes again; how many bytes of large files that took."""
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


def test_a_connection_lost_in_the_middle_of_a_file_is_taken_up_by_the_client(hub, client, send, old, changed):
    hub.fail("PUT", WEIGHTS, cut_after=100_000)
    finishes(hub, send, old)
    assert client == [1], "one wait"


def test_a_connection_that_stays_lost_ends_the_push_and_the_next_one_finishes(hub, client, send, old, changed):
    hub.fail("PUT", WEIGHTS, cut_after=100_000, times=6)
    refused(hub, send, old, "connection to the Hub was lost.*the repository is as it was")
    finishes(hub, send, old)


def test_after_a_failed_commit_the_next_run_sends_no_large_file_again(hub, client, send, old, changed):
    hub.fail("POST", COMMIT, cut_after=1000)
    refused(hub, send, old, "connection to the Hub was lost.*not sent twice")
    assert finishes(hub, send, old) == 0


def test_of_two_files_the_one_that_arrived_is_not_sent_again(hub, client, send, checkpoint):
    weights = (checkpoint / "model.safetensors").stat().st_size
    picture = (checkpoint / "training_curves.png").stat().st_size
    hub.fail("PUT", WEIGHTS, cut_after=0, times=6, larger_than=weights - 1)
    with pytest.raises(UserError, match="connection"):
        send()
    first = hub.received("PUT", WEIGHTS)
    send()
    assert (first, hub.received("PUT", WEIGHTS) - first) == (picture, weights)


def test_a_commit_whose_answer_was_lost_is_found_by_the_next_run(hub, client, send, old, changed):
    hub.fail("POST", COMMIT, drop_answer=True)
    with pytest.raises(UserError, match="connection to the Hub was lost"):
        send()
    new = hub.repos[REPO].refs[MAIN]
    assert new != old and send().commit == new, "the complete new state, and no second commit"


def test_an_error_of_the_server_is_waited_out(hub, client, send, old, changed):
    hub.fail("PUT", WEIGHTS, status=500, times=2)
    finishes(hub, send, old)
    assert client == [1, 2]


def test_an_error_of_the_server_that_stays_ends_the_push(hub, client, send, old, changed):
    hub.fail("POST", "/preupload/", status=503, times=6)
    refused(hub, send, old, "the Hub is in trouble.*503")
    finishes(hub, send, old)


def test_a_pause_that_the_hub_asks_for_is_kept(hub, client, send, old, changed):
    hub.fail("PUT", WEIGHTS, status=429, headers={"Retry-After": "7"})
    finishes(hub, send, old)
    assert client == [8], "seconds asked for, and one for rounding"


def test_a_pause_at_the_commit_ends_the_push_and_says_how_long(hub, client, send, old, changed):
    hub.fail("POST", COMMIT, status=429, headers={"Retry-After": "7"})
    refused(hub, send, old, "pause of 7 s")
    assert finishes(hub, send, old) == 0


def test_without_a_token_nothing_is_asked_nor_made(hub, client, send, monkeypatch, tmp_path):
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(push_module, "make_bundle", None)  # as minutes of verifying would follow it
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    with pytest.raises(UserError, match=r"not logged in.*hf auth login"):
        send()
    assert hub.requests == []


@pytest.mark.parametrize(
    "token, message",
    [("hf_" + "Expired" * 5, "does not accept your token.*expired"), (READER, "may not write to alice/tiny-bert")],
)
def test_a_token_that_has_expired_or_may_not_write_is_named(
    hub, client, send, old, changed, monkeypatch, token, message
):
    with monkeypatch.context() as patch:
        patch.setenv("HF_TOKEN", token)
        refused(hub, send, old, message)
    finishes(hub, send, old)


def test_a_token_that_is_none_is_named_before_anything_is_asked(hub, client, send, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_数字")
    with pytest.raises(UserError, match="letters that no token has") as caught:
        send()
    assert hub.requests == [] and "数字" not in str(caught.value)


def test_where_nobody_answers_the_push_ends_with_one_line(client, send, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UserError, match=r"Hub cannot be reached.*nothing was sent"):
        send()


def test_what_is_not_the_hub_but_answers_for_it_is_named(hub, client, send):
    hub.fail("GET", r"/api/models/", status=200, body=b"<html>Please log in to this network</html>", times=9)
    with pytest.raises(UserError, match=r"gives no JSON.*nothing was sent"):
        send()


def test_what_the_hub_says_cannot_paint_the_terminal(hub, client, send, old, changed):
    hub.fail("POST", COMMIT, status=402, body={"error": "\x1b[31mstorage quota\nexceeded\x07"})
    refused(hub, send, old, r"the Hub refused the upload \(402: \[31mstorage quota exceeded\)")


def test_a_file_that_cannot_be_read_is_named(client, send, monkeypatch):
    import mybert.release.hub.bundle as bundle

    def copyfile(source, target):
        raise PermissionError(13, "Permission denied", str(source))

    monkeypatch.setattr(bundle.shutil, "copyfile", copyfile)
    with pytest.raises(UserError, match=r"cannot be read or written \(Permission denied\)"):
        send()


def test_a_token_that_expires_before_the_commit_leaves_the_old_state(hub, client, send, old, changed):
    hub.fail("POST", COMMIT, status=401)
    refused(hub, send, old, "401")
    assert finishes(hub, send, old) == 0


def test_a_repository_that_vanishes_meanwhile_is_said_to_be_gone(hub, client, send, old, changed):
    hub.fail("POST", COMMIT, status=404, headers={"X-Error-Code": "RepoNotFound"})
    refused(hub, send, old, "is not there")


def test_a_commit_of_somebody_else_meanwhile_is_not_overwritten(hub, client, send, old, changed):
    repo = hub.repos[REPO]

    def somebody_else():
        repo.commit(MAIN, {**repo.commits[old], "hello.txt": File(b"hello")}, "meanwhile")

    hub.fail("POST", COMMIT, run=somebody_else)
    with pytest.raises(UserError, match=r"somebody changed alice/tiny-bert meanwhile.*412"):
        send()
    assert set(repo.files()) == {*repo.commits[old], "hello.txt"}
    assert repo.files()["model.safetensors"] == repo.commits[old]["model.safetensors"].data
    send()
    assert (
        "hello.txt" in repo.files()
        and repo.files()["model.safetensors"] != repo.commits[old]["model.safetensors"].data
    )


def test_a_conflict_on_the_hub_is_said_the_same_way(hub, client, send, old, changed):
    hub.fail("POST", COMMIT, status=409)
    refused(hub, send, old, "somebody changed.*409")


def test_a_checkpoint_that_is_trained_on_while_uploading_does_not_mix(hub, client, send, old, changed):
    before = (changed / "model.safetensors").read_bytes()
    hub.fail("PUT", WEIGHTS, run=lambda: (changed / "model.safetensors").write_bytes(b"new weights"))
    send()
    assert hub.repos[REPO].files()["model.safetensors"] == before


def test_a_checkpoint_that_is_written_to_while_it_is_read_is_refused(hub, client, send, old, changed, monkeypatch):
    import mybert.release.hub.bundle as bundle

    copy = bundle._copy

    def and_write(made, path, limit):
        copy(made, path, limit)
        if path.name == "vocab.txt":
            (changed / "config.json").write_text("{}")

    monkeypatch.setattr(bundle, "_copy", and_write)
    refused(hub, send, old, "changed while it was read")


def test_a_file_of_the_bundle_that_changes_on_the_way_does_not_get_in(
    hub, client, send, old, changed, monkeypatch, tmp_path
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # other pushes may be going on in the common one

    def write():
        (folder,) = tmp_path.glob("mybert-push-*/bundle")
        data = bytearray((folder / "model.safetensors").read_bytes())
        data[-1] ^= 1
        (folder / "model.safetensors").write_bytes(data)

    hub.fail("POST", "/objects/batch", run=write)
    refused(hub, send, old, "the Hub refused the upload.*did it change")


def test_a_disk_that_is_full_on_download_says_that_the_commit_is_complete(hub, client, send, monkeypatch):
    import mybert.release.hub.push as pushing

    def check_on_a_full_disk(*arguments):
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))  # the weights are larger
        try:
            check(*arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

    check = pushing.check_upload
    monkeypatch.setattr(pushing, "check_upload", check_on_a_full_disk)
    monkeypatch.setattr(pushing, "_verify_bundle", lambda bundle, classes: ("expected", "Checked."))
    with pytest.raises(UserError, match=r"no room to write.*commit \w+ is complete, only its check is missing"):
        send(verify=True)
    assert "model.safetensors" in hub.repos[REPO].files()
