"""`mybert serve`: the HTTP server, its connections and its graceful stop."""

import asyncio
import gc
import os
import socket
from typing import TYPE_CHECKING, Any

from mybert.common.errors import needing
from mybert.serving.settings import API_KEY, ServeSettings

with needing("serve", "mybert serve"):
    import httptools  # noqa: F401
    import prometheus_client  # noqa: F401
    import starlette  # noqa: F401
    import uvicorn
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from mybert.serving.app import Service

_IDLE_SECONDS = 15  # for the head of a request
_HEAD_BYTES = 65_536
_REFUSING_SECONDS = 0.5  # after the last accepted request is answered


def serve(settings: ServeSettings) -> None:
    """Serves a checkpoint until SIGTERM or Ctrl-C. Accepted requests are then answered, others get 503.

    Raises:
        UserError: the checkpoint, a setting or the address cannot be used.
    """
    server = build_server(settings)
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(server.serve())


def build_server(settings: ServeSettings) -> "Server":
    """Loads the checkpoint and takes the port; see `serve`."""
    from mybert.serving.app import Service
    from mybert.serving.served import open_served

    api_key = settings.api_key or ServeSettings(settings.model, api_key=os.environ.get(API_KEY) or None).api_key
    address = _bind(settings)
    service = Service(open_served(settings), settings, api_key)
    gc.collect()
    gc.freeze()  # or every large request would have the model's objects searched
    return Server(service, settings.timeout, address)


def _bind(settings: ServeSettings) -> socket.socket:
    """Binds a socket, which does not listen yet."""
    try:
        family, kind, *_, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        raise settings.refused(error) from error
    return bound


class Server(uvicorn.Server):
    """A server that refuses requests after the first signal, answers those in progress, and ends with status 0.

    Receiving, computing and sending may take `timeout` seconds each; `address` is a bound socket.
    """

    def __init__(self, service: "Service", timeout: float, address: socket.socket):
        config = uvicorn.Config(
            service.app,
            http=type("Connection", (_Connection,), {"seconds": 3 * timeout}),
            ws="none",
            lifespan="off",
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=max(1, round(timeout)),
        )
        super().__init__(config)
        self.service, self._address, self._quiet_ticks = service, address, 0
        host, port = address.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().serve(sockets or [self._address])
        finally:
            self.service.close()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print(f"the service is at {self.url}", flush=True)  # it accepts requests now

    def handle_exit(self, sig: int, frame: Any) -> None:
        if self.service.is_stopping:  # a second signal
            self.should_exit = self.force_exit = True
        self.service.is_stopping = True

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second."""
        if self.service.is_stopping:
            self._quiet_ticks = 0 if self.service.in_progress else self._quiet_ticks + 1
            self.should_exit = self.should_exit or self._quiet_ticks > 10 * _REFUSING_SECONDS
        return await super().on_tick(counter)


class _Connection(HttpToolsProtocol):
    """An HTTP connection with time and header limits, which answers invalid HTTP with a JSON error."""

    seconds = 180.0  # for a request and its answer

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._timer: asyncio.TimerHandle | None = None
        self._expects_head, self._bytes = True, 0
        self._limit(_IDLE_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._limit(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._bytes += len(data)  # since the last end of a head or a body
        super().data_received(data)
        if self._expects_head and self._bytes > _HEAD_BYTES:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        self._expects_head, self._bytes = False, 0
        self._limit(self.seconds)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._expects_head, self._bytes = True, 0  # the answer may have been sent before, as 401 and 429 are
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._limit(self.seconds if self.pipeline else _IDLE_SECONDS)  # the next request of the pipeline begins now
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        content = b'{"error": "not HTTP", "error_type": "Validation"}'
        head = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
        self.transport.write(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
        self.transport.close()

    def _limit(self, seconds: float | None) -> None:
        """Aborts the connection after `seconds`; replaces an earlier limit."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)
