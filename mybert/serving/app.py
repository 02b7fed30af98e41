"""The ASGI application of a service: routes, access, limits and errors."""

import asyncio
import functools
import hmac
import logging
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from mybert.artifacts.manifest import versions
from mybert.common.errors import cause
from mybert.common.json_io import MAX_DEPTH, parse_json, unwritable
from mybert.serving import embedding_requests, prediction_requests
from mybert.serving.batching import Batcher, Job, Overloaded
from mybert.serving.metrics import Metrics
from mybert.serving.requests import Handler, Refused, Work, encoded, error_response, http_error, own_error, work_of
from mybert.serving.served import MAX_COLUMN_SETS, MAX_COLUMNS, MAX_SCORES, Served, ServedEncoder, ServedIndex
from mybert.serving.settings import ServeSettings

_READ_AT_ONCE = 16  # requests of the maximum size whose bodies are in memory
_DISCARDED = 16  # a larger body is read up to this multiple of the maximum, so that its sender reads the answer
_SMALL, _SMALL_TOKENS = 20_000, 2000  # bytes and tokens of a request that is handled without a thread
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")  # of surrogates, or one of a pair

logger = logging.getLogger(__name__)


class Service:
    """The service of a checkpoint or an index.

    Attributes:
        metrics: what `/metrics` shows.
        in_progress: number of requests that are being received, computed or answered.
        is_stopping: whether new requests are refused.
    """

    def __init__(self, served: Served, settings: ServeSettings, api_key: str | None):
        self.served, self._settings = served, settings
        self._served_in_threads = served.with_own_tokenizer()
        self._authorization = None if api_key is None else f"Bearer {api_key}".encode()
        self.in_progress, self.is_stopping, self._bytes = 0, False, 0
        self.metrics = Metrics(lambda: self.in_progress, lambda: self._batcher.tokens)
        limits = served.max_tokens_per_batch, settings.max_tokens, settings.max_wait / 1000
        self._batcher = Batcher(served.compute, *limits, self.metrics.computed)
        self._threads = ThreadPoolExecutor(2, "requests")
        self._handlers = handlers(served)
        endpoints = {path: _Endpoint(self, path, handler) for path, handler in self._handlers.items()}
        self.app = Starlette(
            routes=[
                *(Route(path, endpoint, methods=["POST"]) for path, endpoint in endpoints.items()),
                Route("/health", self._health),
                Route("/metrics", self._show_metrics),
                Route("/info", self._info),
                Route("/v1/models", self._models),
            ],
            exception_handlers={HTTPException: http_error, Exception: own_error},
        )
        self.app.router.redirect_slashes = False  # a redirection would trust the header Host

    def close(self) -> None:
        """Waits for the batch that is being computed, even if its clients have gone."""
        self._batcher.close()

    async def answer(self, handler: Handler, request: Request) -> Response:
        """The response; raises `Refused` if the request cannot be answered."""
        self._check_key(request)
        if self.is_stopping:
            raise Refused(503, "the service is stopping", "Unhealthy", {"connection": "close", "retry-after": "5"})
        if self.in_progress > self._settings.max_requests:
            raise Refused(
                429, f"more than {self._settings.max_requests} concurrent requests", "Overloaded", {"retry-after": "1"}
            )
        body = await self._body(request)
        answering = asyncio.ensure_future(self._content(handler, body))
        leaving = asyncio.ensure_future(_disconnection(request))
        try:
            await asyncio.wait(
                [answering, leaving], timeout=self._settings.timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if answering.done():
                return Response(answering.result(), media_type="application/json")
            if leaving.done():
                raise ClientDisconnect
        finally:  # work that nobody waits for is stopped
            answering.cancel()
            leaving.cancel()
        raise Refused(503, f"no answer in {self._settings.timeout:g} s", "Overloaded", {"retry-after": "5"})

    async def _content(self, handler: Handler, body: bytes) -> bytes:
        try:
            work = await self._call(len(body) > _SMALL, self._work, handler, body)
        finally:
            self._bytes -= len(body)
        is_large = work.tokens > _SMALL_TOKENS
        rows, tokens = await self._call(is_large, encoded, work)
        results = await self._compute(rows, tokens)
        return await self._call(is_large, lambda _: work.answer(results))

    async def _call(self, is_large: bool, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function with what is served as its last argument, in a thread if it may take long."""
        if not is_large:
            return function(*arguments, self.served)
        call = functools.partial(function, *arguments, self._served_in_threads)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def _check_key(self, request: Request) -> None:
        given = request.headers.get("authorization", "").encode()
        if self._authorization is not None and not hmac.compare_digest(given, self._authorization):
            message = "expected the API key in the header `Authorization: Bearer KEY`"
            raise Refused(401, message, "Unauthorized", {"www-authenticate": "Bearer"})

    async def _body(self, request: Request) -> bytes:
        """The body; its bytes are added to `_bytes`."""
        most, close = self._settings.max_bytes, {"connection": "close"}
        if request.headers.get("content-encoding", "identity") != "identity":
            raise Refused(415, "the body is compressed; send it uncompressed", headers=close)
        parts, size = [], 0
        try:
            async with asyncio.timeout(self._settings.timeout):
                async for part in request.stream():
                    size += len(part)
                    if size <= most:
                        parts.append(part)
                        self._bytes += len(part)
                    if self._bytes > _READ_AT_ONCE * most:
                        raise Refused(
                            429, "too many bytes in concurrent requests", "Overloaded", close | {"retry-after": "1"}
                        )
                    if size > _DISCARDED * most:
                        break
            if size > most:
                raise Refused(413, f"more than {most:,} bytes; send several requests", headers=close)
        except BaseException as error:
            self._bytes -= sum(map(len, parts))
            if isinstance(error, TimeoutError):
                seconds = self._settings.timeout
                raise Refused(408, f"the body did not arrive in {seconds:g} s", headers=close) from error
            raise
        return b"".join(parts)

    def _work(self, handler: Handler, body: bytes, served: Served) -> Work:
        if body.count(b",") > (most := self._settings.max_tokens):  # before objects are made of them
            raise Refused(413, f"more than {most:,} values; send several requests")
        try:
            text = body.decode()
            given = parse_json(text)
        except ValueError as error:
            raise Refused(400, f"not JSON ({cause(error)})") from error
        if _HALF_PAIR.search(text) and isinstance(given, dict) and (problem := unwritable(given)):
            raise Refused(400, problem)
        return work_of(handler, served, given)

    async def _compute(self, rows: list[Any], tokens: list[int]) -> list[Any]:
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        job = Job(rows, tokens, lambda: loop.call_soon_threadsafe(done.set))
        try:
            self._batcher.submit(job)
        except Overloaded as error:
            raise Refused(429, str(error), "Overloaded", {"retry-after": str(error.seconds)}) from error
        try:
            await done.wait()
        finally:
            self._batcher.cancel(job)
        if job.error is not None:
            raise job.error
        return job.results

    # Facts

    async def _health(self, request: Request) -> Response:
        if self.is_stopping or not self._batcher.is_alive:
            return error_response(503, "the service is stopping", "Unhealthy", "/health")
        return Response()

    async def _show_metrics(self, request: Request) -> Response:
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def _info(self, request: Request) -> Response:
        """TEI's `/info`, and the routes and limits of the service."""
        self._check_key(request)
        served, settings = self.served, self._settings
        facts = {
            "model_id": served.name,
            "model_sha": None,
            "model_dtype": "int8" if served.is_int8 else settings.dtype,
            **served.facts(),
            "task": served.task,
            "routes": sorted(self._handlers),
            "max_concurrent_requests": settings.max_requests,
            "max_input_length": served.max_length,
            "max_batch_tokens": served.max_tokens_per_batch,
            "max_client_batch_size": settings.max_texts,
            "auto_truncate": settings.long_texts == "truncate",
            "limits": {
                "bytes": settings.max_bytes,
                "tokens": settings.max_tokens,
                "tokens_of_a_row": served.max_row_tokens,
                "rows": settings.max_texts,
                "columns": MAX_COLUMNS,
                "sets_of_columns": MAX_COLUMN_SETS,
                "scores": MAX_SCORES,
                "json_levels": MAX_DEPTH,
                "seconds": settings.timeout,
            },
            "version": versions().get("mybert"),
        }
        return JSONResponse(facts)

    async def _models(self, request: Request) -> Response:
        """OpenAI's `/v1/models`."""
        self._check_key(request)
        model = {"id": self.served.name, "object": "model", "created": 0, "owned_by": "mybert"}
        return JSONResponse({"object": "list", "data": [model]})


class _Endpoint:
    """The ASGI application of one route. A request is in progress until its answer is sent."""

    def __init__(self, service: Service, path: str, handler: Handler):
        self._service, self._path, self._handler = service, path, handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, service, request = time.monotonic(), self._service, Request(scope, receive)
        service.in_progress += 1
        status = 499  # the client has closed the connection
        try:
            try:
                response = await service.answer(self._handler, request)
            except Refused as error:
                response = await http_error(request, error)
            except ClientDisconnect:
                return
            except Exception as error:
                logger.error("%s failed", self._path, exc_info=error)
                response = await own_error(request, error)
            status = response.status_code
            await response(scope, receive, send)
        finally:
            service.in_progress -= 1
            service.metrics.answered(self._path, status, time.monotonic() - began)


def handlers(served: Served) -> dict[str, Handler]:
    """The handlers of what is served, by path."""
    if isinstance(served, ServedIndex):
        return {"/search": embedding_requests.search, "/": embedding_requests.search}
    if isinstance(served, ServedEncoder):
        return {
            "/": embedding_requests.embed,
            "/embed": embedding_requests.embed,
            "/v1/embeddings": embedding_requests.openai_embeddings,
            "/embeddings": embedding_requests.openai_embeddings,
            "/similarity": embedding_requests.similarity,
        }
    if served.task != "text-classification":
        return {"/predict": prediction_requests.predict}
    predict, rerank = prediction_requests.predict, prediction_requests.rerank
    is_reranker = len(served.predictor.task.id2label) == 1
    first = rerank if is_reranker else predict
    return {"/predict": predict, **dict.fromkeys(("/rerank", "/v1/rerank", "/v2/rerank"), rerank), "/": first}


async def _disconnection(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
