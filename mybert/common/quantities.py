"""Numbers with unit prefixes (3.3B tokens, 400T FLOP/s, 80G bytes), durations, counts, and even spacing."""

import argparse
import math
import re
from typing import Self

from mybert.common.errors import short

_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "B": 3, "T": 4, "P": 5, "E": 6}
_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_WRITTEN_TIME = re.compile("".join(rf"(?:([0-9.]+)\s*{unit}\s*)?" for unit in _SECONDS), re.IGNORECASE)
_WRITTEN = re.compile(r"([0-9.]+(?:e[+-]?[0-9]+)?)\s*([kmgbtpe]?)", re.IGNORECASE)


class Quantity(float):
    """A number from 1 to 1e24, with an optional suffix: K, M, G or B (billion), T, P, E.

    >>> Quantity("3.3B") + 0
    3300000000.0

    Raises:
        argparse.ArgumentTypeError: the text is not such a number; argparse adds the name of the flag.
    """

    def __new__(cls, text: str | float) -> Self:
        match = _WRITTEN.fullmatch(str(text).strip())
        try:
            value = float(match[1]) * 1000 ** _POWERS[match[2].upper()] if match else math.nan
        except (ValueError, OverflowError):
            value = math.nan
        if not 1 <= value <= 1e24:
            raise argparse.ArgumentTypeError(
                f"expected a number from 1 to 1e24 like 500M, 3.3B or 400T, found {short(text)}"
            )
        return super().__new__(cls, value)


class Duration(float):
    """Seconds, written as 90s, 10m, 1h or 2h30m, or as a number of seconds.

    >>> Duration("2h30m") + 0
    9000.0

    Raises:
        argparse.ArgumentTypeError: the text is not such a time; argparse adds the name of the flag.
    """

    def __new__(cls, text: str | float) -> Self:
        match = _WRITTEN_TIME.fullmatch(str(text).strip())
        try:
            parts = zip(match.groups() if match else (), _SECONDS.values(), strict=False)
            value = sum(float(n) * unit for n, unit in parts if n) or float(text)
        except ValueError:
            value = 0
        if not 1 <= value < math.inf:
            raise argparse.ArgumentTypeError(f"expected a time like 90s, 10m, 1h or 2h30m, found {short(text)}")
        return super().__new__(cls, value)


def with_unit(value: float, unit: str) -> str:
    """Formats a value with an SI prefix: `with_unit(1.23e9, "FLOP")` is `1.23 GFLOP`."""
    value = float(f"{value:.3g}")  # rounded first: 999,999 is 1 M, not 1e+03 k
    power = min(max(int(math.log10(max(value, 1)) // 3), 0), 6)
    return f"{value / 1000**power:.3g} {'kMGTPE'[power - 1] if power else ''}{unit}"


def duration(seconds: float) -> str:
    """Formats seconds with the two largest units: `duration(90)` is `1 min 30 s`, `duration(60)` is `1 min`."""
    seconds = round(seconds)
    parts = [(seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    while len(parts) > 1 and not parts[0][0]:
        parts.pop(0)
    return " ".join(f"{n} {unit}" for n, unit in parts[:2] if n or len(parts) == 1)


def evenly(number: int, count: int) -> list[int]:
    """At most `count` of the indices below `number`, evenly spaced, with the first and the last.

    >>> evenly(12, 6)
    [0, 2, 4, 7, 9, 11]
    """
    count = min(number, count)
    return [round(place * (number - 1) / max(count - 1, 1)) for place in range(count)]


def counted(number: int, noun: str) -> str:
    """Formats a count: `counted(1, "layer")` is `1 layer`, `counted(2000, "layer")` is `2,000 layers`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
