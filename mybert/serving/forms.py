"""Parse and validate requests."""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException

from mybert.common.error_messages import short
from mybert.common.errors import UserError
from mybert.serving.checkpoint import ServedCheckpoint

Body = Mapping[str, Any]


class Refused(HTTPException):
    """A request that gets an error response; `kind` is TEI's `error_type`."""

    def __init__(self, status: int, message: str, kind: str = "Validation", headers: Mapping[str, str] | None = None):
        super().__init__(status, message, headers)
        self.kind = kind


class Work(NamedTuple):
    """A request as a function of `ServedCheckpoint`, its rows, and the conversion of results to the JSON response."""

    function: str
    rows: list
    tokens: list[int]
    answer: Callable[[list], bytes]


Form = Callable[[ServedCheckpoint, Body], Work]


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


def with_parameters(body: Body, *names: str) -> Body:
    """The body merged with its `parameters`, whose names must be among `names`."""
    parameters = {name: value for name, value in field(body, "parameters", dict, {}).items() if value is not None}
    if unknown := sorted(parameters.keys() - set(names)):
        raise Refused(422, f"parameters: {short(unknown[0], 40)} is not supported; expected {', '.join(names)}")
    # parameters of TEI that would change the result
    if body.get("prompt_name") is not None:
        raise Refused(422, "prompt_name: not supported; write the prompt at the start of the text")
    if body.get("truncation_direction") not in (None, "Right", "right"):
        raise Refused(422, "truncation_direction: only Right is supported; leave it out")
    return {**body, **parameters}


def texts_in(body: Body, name: str, served: ServedCheckpoint, ids: bool = True) -> tuple[list[str | list[int]], bool]:
    """Returns texts or token arrays, and whether the field was a single one."""
    value = body.get(name)
    single = isinstance(value, str) or (ids and isinstance(value, list) and bool(value) and type(value[0]) is int)
    items = [value] if single else value
    if isinstance(items, list):
        check_count(items, served)
    if not isinstance(items, list) or not all(
        isinstance(item, str) or (ids and isinstance(item, list) and all(type(token) is int for token in item))
        for item in items
    ):
        arrays = " or token arrays" if ids else ""
        raise Refused(422, f"{name}: expected a text or a list of texts{arrays}, found {_shown(value)}")
    return items, single


def check_count(items: list, served: ServedCheckpoint) -> None:
    if not items:
        raise Refused(422, "expected at least one text", "Empty")
    if len(items) > served.settings.max_texts:
        raise Refused(413, f"{len(items)} texts, more than {served.settings.max_texts}; send several requests")


def unlisted(values: list, single: bool) -> Any:
    return values[0] if single else values


def json_bytes(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False).encode()


def work_of(form: Form, served: ServedCheckpoint, body: Any) -> Work:
    """Reads a request; a mistake of the client raises `Refused`."""
    if not isinstance(body, dict):
        raise Refused(422, f"expected a JSON object, found {short(body, 40)}")
    try:
        work = form(served, body)
    except UserError as error:
        raise Refused(422, str(error)) from error
    if (tokens := sum(work.tokens)) > served.settings.max_tokens:
        raise Refused(413, f"{tokens:,} tokens, more than {served.settings.max_tokens:,}; send several requests")
    return work
