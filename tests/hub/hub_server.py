"""A local Hub for the unmodified `huggingface_hub` client, with fault injection.

It has two listeners, as the real one: the Hub, which needs tokens, and the storage of large files, whose signed
addresses must be requested without a token.
"""

import re
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from hub_protocol import API, MAIN, STORAGE, Answer, Call, File, Repo, error

REPO = "alice/tiny-bert"
WRITER, READER = "hf_" + "Writer" * 6, "hf_" + "Reader" * 6


@dataclass
class Fault:
    """A failure of the next `times` matching requests."""

    method: str
    path: str
    times: int = 1
    status: int | None = None
    headers: dict = field(default_factory=dict)
    body: dict = field(default_factory=lambda: {"error": "an injected fault"})
    larger_than: int = -1  # only requests with a larger body match
    cut_after: int | None = None  # bytes of the body that count as read before the connection is reset
    drop_answer: bool = False  # the request is served, but not answered
    run: Callable[[], None] | None = None


@dataclass
class Request:
    method: str
    path: str
    status: int
    received: int


class Hub:
    """Both listeners and their state.

    Attributes:
        url: the endpoint.
        users: token → name and write access.
        repos: by `owner/name`.
        large: content of the storage, by SHA-256.
        requests: all requests.
    """

    def __init__(self):
        self.users = {WRITER: ("alice", True), READER: ("alice", False)}
        self.repos: dict[str, Repo] = {}
        self.large: dict[str, bytes] = {}
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.lock = threading.RLock()
        self.listeners = [ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, routes)) for routes in (API, STORAGE)]
        for listener in self.listeners:
            listener.daemon_threads = True
            threading.Thread(target=listener.serve_forever, args=(0.02,), daemon=True).start()
        # Two hosts: some versions of the client send the token to the storage if only the ports differ.
        hosts = ("127.0.0.1", "localhost")
        self.url, self.storage = (
            f"http://{host}:{listener.server_address[1]}" for host, listener in zip(hosts, self.listeners, strict=True)
        )

    def close(self) -> None:
        for listener in self.listeners:
            listener.shutdown()
            listener.server_close()

    def fail(self, method: str, path: str, **what) -> Fault:
        """Injects a fault for requests whose path matches the regular expression `path`."""
        self.faults.append(Fault(method, path, **what))
        return self.faults[-1]

    def received(self, method: str, path: str) -> int:
        """Number of bytes in the bodies of matching requests."""
        return sum(r.received for r in self.requests if r.method == method and re.search(path, r.path))

    def new_repo(self, name: str, private: bool = False) -> Repo:
        repo = self.repos[name] = Repo(private)
        repo.commit(
            MAIN, {".gitattributes": File(b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n")}, "initial commit"
        )
        return repo


def _handler(hub: Hub, routes: dict[str, Callable]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # headers and body are two packets, and the second would wait for 40 ms

        def serve(self):
            url, received = urlsplit(self.path), 0
            length = int(self.headers.get("Content-Length") or 0)
            fault = self.fault(url.path, length)
            try:
                if fault and fault.cut_after is not None:
                    received = len(self.rfile.read(fault.cut_after))
                    # A reset while the client writes is, by chance, one of two errors; huggingface_hub 1 retries one.
                    self.rfile.read(length - received)
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    raise ConnectionAbortedError
                body = self.rfile.read(length)
                received = len(body)
                if fault and fault.run:
                    fault.run()
                if fault and fault.status:
                    raise Answer(fault.status, fault.body, **fault.headers)
                self.route(url.path, Call(hub, self, parse_qs(url.query), body))
            except Answer as answer:
                hub.requests.append(Request(self.command, url.path, answer.status, received))
                if fault and fault.drop_answer:
                    self.hang_up()
                else:
                    self.answer(answer)
            except ConnectionAbortedError:
                hub.requests.append(Request(self.command, url.path, 0, received))
                self.hang_up()

        do_GET = do_HEAD = do_POST = do_PUT = serve

        def fault(self, path: str, length: int) -> Fault | None:
            with hub.lock:
                for fault in hub.faults:
                    matches = fault.method == self.command and re.search(fault.path, path)
                    if matches and fault.times and length > fault.larger_than:
                        fault.times -= 1
                        return fault
            return None

        def route(self, path: str, call: Call):
            method = "GET" if call.head else self.command
            for pattern, function in routes.items():
                if match := re.fullmatch(pattern, f"{method} {path}"):
                    with hub.lock:
                        function(call, *match.groups())
            raise error(404, f"no endpoint for {method} {path}")

        def answer(self, answer: Answer):
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json" if answer.body[:1] in (b"{", b"[") else "text/plain")
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        def hang_up(self):
            self.close_connection = True
            self.connection.close()

        def log_message(self, *words):
            pass

    return Handler
