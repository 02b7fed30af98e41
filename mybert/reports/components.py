"""What a page of a report is made of, and the text that may be on it. `template/` says how each looks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

_LEFT_OUT = dict.fromkeys([*range(9), 11, 12, *range(14, 32), *range(127, 160), 0xFFFE, 0xFFFF])
_LEFT_OUT |= dict.fromkeys(range(0xD800, 0xE000))
# Marks that change the direction of text after them, until the end of a paragraph
_LEFT_OUT |= dict.fromkeys([0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])


def printable(text: str) -> str:
    """The text without control characters, lone surrogates and marks of direction; jinja2 escapes the rest."""
    return text.translate(_LEFT_OUT)


@dataclass(frozen=True)
class Tile:
    """One number at the top of a page, with its name and what it is compared with."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        rows: cells; numbers are aligned to the right. A cell may be a `Share`, `Interval` or `Segments`.
        note: a sentence below the title.
        folded: shown only when the reader opens it.
    """

    kind: ClassVar[str] = "table"
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Share:
    """A cell with a share in [0, 1], coloured by its value.

    Attributes:
        text: instead of the percentage.
        tone: `accent` or `bad`.
    """

    kind: ClassVar[str] = "share"
    value: float
    text: str = ""
    tone: str = "accent"

    @property
    def colour(self) -> int:
        """Strength of the background in percent; low enough for the text to stay readable."""
        return round(45 * min(max(self.value, 0.0), 1.0)) if math.isfinite(self.value) else 0


@dataclass(frozen=True)
class Interval:
    """A cell with a score in [0, 1], its interval and the score of a constant prediction, drawn on one scale."""

    kind: ClassVar[str] = "interval"
    value: float
    low: float
    high: float
    constant: float | None = None


@dataclass(frozen=True)
class Segments:
    """A cell of text in parts (class, text); the class is `a`, `b`, `mark` or ""."""

    kind: ClassVar[str] = "segments"
    parts: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Chart:
    """A picture and the table of its numbers.

    Attributes:
        data: JSON of its lines for each horizontal axis; see `charts.line_chart`.
        width: of a wide page: `half` or `third`; more where a row of the page has room.
    """

    kind: ClassVar[str] = "chart"
    title: str
    data: str
    table: Table
    note: str = ""
    width: str = "half"


@dataclass(frozen=True)
class Thresholds:
    """A control with which the reader tries thresholds and costs of mistakes.

    Attributes:
        data: JSON of each label's name, `rows`, the number of its rows, and `threshold`, `precision`, `recall`.
    """

    kind: ClassVar[str] = "thresholds"
    title: str
    data: str


@dataclass(frozen=True)
class Predictions:
    """A table of rows that the reader sorts, searches and filters in the browser.

    Attributes:
        columns: headers; the kinds of their values are `number`, `share`, `text` or `choice`.
        total: number of rows of the data.
        packed: gzip-compressed JSON rows in base64.
        first: the first rows, shown without JavaScript and until the packed rows are read.
        graded: whether a row with an error is incorrect; predicted numbers have errors of any size.
    """

    kind: ClassVar[str] = "predictions"
    title: str
    columns: Sequence[tuple[str, str]]
    total: int
    packed: str
    first: Sequence[Sequence[Any]]
    note: str = ""
    graded: bool = True


@dataclass(frozen=True)
class Section:
    """A titled part of a page.

    Attributes:
        parts: those that are None are left out.
        axes: choices of the horizontal axis of its charts, if they have several.
    """

    title: str
    parts: Sequence[Any]
    intro: str = ""
    axes: Sequence[str] = ()

    @property
    def has_charts(self) -> bool:
        return any(isinstance(part, Chart) for part in self.parts)

    @property
    def shown(self) -> list[Any]:
        return [part for part in self.parts if part is not None]


@dataclass(frozen=True)
class Page:
    """A report, without its findings.

    Attributes:
        sections: those that are None or have no parts are left out.
        summary: for a reader who reads no further.
    """

    title: str
    subtitle: str
    tiles: Sequence[Tile]
    sections: Sequence[Section | None]
    facts: Sequence[tuple[str, Any]] = ()
    summary: str = ""

    @property
    def filled(self) -> list[Section]:
        return [section for section in self.sections if section and section.shown]
