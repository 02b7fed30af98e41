"""Names that are neither folders nor repositories are reported after one request, whatever the network does."""

import http.server
import json
import socket
import threading

import datasets
import pytest
from huggingface_hub import constants

from mybert.common import hub
from mybert.common.errors import UserError


@pytest.fixture
def endpoint(monkeypatch, tmp_path):
    """Sets the address of the Hub for this process, with an empty cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 120)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    return lambda address: monkeypatch.setattr(constants, "ENDPOINT", address)


class Server:
    """A Hub on 127.0.0.1 that answers every request with one status, or never (status 0), and counts them."""

    def __init__(self, status: int, headers: dict[str, str]):
        self.requests: list[str] = []
        self.asked, self.closed = threading.Event(), threading.Event()
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                server.requests.append(self.path)
                server.asked.set()
                if not status:
                    server.closed.wait(120)
                    return
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(json.dumps({"error": "x"}).encode())

            do_HEAD = do_POST = do_GET

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()
        self.address = f"http://127.0.0.1:{self.http.server_port}"

    def count(self) -> int:
        """The number of requests, at least one, which may arrive after the client has given up."""
        assert self.asked.wait(120), "nothing was asked"
        return len(self.requests)

    def close(self):
        self.closed.set()
        self.http.shutdown()


@pytest.fixture
def impatient(endpoint, monkeypatch):
    """Shortens the timeout, for what never answers."""
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 0.5)


@pytest.fixture
def serve(endpoint):
    servers = []

    def start(status: int, **headers: str) -> Server:
        servers.append(Server(status, {name.replace("_", "-"): value for name, value in headers.items()}))
        endpoint(servers[-1].address)
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def labelled(tmp_path):
    (tmp_path / "rows.csv").write_text("text,label\n" + "good,a\nbad,b\n" * 10)


COMMANDS = {
    "--tokenizer": "corpus python-docs --tokenizer nope --output out",
    "--model": "finetune --task text-classification --model nope --train rows.csv --output out",
    "predict": "predict nope rows.csv",
    "embed": "embed nope rows.csv --output out.npy",
    "export": "export nope --output out",
    "data set": "tokenizer nope/nope --output out",
    "rows": "evaluate --model nope --data nope/nope --output out",
}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_reports_a_hub_that_never_answers_after_one_request(name, serve, labelled, assert_refused):
    server = serve(0)
    assert_refused(COMMANDS[name].split(), "nope: no such folder, and the Hub cannot be reached")
    assert server.count() == 1, server.requests


def test_a_missing_repository_is_reported_with_the_nearest_name(serve, tmp_path):
    server = serve(404, X_Error_Code="RepoNotFound")
    (tmp_path / "model").mkdir()
    for kind in ("model", "dataset"):
        with pytest.raises(UserError, match=rf"modle: no such folder, .* no {kind} .*; did you mean model\?"):
            hub.check_repository("modle", kind)
    assert [path.split("/")[2] for path in server.requests] == ["models", "datasets"]
    with pytest.raises(UserError, match=r"a/b/c: no such folder$"):
        hub.check_repository("a/b/c")
    assert len(server.requests) == 2


def test_a_gated_repository_is_left_to_the_library_that_loads_it(serve):
    serve(403, X_Error_Code="GatedRepo")
    hub.check_repository("owner/gated")


def test_a_refused_connection_and_a_failing_server_are_reported(endpoint, serve):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint(f"http://127.0.0.1:{free.getsockname()[1]}")
        with pytest.raises(UserError, match=r"nope: no such folder, and the Hub cannot be reached .*refused"):
            hub.check_repository("nope")
    server = serve(503)
    with pytest.raises(UserError, match=r"nope: no such folder, and the Hub cannot be reached .*503"):
        hub.check_repository("nope")
    assert len(server.requests) == 1


@pytest.mark.usefixtures("impatient")
def test_a_name_server_that_never_answers_does_not_delay_the_message(endpoint, monkeypatch):
    endpoint("http://hub.example")
    released, answers = threading.Event(), []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answers.append(released.wait(120)))
    with pytest.raises(UserError, match=r"cannot be reached \(no answer in 0\.5 s\)"):
        hub.check_repository("nope")
    assert not answers
    released.set()


@pytest.mark.usefixtures("impatient")
def test_a_cached_repository_is_used_offline_when_the_hub_cannot_be_reached(serve, tmp_path, monkeypatch, capsys):
    serve(0)
    (tmp_path / "cache" / "models--owner--name").mkdir(parents=True)
    hub.check_repository("owner/name")
    assert "using the cached copy of owner/name" in capsys.readouterr().err
    assert constants.is_offline_mode()
    monkeypatch.setattr(hub, "_ask", lambda *_: pytest.fail("the Hub was asked again"))
    hub.check_repository("owner/name")


def test_push_asks_for_the_hub_before_it_verifies(serve, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 0.5)
        server = serve(0)
        with pytest.raises(UserError, match=r"the Hub cannot be reached .*; nothing was sent"):
            hub.check_reachable("alice/bert")
        assert server.count() == 1
    serve(404, X_Error_Code="RepoNotFound")
    hub.check_reachable("alice/bert")  # push creates it


@pytest.mark.parametrize("check", [hub.check_reachable, hub.check_repository])
def test_a_token_that_the_hub_refuses_is_the_reason(serve, check):
    serve(401, X_Error_Message="Invalid credentials in Authorization header")
    with pytest.raises(UserError, match="it refuses the token: run `hf auth login` again"):
        check("alice/bert")


@pytest.mark.usefixtures("endpoint", "labelled")
@pytest.mark.parametrize("name", ["--model", "--tokenizer", "embed", "export"])
def test_offline_a_model_that_is_not_cached_is_not_said_to_be_damaged(name, monkeypatch, assert_refused):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert_refused(COMMANDS[name].split(), "nope: no such folder … HF_HUB_OFFLINE is set")
