"""Strict JSON parsing."""

import json
from pathlib import Path
from typing import Any

from mybert.common.error_messages import cause, short
from mybert.common.errors import UserError


def parse_json(content: str | bytes, unique: bool = False) -> Any:
    """`json.loads` that raises ValueError with the position for every kind of invalid input.

    Args:
        content: JSON text, or bytes in UTF-8, UTF-16 or UTF-32.
        unique: whether to reject objects with duplicate keys, for which `json` keeps the last value.

    Raises:
        ValueError: the content is not JSON, is nested too deeply, or holds a number with too many digits.
    """
    try:
        if isinstance(content, bytes):  # as json.loads does
            content = content.decode(json.detect_encoding(content), "surrogatepass")
        content = content.rstrip()  # errors at the end of a truncated line are reported in that line
        return json.loads(content, object_pairs_hook=_unique if unique else None)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if "\n" in error.doc else ""
        raise ValueError(f"{error.msg.removesuffix(' at')} at {line}character {error.colno}") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except ValueError as error:
        raise ValueError("a number of too many digits" if "int_max_str_digits" in str(error) else error) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{short(next(name for name in names if names.count(name) > 1))} is given twice")
    return found


def read_json_object(path: Path, remedy: str) -> dict[str, Any]:
    """The JSON object in a file; raises a UserError that ends with `remedy` if there is none."""
    try:
        found = parse_json(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path} is damaged ({cause(error)}); {remedy}") from error
    if not isinstance(found, dict):
        raise UserError(f"{path} is damaged: expected a JSON object, found {short(found, 40)}; {remedy}")
    return found


def is_json(content: str | bytes) -> bool:
    """Whether `parse_json` accepts the content."""
    try:
        parse_json(content)
    except ValueError:
        return False
    return True


def unwritable(record: dict) -> str | None:
    """Why a record of JSON cannot be written again: half of a surrogate pair, or too deep nesting."""
    try:
        json.dumps(record, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError as error:
        return f"{error.object[error.start : error.end]!r} is half a surrogate pair, no character"
    except RecursionError:
        return "nested too deeply"
    return None
