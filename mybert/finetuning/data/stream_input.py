"""Lines of standard input, .txt and .jsonl as rows of a task, each for itself: no line decides what another is."""

import functools
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from datasets import Dataset

from mybert.common.error_messages import short
from mybert.common.errors import UserError
from mybert.common.json_io import parse_json
from mybert.finetuning.data.dataset_loading import unwritable
from mybert.finetuning.tasks.base import Task
from mybert.io.files import STDIN, file_format, open_file

_BLOCK = 1 << 20  # bytes


class Line(NamedTuple):
    """
    Attributes:
        number: which of the input, from 0.
        given: the row as it is there, under its own names; of a line that is none, the line itself.
        row: what the task reads: a text or a list of texts under each canonical name.
        error: why the task cannot read the line; `row` is empty then.
    """

    number: int
    given: dict[str, Any] | str
    row: dict[str, Any]
    error: str | None = None


def has_lines(name: str) -> bool:
    """Whether an input is read line by line: standard input, .txt, .jsonl, and pipes whose names do not say."""
    kind = file_format(name).kind
    return name == STDIN or kind in (".txt", ".jsonl") or (not kind and is_stream(name))


def is_stream(name: str) -> bool:
    """Whether an input can be read but once: standard input, or a named pipe."""
    return name == STDIN or Path(name).is_fifo()


def read_lines(name: str, task: Task, at_once: int) -> Iterator[list[Line]]:
    """The lines of an input, at most `at_once` together; blank ones are left out.

    Raises:
        UserError: the input cannot be opened.
    """
    reader = _Reader(name, task)
    with open_file(name) as file:
        numbers = itertools.count()
        for lines in _arriving(file, at_once) if name == STDIN else _together(file, at_once):
            if read := [line for line in (reader.read(next(numbers), line) for line in lines) if line is not None]:
                yield read


def _together(lines: Iterable[bytes], at_once: int) -> Iterator[list[bytes]]:
    lines = iter(lines)
    while some := list(itertools.islice(lines, at_once)):
        yield some


def _arriving(file: BinaryIO, at_once: int) -> Iterator[list[bytes]]:
    """The lines that are there, as soon as there is one: who writes a line and waits gets its answer."""
    begun = []
    while block := file.read1(_BLOCK):
        ended, newline, rest = block.rpartition(b"\n")
        if newline:
            lines = b"".join([*begun, ended]).split(b"\n")
            yield from _together((line + newline for line in lines), at_once)
            begun = []
        begun.append(rest)
    if last := b"".join(begun):
        yield [last]


class _Reader:
    """Reads JSON lines, or texts one a line; the first line that can be read shows which."""

    def __init__(self, name: str, task: Task):
        self.task, self.kind = task, file_format(name).kind
        self.is_json = True if self.kind == ".jsonl" else None
        self.places = functools.lru_cache(self._places)  # most lines have the same names

    def read(self, number: int, line: bytes) -> Line | None:
        """None for a blank line."""
        given = None
        try:
            text = _decoded(number, line)
            if not text.strip():
                return None
            given = self._given(text)
            return Line(number, given, _row(given, self.places(tuple(given))))
        except UserError as error:
            shown = line.decode(errors="backslashreplace").rstrip("\r\n") if given is None else given
            return Line(number, shown, {}, str(error))

    def _given(self, text: str) -> dict:
        if self.is_json is None and text.lstrip().startswith("{") and (self.kind != ".txt" or _is_record(text)):
            self.is_json = True
        if self.is_json:
            return _record(text)
        if self.is_json is False and text.lstrip().startswith("{") and _is_record(text):
            raise UserError("a JSON object among texts; the first line is none, so all are read as texts")
        row = self.task.plain_row(text.rstrip("\r\n"), "it")
        self.is_json = False
        return row

    def _places(self, names: tuple[str, ...]) -> dict[str, str | list[str]] | str:
        """Canonical name → which of the names it has in such a line, or the list of those that are one together.

        Where a name is missing, that in words: not raised, so that it is found once for all such lines.
        """
        # Arrow ends a name at a NUL and then misses it; nobody can mean such a column
        names_as_values = Dataset.from_dict({name: [name] for name in names if "\0" not in name})
        try:
            return self.task.canonical(names_as_values, "it", labelled=False)[0]
        except UserError as error:
            return str(error)


def _decoded(number: int, line: bytes) -> str:
    try:
        return line.decode("utf-8-sig" if number == 0 else "utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"not UTF-8 ({error.reason})") from error


def _record(text: str) -> dict:
    try:
        record = parse_json(text, unique=True)
    except ValueError as error:
        raise UserError(f"not JSON ({error})") from error
    if not isinstance(record, dict):
        raise UserError(f"expected a JSON object, found {type(record).__name__}")
    if problem := unwritable(record):
        raise UserError(problem)
    return record


def _is_record(text: str) -> bool:
    try:
        return isinstance(parse_json(text), dict)
    except ValueError:
        return False


def _row(given: dict, places: dict[str, str | list[str]] | str) -> dict:
    """Texts and lists of texts, no other values: what else JSON can say, Arrow may not be able to hold."""
    if isinstance(places, str):
        raise UserError(places)
    row = {role: given[at] if isinstance(at, str) else [given[name] for name in at] for role, at in places.items()}
    for role, value in row.items():
        if not all(isinstance(one, str | None) for one in (value if isinstance(value, list) else [value])):
            raise UserError(f"expected a text or a list of texts as {role!r}, found {short(value)}")
    return row
