"""One-line messages: third-party exceptions and long values."""

import itertools
from collections.abc import Iterable
from typing import Any

_LONGEST = 300


def cause(error: BaseException) -> str:
    """The message of an exception as one line, preceded by its type unless it is an OSError or ValueError."""
    message = " ".join(str(error).split())[:_LONGEST]
    if message and isinstance(error, OSError | ValueError):
        return message
    return f"{type(error).__name__}: {message}".rstrip(": ")


def short(text: Any, longest: int = 80) -> str:
    """`repr(text)`, truncated to `longest` characters."""
    shown = repr(text)
    return shown if len(shown) <= longest else f"{shown[:longest]}…"


def short_list(names: Iterable[str]) -> str:
    """The first twenty names, separated by commas, with an ellipsis if there are more."""
    first = [" ".join(name.split())[:80] for name in itertools.islice(names, 21)]
    return ", ".join(first[:20] + ["…"] * (len(first) > 20))
