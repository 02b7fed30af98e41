"""Access, limits, hostile requests, slow clients and the stop of a service."""

import json
import os
import signal
import socket
import threading
import time

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient

from mybert import cli
from mybert.common.errors import UserError
from mybert.serving import run
from mybert.serving.settings import API_KEY, ServeSettings

LIMITS = {"max_bytes": 5000, "max_texts": 8, "max_tokens": 200, "max_requests": 6}
HOSTILE = [
    (b"", 400), (b"{", 400), (b"\xff\xfe", 400), (b"null", 422), (b"[1]", 422), (b"NaN", 422), (b"[" * 5000, 400),
    (b'{"input": ' + b"9" * 4900 + b"}", 400), (b'{"input": "\\ud800"}', 400), (b'{"\\udfff": 1}', 400),
    (b'{"input": NaN}', 422), (b'{"input": []}', 422), (b'{"input": [[]], "dimensions": -1}', 422),
    (b'{"input": [null]}', 422), (b'{"input": [["a"]]}', 422), (b'{"input": [[1e400]]}', 422),
    (b'{"input": [[-1]]}', 422), (b'{"input": [true]}', 422), (b'{"input": {"a": 1}}', 422),
    (b'{"input": "a", "encoding_format": "\\u0000"}', 422), (b'{"input": "a", "dimensions": 1e3}', 422),
    (b'{"input": ["a", "a", "a", "a", "a", "a", "a", "a", "a"]}', 413), (b'{"input": "' + b"a " * 100 + b'"}', 413),
    (b'{"input": ["' + b'", "'.join([b"a " * 40] * 8) + b'"]}', 413), (b'{"input": "' + b"a" * 6000 + b'"}', 413),
    (b'{"input": [' + b"[]," * 300 + b"[]]}", 413), (b" " * 50_000, 413), (b"\x1f\x8b" * 9, 400),
]  # fmt: skip


LONG, WORD = "sea " * 5000, "a" * 500_000
COSTLY = [
    ("classifier", {"rows": [{"text": "a", **{f"c{i}": "a" for i in range(10_000)}}]}, "10,001 columns, more than"),
    ("classifier", {"rows": [{"text": "a", f"c{i}": "a"} for i in range(2000)]}, "2,000 sets of columns, more than"),
    ("classifier", {"rows": ["sea"] * 2049}, "2049 texts, more than 2048"),
    ("classifier", {"inputs": [["sea"]] * 2049}, "2049 texts, more than 2048"),
    ("classifier", {"inputs": [[LONG]] * 30}, "150,060 tokens"),
    ("tagger", {"rows": [{"tokens": ["sea", "ann"] * 30_000}] * 2}, "tokens"),
    ("tagger", {"rows": [LONG] * 20}, "tokens"),
    ("reader", {"rows": [["sea " * 59, LONG]] * 2}, "639,872 tokens"),  # windows with one token of context
    ("chooser", {"rows": [{"context": LONG, "choices": ["a"] * 30}]}, "150,120 tokens"),
    ("chooser", {"rows": [{"context": "sea", "choices": ["a"] * 9000}]}, "more than 32,768"),
    ("chooser", {"rows": [{"context": "sea", **{f"ending{i}": "a" for i in range(999)}}]}, "1,000 columns"),
    ("regression", {"query": LONG, "texts": ["a"] * 30}, "150,"),
    ("regression", {"query": WORD, "texts": ["a"] * 2000}, "query: 62,500,000 tokens"),
    ("regression", {"query": "a", "texts": [WORD] * 3 + ["a"] * 2046}, "2049 texts"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "body", "message"), COSTLY)
def test_a_costly_request_is_refused_before_the_model_works_and_names_the_limit(serve, hold, name, body, message):
    service = serve(name)
    gate = hold(service.service)
    gate.set()
    found = service.post("/rerank" if "query" in body else "/predict", body)
    assert found.status_code == 413 and message in found.json()["error"] and len(found.text) < 300, found.text
    assert not gate.begun.is_set()
    limits = service.client.get("/info").json()["limits"]
    numbers = {int(word) for word in found.json()["error"].replace(",", "").replace(";", "").split() if word.isdigit()}
    assert numbers & {*limits.values()}, "the limit is not in /info"


@pytest.mark.parametrize("name", ["classifier", "tagger", "reader", "chooser", "regression", "encoder"])
@pytest.mark.parametrize("brackets", [('{"a":', "}"), ("[", "]")])
def test_deep_json_is_refused_in_every_form(serve, name, brackets, caplog):
    service = serve(name)
    outer = {"chooser": '{"context": "a", "choices": %s}', "tagger": '{"tokens": %s}'}.get(name, "%s")
    forms = {"/predict": '{"rows": [%s]}'}
    if name == "encoder":
        forms = {"/embed": '{"inputs": %s}', "/": '{"inputs": [%s]}', "/v1/embeddings": '{"input": %s}'}
        forms |= {"/similarity": '{"inputs": {"source_sentence": "a", "sentences": [%s]}}'}
    elif name == "classifier":
        forms |= {"/": '{"inputs": %s}'}
    elif name == "regression":
        forms |= {"/rerank": '{"query": "a", "texts": [%s]}', "/": '{"query": %s, "texts": ["a"]}'}
    for depth in (3, 60, 90, 101, 500, 970, 50_000):
        deep = brackets[0] * depth + '"sea"' + brackets[1] * depth
        for path, form in forms.items():
            found = service.post(path, (form % (outer % deep)).encode())
            expected = 422 if depth < 100 else 400
            error = found.json()["error"]
            message = error["message"] if path.startswith("/v1") else error
            assert found.status_code == expected and len(message) < 330 and "\n" not in message, (path, found.text)
    assert not caplog.records


def test_a_large_request_whose_client_has_gone_waits_for_no_thread(serve, monkeypatch):
    service = serve("encoder", max_wait=5.0)
    inner, gate, read = service.service, threading.Event(), []
    held = [inner._threads.submit(gate.wait, 60) for _ in range(2)]  # both threads are busy
    monkeypatch.setattr("mybert.serving.app.work_of", lambda *given: read.append(given))
    body = json.dumps({"inputs": "sea " * 9000}).encode()
    with connected(service) as connection:
        connection.sendall(b"POST /embed HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        wait_until(lambda: inner._bytes == len(body))
    wait_until(lambda: not inner._bytes and not inner.in_progress)
    gate.set()
    assert all(one.result() for one in held)
    inner._threads.submit(int).result()
    assert not read


@pytest.fixture
def service(serve):
    return serve("encoder", **LIMITS)


@pytest.fixture
def hold(monkeypatch):
    """Holds the model of a service until the returned event is set; its `begun` is set when a batch is held."""

    def hold(service) -> threading.Event:
        gate, compute = threading.Event(), service._batcher._function
        gate.begun = threading.Event()
        held = lambda *rows: [gate.begun.set(), gate.wait(60), compute(*rows)][2]  # noqa: E731
        monkeypatch.setattr(service._batcher, "_function", held)
        return gate

    return hold


@pytest.fixture
def gate(service, hold):
    yield (gate := hold(service.service))
    gate.set()


def in_threads(function, count: int) -> tuple[list[threading.Thread], list]:
    found = []
    threads = [threading.Thread(target=lambda: found.append(function())) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads, found


def wait_until(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def connected(service) -> socket.socket:
    host, port = service.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def raw(service, data: bytes, *more: bytes) -> bytes:
    """Everything that a connection receives until it is closed."""
    with connected(service) as connection:
        received = b""
        try:
            for part in (data, *more):
                connection.sendall(part)
            while block := connection.recv(65536):
                received += block
        except (ConnectionResetError, BrokenPipeError):
            pass
        return received


@pytest.mark.parametrize("path", ["/v1/embeddings", "/embed"])
def test_a_hostile_request_gets_one_clear_error(service, path, caplog):
    for body, status in HOSTILE:
        if path == "/embed":
            body = body.replace(b'"input"', b'"inputs"').replace(b'"encoding_format": "\\u0000"', b'"truncate": 1')
        found = service.post(path, body)
        error = found.json()["error"]
        message = error["message"] if path.startswith("/v1") else error
        assert found.status_code == status, (body[:60], found.text)
        assert 5 < len(message) < 300 and "\n" not in message and "Traceback" not in message
    assert not caplog.records
    assert service.post("/embed", {"inputs": "sea"}).status_code == 200
    wait_until(lambda: not service.service.in_progress)
    assert service.service._bytes == service.service._batcher.tokens == 0


@pytest.mark.parametrize("host", [b"[", b"a?b", b"a/v1/b"])
def test_a_host_that_is_none_does_not_change_the_error(service, host):
    request = b"POST %b HTTP/1.1\r\nHost: %b\r\nContent-Length: 1\r\nConnection: close\r\n\r\n{"
    answer = raw(service, request % (b"/v1/embeddings", host))
    assert answer.startswith(b"HTTP/1.1 400 ") and b'{"error":{"message":"not JSON' in answer
    for path in (b"/nowhere", b"/embed/"):
        assert raw(service, request % (path, host)).startswith(b"HTTP/1.1 404 ")


def test_an_error_of_the_model_is_a_500_without_a_trace_and_only_for_its_request(service, monkeypatch):
    monkeypatch.setattr(service.service._batcher, "_function", lambda *rows: 1 / 0)
    found = service.post("/embed", {"inputs": "sea"})
    assert found.status_code == 500 and found.json()["error"] == "an error of the service; see its log"
    monkeypatch.undo()
    assert service.post("/embed", {"inputs": "sea"}).status_code == 200


def test_requests_beyond_the_limits_get_429_and_others_are_answered(service, gate):
    import openai  # takes a second, of the worker that runs these tests only

    threads, found = in_threads(lambda: service.post("/embed", {"inputs": ["sea " * 20] * 4}).status_code, 2)
    wait_until(lambda: service.service._batcher.tokens == 176)
    tokens = service.post("/embed", {"inputs": "sea " * 40})
    assert (tokens.status_code, tokens.json()["error_type"]) == (429, "Overloaded")
    assert int(tokens.headers["retry-after"]) >= 1
    with pytest.raises(openai.RateLimitError):
        openai.OpenAI(base_url=f"{service.url}/v1", api_key="x", max_retries=0).embeddings.create(
            model="x", input="sea " * 40
        )
    more, others = in_threads(lambda: service.post("/embed", {"inputs": "a"}).status_code, 4)
    wait_until(lambda: service.service.in_progress == 6)
    assert service.post("/embed", {"inputs": "a"}).headers["retry-after"] == "1"
    assert service.client.get("/health").status_code == 200, "health needs no place"
    gate.set()
    for thread in (*threads, *more):
        thread.join()
    assert found == [200] * 2 and others == [200] * 4


def test_a_request_whose_client_has_gone_is_not_computed(service, gate):
    first, _ = in_threads(lambda: service.post("/embed", {"inputs": "a"}), 1)
    assert gate.begun.wait(60)  # or both requests could be in one batch
    body = json.dumps({"inputs": "sea sea"}).encode()
    with connected(service) as connection:
        connection.sendall(b"POST /embed HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        wait_until(lambda: service.service._batcher.tokens == 7)
    wait_until(lambda: service.service._batcher.tokens == 3)
    gate.set()
    first[0].join()


def test_slow_clients_and_endless_heads_are_cut_off(serve, monkeypatch):
    service = serve("encoder", timeout=0.5)
    with monkeypatch.context() as patch:
        patch.setattr(run, "_IDLE_SECONDS", 0.3)
        assert raw(service, b"") == raw(service, b"POST /embed HTTP/1.1\r\nA: b") == b""
        assert raw(service, b"GET /health HTTP/1.1\r\n", *[b"A: %s\r\n" % (b"b" * 5000)] * 40) == b""
    assert raw(service, b"no HTTP\r\n\r\n").endswith(b'{"error": "not HTTP", "error_type": "Validation"}')
    slow = raw(service, b'POST /embed HTTP/1.1\r\nContent-Length: 100\r\n\r\n{"inputs":')
    assert slow.startswith(b"HTTP/1.1 408") and b"did not arrive in 0.5 s" in slow
    packed = raw(service, b"POST /embed HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc")
    assert packed.startswith(b"HTTP/1.1 415")
    wait_until(lambda: service.post("/embed", {"inputs": "sea"}).status_code == 200)  # within 0.5 s


def test_a_connection_stays_open_after_an_answer_in_the_middle_of_a_body(serve):
    service = serve("encoder", api_key="key")
    with connected(service) as connection:
        for _ in range(2):
            connection.sendall(b"POST /embed HTTP/1.1\r\nContent-Length: 400000\r\n\r\n" + b" " * 1000)
            answer = b""
            while not answer.endswith(b"}"):
                answer += (block := connection.recv(65536))
                assert block, "the connection was closed"
            assert answer.startswith(b"HTTP/1.1 401")
            connection.sendall(b" " * 399_000)
        connection.sendall(b"GET /health HTTP/1.1\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_a_second_request_of_a_pipeline_has_the_time_of_a_request(serve, monkeypatch):
    service = serve("encoder", max_wait=4.0)
    compute = service.service._batcher._function

    def slow(*rows):
        monkeypatch.setattr(run, "_IDLE_SECONDS", 0.3)  # now: the connection had its time to send
        time.sleep(0.6)
        return compute(*rows)

    monkeypatch.setattr(service.service._batcher, "_function", slow)
    request = b'POST /embed HTTP/1.1\r\nContent-Length: 17\r\n\r\n{"inputs": "sea"}'
    answers = raw(service, request * 2)
    assert answers.count(b"HTTP/1.1 200") == 2


def test_a_request_that_is_not_computed_in_time_gets_503(serve, hold):
    service = serve("encoder", timeout=0.5)
    gate = hold(service.service)
    assert service.post("/embed", {"inputs": "sea"}).status_code == 503
    gate.set()
    wait_until(lambda: service.service._batcher.tokens == 0)


def test_requests_need_the_key_and_it_is_never_shown(serve, monkeypatch, capsys):
    import openai

    monkeypatch.setenv(API_KEY, "open sesame")
    service = serve("encoder", max_wait=1.0)
    for given in ({}, {"authorization": "Bearer open"}, {"authorization": "Bearer öpen sesame".encode()}):
        found = service.client.post("/embed", json={"inputs": "sea"}, headers=given)
        assert found.status_code == 401 and "sesame" not in found.text
    assert service.client.get("/info").status_code == 401 and service.client.get("/health").status_code == 200
    for path in ("/info", "/v1/models"):  # an error that reached the server would be in its log, with a stack trace
        assert TestClient(service.service.app, raise_server_exceptions=True).get(path).status_code == 401
    client = openai.OpenAI(base_url=f"{service.url}/v1", api_key="open sesame", max_retries=0)
    assert client.embeddings.create(model="x", input="sea").data
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="other").embeddings.create(model="x", input="sea")
    for key in ("", "schlüssel", "a\nb"):
        with pytest.raises(UserError) as refused:
            ServeSettings("m", api_key=key)
        assert not key or key not in str(refused.value)
    assert "sesame" not in "".join(capsys.readouterr())


def test_a_request_of_another_method_or_without_the_field_names_the_right_one(serve):
    service = serve("classifier")
    assert service.client.get("/predict").json()["error"] == "GET is not supported here; use POST"
    assert service.post("/info", {}).json()["error"] == "POST is not supported here; use GET or HEAD"
    for body, found in (({"row": ["sea"]}, "row"), ({}, "nothing")):
        assert service.post("/predict", body).json()["error"] == f"expected rows or inputs, found {found}"
    found = service.post("/predict", {"rows": ["sea"], "inputs": "sea"})
    assert (found.status_code, found.json()["error"]) == (
        422,
        "expected rows or inputs, found both; send two requests",
    )
    found = serve("encoder").post("/v1/embeddings", {"inputs": "sea"}).json()["error"]["message"]
    assert found == "input: expected a text or a list of texts or token arrays, found nothing"


def test_a_stop_answers_accepted_requests_and_refuses_others(serve, hold):
    service = serve("encoder", max_wait=2.0)
    gate = hold(service.service)
    threads, found = in_threads(lambda: service.post("/embed", {"inputs": ["sea"] * 9}), 5)
    wait_until(lambda: service.service.in_progress == 5)
    service.stop()
    refused = service.post("/embed", {"inputs": "sea"})
    assert refused.status_code == service.client.get("/health").status_code == 503
    assert refused.json() == {"error": "the service is stopping", "error_type": "Unhealthy"}
    assert not service.server.should_exit
    gate.set()
    for thread in threads:
        thread.join()
    assert service.join()
    assert [len(one.json()) for one in found] == [9] * 5
    assert np.isfinite(np.array([one.json() for one in found])).all()


def test_sigterm_in_the_middle_ends_the_command_with_status_0_and_loses_no_request(models, monkeypatch, hold):
    built, found = [], []
    build_server = run.build_server
    monkeypatch.setattr(run, "build_server", lambda settings: built.append(build_server(settings)) or built[0])

    def use():
        wait_until(lambda: built and built[0].started)
        service = built[0].service
        gate = hold(service)
        post = lambda: httpx.post(f"{built[0].url}/embed", json={"inputs": "sea"}, timeout=60)  # noqa: E731
        threads, answers = in_threads(post, 4)
        try:
            wait_until(lambda: service.in_progress == 4)
            os.kill(os.getpid(), signal.SIGTERM)
            wait_until(lambda: service.is_stopping)
            found.append(post().status_code)
        except BaseException:
            built[0].should_exit = built[0].force_exit = True  # or the command would never end
            raise
        finally:
            gate.set()
        for thread in threads:
            thread.join()
        found.extend(answer.status_code for answer in answers)

    user = threading.Thread(target=use)
    user.start()
    assert cli.main(["serve", str(models("encoder")), "--port", "0", "--device", "cpu"]) == 0
    user.join()
    assert found == [503, 200, 200, 200, 200]
