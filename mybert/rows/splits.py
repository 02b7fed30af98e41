"""Rows with their places in a file; those that cannot be used, and the message that names them."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

from datasets import Dataset

from mybert.common.errors import UserError, short
from mybert.io.record_formats import Record

_SHOWN = 5


class Problem(NamedTuple):
    """The index of a row that cannot be used, and a message: what was found and what was expected.

    `word` is the index of the word that is wrong, if it is one.
    """

    row: int
    message: str
    word: int | None = None


class Split(NamedTuple):
    """Labelled rows and their places in the file.

    Attributes:
        source: name of the file or data set.
        rows: all columns under their own names, or the columns of a task under its names.
        records: returns an iterator over the file's records as written. A column of `rows` has one type, in which 2
            becomes 2.0 if another row has 1.5.
        numbers: place of each of `rows` in the file, ascending, from 0: its line where the file has lines (blank lines
            and a header count), else its row.
        unit: `line` or `row`; what `numbers` count.
        left_out: number of rows that could not be used.
        columns: name in the file of each column of a task.
        others: further columns with usual names of targets.
        word_lines: line of each word of each row, from 0, in files of one word per line.
        note: a line about the columns; None if they have names of the file, not those of the task.
        parts: the files of rows from several; `numbers` count their rows together, from 0.
    """

    source: str
    rows: Dataset
    records: Callable[[], Iterable[Record]]
    numbers: Sequence[int]
    unit: str = "row"
    left_out: int = 0
    columns: Mapping[str, str] = MappingProxyType({})
    others: Sequence[str] = ()
    word_lines: Sequence[Sequence[int]] | None = None
    note: str | None = None
    parts: Sequence["Split"] = ()

    def given(self) -> Iterator[dict[str, Any]]:
        """The rows as they are in the file, with all columns."""
        chosen = set(self.numbers)
        return (record.fields for record in self.records() if record.number - 1 in chosen)

    def describe_columns(self) -> list[str]:
        """A line that names the columns that are not evident; none if there are none."""
        if self.parts:
            return [line for part in self.parts for line in part.describe_columns()]
        if self.note:
            return [self.note]
        renamed = [f"{role} = {name}" for role, name in self.columns.items() if role != name or self.others]
        more = f"; --columns chooses others, such as {', '.join(self.others)}" if self.others else ""
        return [f"columns of {self.source}: {', '.join(renamed)}{more}"] if renamed else []

    def select(self, places: Sequence[int]) -> "Split":
        """Some of the rows, by their ascending positions in `rows`."""
        words = self.word_lines and [self.word_lines[place] for place in places]
        numbers = [self.numbers[place] for place in places]
        return self._replace(rows=self.rows.select(places), numbers=numbers, word_lines=words)

    def where(self, row: int) -> dict[str, Any]:
        """The `line` or `row` of a row in its file, from 1; of several files also the file, as `source`."""
        part, number = self._part(self.numbers[row])
        return {self.unit: number + 1} if part is None else {**part.where(number), "source": part.source}

    def _part(self, number: int) -> tuple["Split | None", int]:
        """The file of a row that is counted with those of the files before, and its number there."""
        for part in self.parts:
            if number < len(part.rows):
                return part, number
            number -= len(part.rows)
        return None, number

    def named(self, row: int) -> str:
        """`where` in words: line 3, or line 3 of a.csv."""
        (unit, number), *source = self.where(row).items()
        return f"{unit} {number}" + (f" of {source[0][1]}" if source else "")

    def place(self, problem: Problem) -> str:
        """The place in the file, from 1, of a row that cannot be used, or of its word; of several files with name."""
        row, _, word = problem
        number = self.numbers[row] if word is None or self.word_lines is None else self.word_lines[row][word]
        part, number = self._part(number)
        return str(number + 1) if part is None else f"{part.place(problem._replace(row=number))} of {part.source}"


def text_problem(name: str, text: Any) -> str | None:
    """The reason why a value cannot be read as a text, or None. `name` is a name of the value, for the message."""
    if isinstance(text, str):
        return None if text.strip() else f"{name} is empty"
    return f"{name} is " + ("missing" if text is None else f"{short(text)}, not a string")


def refuse_rows(
    source: str,
    problems: Sequence[Problem],
    rows: int | None,
    unit: str = "row",
    remedy: str = "leave them out by --errors skip",
    place: Callable[[Problem], object] = lambda problem: problem.row + 1,
) -> NoReturn:
    """Raises a UserError that names the first problems and the remedy.

    Args:
        rows: their number; None if it is not known.
        unit: what the rows are, and what `place` counts.
    """
    all_bad = len({problem.row for problem in problems}) == rows
    remedy = "are file and columns right?" if all_bad else f"correct them, or {remedy}"
    raise UserError(f"{describe_problems(source, problems, rows, unit, place)}; {remedy}")


def describe_problems(
    source: str, problems: Sequence[Problem], rows: int | None, unit: str, place: Callable[[Problem], object]
) -> str:
    """The number of bad rows, then each message once with its rows."""
    numbers_of: dict[str, dict[object, None]] = {}
    for problem in problems:
        numbers_of.setdefault(problem.message, {})[place(problem)] = None  # a row may have one twice
    listed = []
    for message, numbers in itertools.islice(numbers_of.items(), _SHOWN):
        more = f" and {len(numbers) - _SHOWN:,} more" if len(numbers) > _SHOWN else ""
        shown = ", ".join(short_places(itertools.islice(numbers, _SHOWN)))
        listed.append(f"{unit}{'s' * (len(numbers) > 1)} {shown}{more}: {message}")
    listed += ["…"] if len(numbers_of) > _SHOWN else []
    of = "" if rows is None else f" of {rows:,}"
    bad = len({problem.row for problem in problems})
    whole = "sentence" if any(problem.word is not None for problem in problems) else unit
    return f"{source}: {bad:,}{of} {whole}s cannot be used: {'; '.join(listed)}"


def short_places(places: Iterable[object]) -> list[str]:
    """Places of `Split.place`, which name a file once after its numbers: 3, 4 of a.csv, 1 of b.csv."""
    parts = [str(place).partition(" of ") for place in places]
    pairs = itertools.zip_longest(parts, parts[1:], fillvalue=("", "", ""))
    return [number if file == after else f"{number}{of}{file}" for (number, of, file), (_, _, after) in pairs]
