"""Rows read one by one: lines of standard input, plain text and .jsonl, and Python values given to a `Predictor`."""

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mybert.common.errors import UserError, short
from mybert.common.json_io import is_json, unwritable
from mybert.io.files import STDIN, arriving_lines, file_format, open_file
from mybert.io.record_formats import parse_lines
from mybert.rows.tables import MemoryRows
from mybert.tasks.base import Task

EMPTY = "empty text"  # the `error` of a blank line


class Line(NamedTuple):
    """A line, numbered from 0, as given and as a row: a text or a list of texts by role.

    A line that cannot be used has an empty row and an `error`; that of a blank line, `EMPTY`, is no mistake.
    """

    number: int
    given: Mapping[str, Any] | tuple[Any, ...] | str
    row: dict[str, Any]
    error: str | None = None


def has_lines(name: str) -> bool:
    """Whether an input is read line by line: standard input, .txt, .md, .jsonl, and pipes without a suffix."""
    kind = file_format(name).kind
    return name == STDIN or kind in (".txt", ".jsonl") or (not kind and is_stream(name))


def is_stream(name: str) -> bool:
    """Whether an input can be read only once: standard input, or a named pipe."""
    return name == STDIN or Path(name).is_fifo()


def read_lines(name: str, task: Task, at_once: int) -> Iterator[list[Line]]:
    """Reads the lines of an input, at most `at_once` at a time. Blank lines of .jsonl files are left out.

    Raises:
        UserError: `--columns` names columns that none of the first lines has.
    """
    reader, is_first = LineReader(name, task), True
    with open_file(name) as file:
        numbers, arriving = itertools.count(), arriving_lines(file)
        groups = arriving if name == STDIN else [itertools.chain.from_iterable(arriving)]
        for group in map(iter, groups):
            while lines := list(itertools.islice(group, at_once)):
                read = [reader.read(next(numbers), line) for line in lines]
                if file_format(name).kind == ".jsonl":
                    read = [line for line in read if line.error != EMPTY]
                if not read:
                    continue
                if is_first and task.options.given_columns():
                    reader.check_columns(read)
                is_first = False
                yield read


class LineReader:
    """Reads JSON lines, or texts one per line. The first line that can be read decides which."""

    def __init__(self, name: str, task: Task):
        self.task, self.kind = task, file_format(name).kind
        self.source = "standard input" if name == STDIN else name
        self.is_json = True if self.kind == ".jsonl" else None
        self.columns = RowColumns(task, asks=True)

    def check_columns(self, lines: list[Line]) -> None:
        """Raises a UserError if no line has the columns that the task needs."""
        rows = [line.given for line in lines if line.error != EMPTY and isinstance(line.given, dict)]
        if rows and not any(line.row for line in lines):
            self.columns.find(tuple(dict.fromkeys(itertools.chain(*rows))), self.source)

    def read(self, number: int, line: bytes) -> Line:
        shown: dict[str, Any] | str = line.decode(errors="backslashreplace")
        try:
            text = line.decode("utf-8-sig" if number == 0 else "utf-8")
            if not text.strip():
                with contextlib.suppress(UserError):  # the task reads JSON lines only
                    shown = shown if self.is_json else self.task.plain_row(text)
                return Line(number, shown, {}, EMPTY)
            shown = self._given(text)
            return Line(number, shown, self.columns.row(shown))
        except UnicodeDecodeError as error:
            return Line(number, shown, {}, f"not UTF-8 ({error.reason})")
        except UserError as error:
            return Line(number, shown, {}, str(error))

    def _given(self, text: str) -> dict[str, Any]:
        is_object = text.lstrip().startswith("{")
        if self.is_json is None and is_object and (self.kind != ".txt" or is_json(text)):
            self.is_json = True
        if self.is_json:
            return _record(text)
        if self.is_json is False and is_object and is_json(text):
            raise UserError("a JSON object among texts; the first line is not JSON, so all lines are read as texts")
        row = self.task.plain_row(text)
        self.is_json = False
        return row


class RowColumns:
    """Finds the task's columns in single rows, each of which may have other columns.

    Args:
        asks: whether messages ask for `--columns`; not for rows of a request or in memory.
    """

    def __init__(self, task: Task, asks: bool = False):
        self.task = dataclasses.replace(task, asks=asks)
        self._columns = functools.lru_cache(self._find)  # most rows have the same columns

    def row(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The row by role."""
        given = self.task.unnested(given)
        columns = self._columns(tuple(given))
        if isinstance(columns, str):
            raise UserError(columns)
        row = {
            role: given[names] if isinstance(names, str) else [given[name] for name in names]
            for role, names in columns.items()
        }
        for role, value in row.items():  # other JSON values may not fit into an Arrow column
            if not _has_only_texts(value):
                raise UserError(f"expected a text or a list of texts as {role!r}, found {short(value)}")
        return row

    def find(self, names: tuple[str, ...], source: str = "it") -> dict[str, str | list[str]]:
        """Role → column, or list of columns that are combined.

        Raises:
            UserError: `source` lacks a column.
        """
        names_as_values = MemoryRows({name: [name] for name in names})
        return self.task.by_role(names_as_values, source, labelled=False)[0][0]

    def _find(self, names: tuple[str, ...]) -> dict[str, str | list[str]] | str:
        """Or the message that a column is missing."""
        try:
            return self.find(names)
        except UserError as error:
            return str(error)


def _has_only_texts(value: Any, depth: int = 2) -> bool:
    """Whether a JSON value is a text or null, or a list or object of them, such as choices with labels."""
    if depth and isinstance(value, list | dict):
        return all(_has_only_texts(one, depth - 1) for one in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, str | None)


def _record(text: str) -> dict[str, Any]:
    (record,) = parse_lines([text])
    if problem := record.problem or unwritable(record.fields):
        raise UserError(f"{problem} ({record.detail})" if record.detail else problem)
    return record.fields
