"""Strict JSON parsing, with a limit of nesting that keeps every recursive reader and writer far from Python's own."""

import json
import stat
from collections import Counter
from pathlib import Path
from typing import Any

from mybert.common.errors import UserError, cause, short

MAX_DEPTH = 100
"""Levels of nested objects and arrays; the deepest file that a stage writes has a dozen."""
_TOO_DEEP = f"nested too deeply: more than {MAX_DEPTH} levels"


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
        value = json.loads(content, object_pairs_hook=_unique if unique else None)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if "\n" in error.doc else ""
        raise ValueError(f"{error.msg.removesuffix(' at')} at {line}character {error.colno}") from error
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    except (UnicodeDecodeError, _Repeated):
        raise
    except ValueError as error:  # of int()
        raise ValueError("a number of too many digits") from error
    if content.count("[") + content.count("{") > MAX_DEPTH:
        _check_depth(value)
    return value


def _check_depth(value: Any) -> None:
    """Raises a ValueError if a parsed value has more than `MAX_DEPTH` levels; goes through it level by level."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MAX_DEPTH):
        items = (item for one in level for item in (one.values() if isinstance(one, dict) else one))
        level = [item for item in items if isinstance(item, (dict, list))]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


class _Repeated(ValueError):
    """A key is given twice."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise _Repeated(f"{short(next(name for name, number in counts.items() if number > 1))} is given twice")
    return fields


def irregular(path: Path) -> str | None:
    """What a path is instead of a regular file: a folder, a named pipe, a link to nothing, …; None for a file."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        return "a link to no file" if path.is_symlink() else cause(error)
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
    kind = kinds.get(stat.S_IFMT(mode), "a device")
    return None if stat.S_ISREG(mode) else f"a link to {kind}" if path.is_symlink() else kind


def read_json(path: Path) -> Any:
    """The JSON in a regular file; reading a pipe would wait for its writer.

    Raises:
        OSError: the file cannot be opened.
        ValueError: it is no regular file, or not JSON.
    """
    if path.exists() and (kind := irregular(path)):
        raise ValueError(f"it is {kind}, not a regular file")
    return parse_json(path.read_bytes())


def read_json_object(path: Path, remedy: str) -> dict[str, Any]:
    """The JSON object in a file; raises a UserError that ends with `remedy` if there is none."""
    try:
        value = read_json(path)
    except ValueError as error:
        raise UserError(f"{path} is damaged ({cause(error)}); {remedy}") from error
    if not isinstance(value, dict):
        raise UserError(f"{path} is damaged: expected a JSON object, found {short(value, 40)}; {remedy}")
    return value


def is_json(content: str | bytes) -> bool:
    """Whether `parse_json` accepts the content."""
    try:
        parse_json(content)
    except ValueError:
        return False
    return True


def unwritable(record: dict[str, Any]) -> str | None:
    """Why a record of JSON cannot be written again: half of a surrogate pair, or too deep nesting."""
    try:
        json.dumps(record, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError as error:
        return f"{error.object[error.start : error.end]!r} is half a surrogate pair, no character"
    except RecursionError:
        return "nested too deeply"
    return None
