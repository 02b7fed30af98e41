"""Load test of `mybert serve`: throughput compared with `Embedder`, hostile clients, memory, and a stop under load.

    python benchmarks/serve.py MODEL [--text python-docs] [--clients 32] [--texts 16] [--seconds 30] [--minutes 10]

1. The rate at which `Embedder` computes the vectors of some sentences in a process of its own, and the rate at which
   `--clients` clients get the same vectors from the service in OpenAI's form, with `--texts` texts a request, in three
   alternating rounds of a third of `--seconds` each. The clients share the cores with the service, so CPU seconds of
   the service alone are printed beside the rates.
2. `--minutes` of requests of 1 to 64 texts, whose vectors are compared, and of hostile clients. An answer of 5xx, a
   vector that differs and a lost connection count as errors. Memory is read at a fifth of the time and at the end.
3. SIGTERM while all clients wait: every accepted request is answered, and the exit status is 0.
"""

import argparse
import asyncio
import base64
import collections
import json
import multiprocessing
import random
import re
import statistics
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import aiohttp
import numpy as np
import psutil
from inference import sentences

from mybert.common.machine import hardware
from mybert.common.tables import print_table

HOSTILE = [
    *(b"", b"{", b"\xff" * 999, b"[" * 99_999, b"9" * 99_999, b" " * 3_000_000, b'{"input": {"a": ' * 9999),
    *(b'{"input": NaN}', b'{"input": "\\ud800"}', b'{"input": [[1e999]]}'),
    *(b'{"input": [' + b"[]," * 500_000 + b"[]]}", b'{"input": [' + b'"a",' * 5000 + b'"a"]}'),
    b'{"input": "' + b"a " * 500_000 + b'"}',
]
ROUNDS = 3
_offline = {}  # texts and embedder of the offline process


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--text", default="python-docs")
    parser.add_argument("--sentences", type=int, default=4096)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--texts", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--minutes", type=float, default=10)
    arguments = parser.parse_args()
    command = [sys.executable, "-m", "mybert", "serve", arguments.model, "--port", "0"]
    with (
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as offline,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
    ):
        texts, vectors = offline.submit(prepare, arguments.model, arguments.text, arguments.sentences).result()
        url = re.search(r"http://\S+", server.stdout.readline())[0]
        load = Load(url, texts, vectors, psutil.Process(server.pid), arguments)
        try:
            asyncio.run(load.run(offline))
            status = server.wait(60)
        finally:
            server.kill()
    print(f"exit status after SIGTERM: {status}")


def prepare(model: str, text: str, count: int) -> tuple[list[str], np.ndarray]:
    """Sentences and their vectors; the embedder is kept for `embed`."""
    from mybert import Embedder
    from mybert.common.machine import keep_freed_memory

    keep_freed_memory()
    texts = sentences(text, count)
    _offline.update(texts=texts, embedder=Embedder(model, normalize=True, device="cpu"))
    return texts, _offline["embedder"].texts(texts)


def embed(seconds: float) -> np.ndarray:
    """(3,) texts, seconds and CPU seconds of `Embedder`, for at least `seconds`."""
    began, used, rounds = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - began < seconds or not rounds:
        _offline["embedder"].texts(_offline["texts"])
        rounds += 1
    done = rounds * len(_offline["texts"])
    return np.array([done, time.perf_counter() - began, time.process_time() - used])


class Load:
    """Clients of one service. `errors` counts what is the fault of the service."""

    def __init__(self, url: str, texts: list[str], vectors: np.ndarray, process: psutil.Process, arguments):
        self.url, self.texts, self.vectors, self.process, self.arguments = url, texts, vectors, process, arguments
        self.errors, self.answers, self.seconds = collections.Counter(), collections.Counter(), []
        self.stops, self.random = 0.0, random.Random(0)

    async def run(self, offline: ProcessPoolExecutor) -> None:
        timeout, connector = aiohttp.ClientTimeout(300), aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as self.session:
            await self.throughput(offline)
            await self.mixed(60 * self.arguments.minutes)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(force_close=True)) as last:
            self.session = last
            await self.stop()

    async def throughput(self, offline: ProcessPoolExecutor) -> None:
        await self.together(self.client, 5, self.arguments.texts)  # warm-up
        self.seconds, spent, seconds = [], np.zeros((2, 3)), self.arguments.seconds / ROUNDS
        for _ in range(ROUNDS):
            before, used, began = len(self.seconds), self.cpu(), time.perf_counter()
            await self.together(self.client, seconds, self.arguments.texts)
            done = (len(self.seconds) - before) * self.arguments.texts
            spent[1] += done, time.perf_counter() - began, self.cpu() - used
            spent[0] += await asyncio.wrap_future(offline.submit(embed, seconds))
        rates = spent[:, :1] / spent[:, 1:]
        rows = [(name, *rate, *rate / rates[0]) for name, rate in zip(("offline", "service"), rates, strict=True)]
        title = f"{self.arguments.clients} clients, {self.arguments.texts} texts a request"
        print_table(title, rows, ["", "texts/s", "texts/CPU s", "of offline", "of offline, CPU"])
        print(f"latency: {self.percentiles()}, {len(self.seconds)} requests")

    async def mixed(self, seconds: float) -> None:
        self.seconds, memory, self.answers = [], [], collections.Counter()
        watch = asyncio.create_task(self.watch(memory))
        await asyncio.gather(
            self.together(self.client, seconds, None), self.together(self.hostile, seconds, None, count=8)
        )
        watch.cancel()
        early, late = (statistics.median(memory[int(len(memory) * a) :][:10]) for a in (0.2, 0.9))
        print_table("mixed and hostile requests", sorted(self.answers.items()), ["answer", "number"])
        print(f"latency: {self.percentiles()}; errors of the service: {dict(self.errors)}")
        print(f"memory at a fifth of the time {early / 2**20:,.0f} MiB, at the end {late / 2**20:,.0f} MiB")

    async def stop(self) -> None:
        self.answers, self.errors = collections.Counter(), collections.Counter()
        clients = asyncio.create_task(self.together(self.client, 15, self.arguments.texts))
        await asyncio.sleep(3)
        self.process.terminate()
        await clients
        print(f"answers around SIGTERM: {dict(self.answers)}; lost: {dict(self.errors)}")

    async def together(self, client, seconds: float, *arguments, count: int | None = None) -> None:
        self.stops = time.perf_counter() + seconds
        await asyncio.gather(*(client(*arguments) for _ in range(count or self.arguments.clients)))

    async def client(self, count: int | None) -> None:
        while time.perf_counter() < self.stops:
            size = count or self.random.choice((1, 1, 1, 4, 16, 64))
            chosen = self.random.sample(range(len(self.texts)), size)
            body = {"model": "m", "input": [self.texts[i] for i in chosen], "encoding_format": "base64"}
            began = time.perf_counter()
            try:
                async with self.session.post(f"{self.url}/v1/embeddings", json=body) as response:
                    content = await response.read()
            except aiohttp.ClientConnectorError:  # after the stop
                self.answers["refused"] += 1
                return
            except (aiohttp.ClientError, TimeoutError) as error:
                self.errors[type(error).__name__] += 1
                continue
            self.answers[str(response.status)] += 1
            if response.status == 200:
                self.seconds.append(time.perf_counter() - began)
                found = [base64.b64decode(one["embedding"]) for one in json.loads(content)["data"]]
                found = np.frombuffer(b"".join(found), "<f4").reshape(size, -1)
                self.errors["other vectors"] += int(np.abs(found - self.vectors[chosen]).max() > 1e-4)
            elif response.status in (429, 503):
                await asyncio.sleep(min(1.0, float(response.headers.get("retry-after", 1))))
            else:
                self.errors[f"status {response.status}"] += 1
        self.errors += collections.Counter()  # drops zeros

    async def hostile(self, _: None) -> None:
        host, port = self.url.removeprefix("http://").rsplit(":", 1)
        while time.perf_counter() < self.stops:
            kind = self.random.randrange(len(HOSTILE) + 3)
            if kind < len(HOSTILE):
                try:
                    async with self.session.post(f"{self.url}/v1/embeddings", data=HOSTILE[kind]) as response:
                        self.errors[f"hostile {response.status}"] += int(response.status >= 500)
                        error = json.loads(await response.read())["error"]["message"]
                        self.answers[f"hostile {response.status}"] += 1
                        self.errors["trace"] += int("Traceback" in error or "\n" in error)
                except aiohttp.ClientError as error:
                    self.answers[f"hostile {type(error).__name__}"] += 1
            else:  # raw connections that end early, never end their head, or send no HTTP
                _, writer = await asyncio.open_connection(host, int(port))
                body = json.dumps({"input": self.texts[:50]}).encode()
                head = b"POST /v1/embeddings HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
                writer.write((head + body, head + body[:9], b"\x00\xff" * 99)[kind - len(HOSTILE)])
                await asyncio.sleep(0.05)
                writer.close()
                self.answers["hostile connection"] += 1
            await asyncio.sleep(0.05)
        self.errors += collections.Counter()

    async def watch(self, memory: list[int]) -> None:
        while True:
            memory.append(self.process.memory_info().rss)
            await asyncio.sleep(1)

    def percentiles(self) -> str:
        p50, p99 = np.percentile(self.seconds or [np.nan], (50, 99))
        return f"p50 {1000 * p50:.0f} ms, p99 {1000 * p99:.0f} ms"

    def cpu(self) -> float:
        times = self.process.cpu_times()
        return times.user + times.system


if __name__ == "__main__":
    print(f"machine: {hardware()}")
    main()
