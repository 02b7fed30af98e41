"""Strict JSON parsing."""

import json
from typing import Any

from mybert.common.error_messages import short


def parse_json(content: str | bytes, unique: bool = False) -> Any:
    """`json.loads`, but whatever is no JSON raises ValueError, which says where: also what is too much for Python.

    Args:
        unique: whether an object that has a name twice raises it too, where json takes the last value.
    """
    try:
        if isinstance(content, bytes):  # as json itself does it
            content = content.decode(json.detect_encoding(content), "surrogatepass")
        content = content.rstrip()  # or a line that is cut off ends at the first character of the next
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
        raise ValueError(f"{short(next(name for name in names if names.count(name) > 1))} is there twice")
    return found


def is_json(content: str | bytes) -> bool:
    """Whether `parse_json` reads it."""
    try:
        parse_json(content)
    except ValueError:
        return False
    return True
