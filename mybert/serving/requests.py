"""Parse and validate requests, and answer those that are refused."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mybert.common.errors import UserError, short
from mybert.serving.served import Served

Body = Mapping[str, Any]


class Refused(HTTPException):
    """A request that gets an error response; `kind` is TEI's `error_type`."""

    def __init__(self, status: int, message: str, kind: str = "Validation", headers: Mapping[str, str] | None = None):
        super().__init__(status, message, headers)
        self.kind = kind


class Work(NamedTuple):
    """A request that has been read.

    Attributes:
        tokens: about the number of tokens of its rows.
        encode: returns the rows for `Served.compute`, and the number of tokens of each.
        answer: converts the results of the rows to the JSON response.
    """

    tokens: int
    encode: Callable[[Any], tuple[list[Any], list[int]]]
    answer: Callable[[list[Any]], bytes]


Handler = Callable[[Any, Body], Work]
"""From what is served and a request to its work. Each is for one class of `mybert.serving.served`, and has its
paths in `handlers` of `mybert.serving.app`."""


def field(body: Body, name: str, kind: type, *default: Any) -> Any:
    """Returns a field and checks its type; null counts as missing."""
    value = body.get(name)
    if value is None and default:
        return default[0]
    if type(value) is not kind:
        names = {str: "a text", bool: "true or false", int: "a whole number", list: "a list", dict: "an object"}
        raise Refused(422, f"{name}: expected {names[kind]}, found {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    return "nothing" if value is None else short(value, 40)


def check_fields(body: Body, *names: str, where: str = "") -> None:
    """Refuses fields that are none of `names`; null counts as missing."""
    if unknown := sorted(name for name, value in body.items() if value is not None and name not in names):
        expected = f"expected {', '.join(names)}" if names else "options are fields of the request itself"
        raise Refused(422, f"{where}{short(unknown[0], 40)} is not supported; {expected}")


def check_parameters(body: Body, *names: str) -> Body:
    """Returns the `parameters` of a request; refuses those that are none of `names`, and fields of TEI that would
    change the result.
    """
    parameters = field(body, "parameters", dict, {})
    check_fields(parameters, *names, where="parameters: ")
    for given in (body, parameters):
        if given.get("prompt_name") is not None:
            raise Refused(422, "prompt_name: not supported; write the prompt at the start of the text")
        if given.get("truncation_direction") not in (None, "Right", "right"):
            raise Refused(422, "truncation_direction: only Right is supported; leave it out")
    return parameters


def texts_in(body: Body, name: str, served: Served) -> list[str | list[int]]:
    """Returns texts or token arrays."""
    value = body.get(name)
    single = isinstance(value, str) or (isinstance(value, list) and bool(value) and type(value[0]) is int)
    items = [value] if single else value
    if isinstance(items, list):
        check_count(items, served)
    if not isinstance(items, list) or not all(
        isinstance(item, str) or (isinstance(item, list) and all(type(token) is int for token in item))
        for item in items
    ):
        raise Refused(422, f"{name}: expected a text or a list of texts or token arrays, found {_shown(value)}")
    return items


def check_count(items: list[Any], served: Served) -> None:
    if not items:
        raise Refused(422, "expected at least one text", "Empty")
    if len(items) > served.settings.max_texts:
        raise Refused(413, f"{len(items)} texts, more than {served.settings.max_texts}; send several requests")


def json_bytes(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False).encode()


def json_list(values: Iterable[Any]) -> bytes:
    """A list as JSON, one value after the other: `json` stops all other threads while it writes one."""
    return b"[" + b", ".join(map(json_bytes, values)) + b"]"


def work_of(handler: Handler, served: Served, body: Any) -> Work:
    """Reads a request; a mistake of the client raises `Refused`."""
    if not isinstance(body, dict):
        raise Refused(422, f"expected a JSON object, found {short(body, 40)}")
    try:
        work = handler(served, body)
    except UserError as error:
        raise Refused(422, str(error)) from error
    if work.tokens > (most := served.settings.max_tokens):
        raise Refused(
            413,
            f"{work.tokens:,} tokens, counted as often as they are read, more than {most:,}; send several requests",
        )
    return work


def encoded(work: Work, served: Served) -> tuple[list[Any], list[int]]:
    """The rows of a request and their tokens; one row may fill a few batches, for which all others have to wait."""
    try:
        rows, tokens = work.encode(served)
    except UserError as error:
        raise Refused(422, str(error)) from error
    if (most := max(tokens)) > served.max_row_tokens:
        raise Refused(
            413, f"{most:,} tokens of one text or of all choices of a row, more than {served.max_row_tokens:,}"
        )
    return rows, tokens


def error_response(
    status: int, message: str, kind: str, path: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """An error in OpenAI's format under /v1, otherwise in TEI's."""
    content: dict[str, Any] = {"error": message, "error_type": kind}
    if path.startswith("/v1/"):
        content = {"error": {"message": message, "type": kind, "param": None, "code": status}}
    return JSONResponse(content, status, headers)


async def http_error(request: Request, error: Exception) -> Response:
    """A request that is refused, an unknown path, or another method."""
    assert isinstance(error, HTTPException)
    message, kind = error.detail, getattr(error, "kind", "Validation")
    if error.status_code == 404:
        message = "no such path; /info names the routes of this checkpoint"
    elif error.status_code == 405:
        allowed = sorted(re.split(", ?", (error.headers or {}).get("Allow", "")))
        message = f"{request.method} is not supported here; use {' or '.join(allowed)}"
    return error_response(error.status_code, message, kind, request.scope["path"], error.headers)


async def own_error(request: Request, error: Exception) -> Response:
    """An error of the service, which is in its log."""
    return error_response(500, "an error of the service; see its log", "Backend", request.scope["path"])
