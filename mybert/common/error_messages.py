"""One-line messages: third-party exceptions and long values."""

import itertools
from collections.abc import Iterable
from typing import Any

_LONGEST = 300


def cause(error: BaseException) -> str:
    """What an exception says, as one line; its kind too, where the words alone mean nothing."""
    said = " ".join(str(error).split())[:_LONGEST]
    return said if said and isinstance(error, OSError | ValueError) else f"{type(error).__name__}: {said}".rstrip(": ")


def short(text: Any, longest: int = 80) -> str:
    """`text` as it is in Python, cut where it is long."""
    shown = repr(text)
    return shown if len(shown) <= longest else f"{shown[:longest]}…"


def short_list(names: Iterable[str]) -> str:
    """The first of many names, one after the other, in one line."""
    first = [" ".join(name.split())[:80] for name in itertools.islice(names, 21)]
    return ", ".join(first[:20] + ["…"] * (len(first) > 20))
