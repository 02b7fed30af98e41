"""Services in threads of the test process."""

import asyncio
import json
import signal
import threading
import time

import httpx
import pytest

from mybert.serving.run import Server, build_server
from mybert.serving.settings import ServeSettings


class Running:
    """A service that answers at `url`; `client` is an HTTP client."""

    def __init__(self, model, **settings):
        self.server: Server = build_server(ServeSettings(str(model), port=0, device="cpu", **settings))
        self.url, self.service = self.server.url, self.server.service
        self.thread = threading.Thread(target=asyncio.run, args=(self.server.serve(),), daemon=True)
        self.thread.start()
        while not self.server.started:
            assert self.thread.is_alive(), "the service has not started"
            time.sleep(0.01)
        self.client = httpx.Client(base_url=self.url, timeout=60)

    def post(self, path: str, body, **headers) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.client.post(path, content=content, headers=headers)

    def stop(self) -> None:
        self.server.handle_exit(signal.SIGTERM, None)

    def join(self) -> bool:
        """Whether the server ends."""
        self.thread.join(60)
        return not self.thread.is_alive()


@pytest.fixture(scope="module")
def serve(models):
    """A function from the name of a tiny model, and settings, to its running service."""
    running: dict[tuple, Running] = {}

    def start(name: str, **settings) -> Running:
        key = (name, *settings.items())
        if key not in running or running[key].service.is_stopping:
            running[key] = Running(models(name), **settings)
        return running[key]

    yield start
    for one in running.values():
        one.stop()
    assert all(one.join() for one in running.values())
