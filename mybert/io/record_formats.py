"""Readers of files of records, one function per format, registered by file suffix in READERS."""

import csv
import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from mybert.common.errors import UserError, cause, short, short_list
from mybert.common.json_io import is_json, parse_json, unwritable
from mybert.io.files import is_unicode, open_file, open_text

NOT_UTF8 = "not UTF-8"
CORRECT = {NOT_UTF8: "save the file as UTF-8"}  # what to do about a record by its problem; else "correct it"
DELIMITERS = {".csv": ",", ".tsv": "\t"}
_DECLARED = re.compile(r'"?sep=([^\w\s"]|\t)"?', re.IGNORECASE)


class Record(NamedTuple):
    """One record of a file.

    Attributes:
        number: line in the file in which the record begins, or row in formats without lines; from 1.
        fields: value by name; empty if the record cannot be read.
        problem, detail: the reason why it cannot be read.
        unit: `line` or `row`.
    """

    number: int
    fields: dict[str, Any]
    problem: str = ""
    detail: str = ""
    unit: str = "line"


def readable(name: str, records: Iterable[Record]) -> Iterator[Record]:
    """The records of a file; raises a UserError that names the first one that cannot be read."""
    for record in records:
        if problem := record.problem or unwritable(record.fields):
            detail, remedy = f" ({record.detail})" if record.detail else "", CORRECT.get(problem, "correct it")
            raise UserError(f"{name}, {record.unit} {record.number}: {problem}{detail}; {remedy}")
        yield record


class TextColumn(NamedTuple):
    """The column whose texts a command reads, and what a message advises if a file lacks it."""

    name: str
    remedy: str = "choose one by --text-column"

    def check(self, file: str, columns: Sequence[str]) -> None:
        """Raises a UserError if it is none of the `columns` of `file`."""
        if self.name not in columns:
            raise UserError(f"{file} has no column {self.name!r} ({self.others(columns)})")

    def others(self, columns: Iterable[str]) -> str:
        """The columns that there are, and the remedy."""
        names = short_list(map(short, columns))
        return f"there are {names}; {self.remedy}" if names else "there are none"


def read_json_lines(name: str, text: TextColumn | None = None, only_text: bool = False) -> Iterator[Record]:
    """One JSON object per line; blank lines are skipped. Objects with a name twice are not read."""
    with open_text(name) as file:
        yield from parse_lines(file)


def parse_lines(lines: Iterable[str]) -> Iterator[Record]:
    """Records of JSON lines; see `read_json_lines`."""
    for number, line in enumerate(lines, 1):
        if not is_unicode(line):
            yield Record(number, {}, NOT_UTF8)
        elif line.strip():
            try:
                yield _record(number, parse_json(line, unique=True), "line")
            except ValueError as error:
                yield Record(number, {}, "not JSON", str(error))


def _record(number: int, value: Any, unit: str) -> Record:
    if isinstance(value, dict):
        return Record(number, value, unit=unit)
    return Record(number, {}, "not an object", f"found {type(value).__name__}", unit)


def read_json(name: str, text: TextColumn | None = None, only_text: bool = False) -> Iterator[Record]:
    """A JSON array of objects, one object, or one object per line."""
    with open_text(name) as file:
        first = next((line for line in file if line.strip()), "")
    if first.lstrip().startswith("{") and is_json(first):
        yield from read_json_lines(name)
        return
    with open_text(name) as file:
        content = file.read()
    if not content.strip():
        return
    if not is_unicode(content):
        line = next(n for n, line in enumerate(content.split("\n"), 1) if not is_unicode(line))
        raise UserError(f"{name}, line {line}: {NOT_UTF8}; save the file as UTF-8 or leave it out")
    try:
        records = parse_json(content, unique=True)
    except ValueError as error:
        raise UserError(f"{name}: not JSON ({error}); correct it or leave the file out") from error
    for number, value in enumerate(records if isinstance(records, list) else [records], 1):
        yield _record(number, value, "row")


def read_table(
    name: str, text: TextColumn | None = None, only_text: bool = False, *, delimiter: str
) -> Iterator[Record]:
    """Fields under a header row, quoted as in RFC 4180; every value is text. `delimiter`: see `header_delimiter`."""
    with open_text(name, newline="") as file:
        try:
            # rows of delimiters only are blank rows of a spreadsheet
            rows = (pair for pair in _table_rows(file, delimiter) if len(pair[1]) == 1 or any(map(str.strip, pair[1])))
            _, header = next(rows, (0, None))
            if header is None:
                return
            header = [column.strip() for column in header]
            _check_header(name, header, text)
            for line, row in rows:
                if len(row) != len(header):
                    yield Record(line, {}, "wrong number of columns", f"{len(row)}, the header has {len(header)}")
                elif not all(map(is_unicode, row)):
                    yield Record(line, {}, NOT_UTF8)
                else:
                    yield Record(line, dict(zip(header, row, strict=True)))
        except csv.Error as error:
            raise UserError(f"{name}, {error}; correct it or leave the file out") from error


def header_delimiter(header: str, delimiter: str) -> str:
    """`delimiter`, or another one that a header without it contains: Excel writes semicolons in many countries."""
    return delimiter if delimiter in header else next((other for other in ";\t|," if other in header), delimiter)


def declared_delimiter(line: str) -> str | None:
    """The delimiter that a first line such as `sep=;` declares to Excel, before the header."""
    match = _DECLARED.fullmatch(line.rstrip("\r\n"))
    return match and match[1]


def _table_rows(file: Iterable[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The line in which each row begins, and its fields; blank lines are skipped.

    Raises csv.Error if a quote is not closed or is followed by text.
    """
    csv.field_size_limit(2**31 - 1)  # Python's default of 131,072 characters is less than a long document
    lines, start, before, declared = iter(file), [], 0, None
    for line in lines:
        if declared is None and (declared := declared_delimiter(line)):
            start.append("\n")  # keeps the numbers of lines
            continue
        start.append(line)
        if line.strip():
            delimiter = declared or header_delimiter(line, delimiter)
            break
    spaced = bool(start) and any(name[:1] == " " for name in start[-1].split(delimiter)[1:])
    rows = csv.reader(itertools.chain(start, lines), strict=True, delimiter=delimiter, skipinitialspace=spaced)
    try:
        for row in rows:
            if row:
                yield before + 1, row
            before = rows.line_num
    except csv.Error as error:
        remedy = 'close each quote, and write quotes in a text twice: "a ""b"" c"'
        raise csv.Error(f"row that begins in line {before + 1}: not CSV ({error}; {remedy})") from None


def _check_header(name: str, header: list[str], text: TextColumn | None) -> None:
    """Raises if two columns have one name or `text` is missing."""
    _refuse_equal_names(name, filter(None, header))
    if text is not None:
        text.check(name, header)


def _refuse_equal_names(file: str, columns: Iterable[str]) -> None:
    twice = next((column for column, times in Counter(columns).items() if times > 1), None)
    if twice is not None:
        raise UserError(f"{file}: two columns are called {short(twice)}; rename one")


def read_parquet(name: str, text: TextColumn | None = None, only_text: bool = False) -> Iterator[Record]:
    """Rows of a Parquet file, read in batches."""
    import pyarrow.parquet  # here, as pandas below: names of inputs are checked before anything large is imported

    try:
        with pyarrow.parquet.ParquetFile(name) as file:
            names, number = file.schema_arrow.names, 0
            _refuse_equal_names(name, names)
            if text is not None:
                text.check(name, names)
            for batch in file.iter_batches(1024, columns=[text.name] if text and only_text else None):
                arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
                for row in range(batch.num_rows):
                    number += 1
                    try:
                        yield Record(number, {key: array[row].as_py() for key, array in arrays.items()}, unit="row")
                    except UnicodeDecodeError:
                        yield Record(number, {}, NOT_UTF8, unit="row")
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{name} cannot be read as Parquet ({cause(error)}); write it again or leave it out"
        ) from error


def read_excel(name: str, text: TextColumn | None = None, only_text: bool = False) -> Iterator[Record]:
    """Rows of the first sheet of an Excel workbook; every value is text, as in .csv."""
    import pandas as pd

    try:
        with open_file(name) as file, pd.ExcelFile(file, engine="openpyxl") as book:
            sheet = pd.read_excel(book, header=None, dtype=str, keep_default_na=False)
    except ImportError as error:
        raise UserError(f"{name} needs openpyxl: pip install 'mybert[xlsx]', or save the sheet as .csv") from error
    except Exception as error:  # zipfile and openpyxl have their own kinds
        raise UserError(f"{name} cannot be read as .xlsx ({cause(error)}); save the sheet as .csv") from error
    rows = enumerate(sheet.itertuples(index=False, name=None), 1)
    filled = [(number, row) for number, row in rows if any(map(str.strip, row))]
    if not filled:
        return
    header = [column.strip() for column in filled[0][1]]
    _check_header(name, header, text)
    used = [place for place, column in enumerate(header) if column or any(row[place].strip() for _, row in filled)]
    for number, row in filled[1:]:
        yield Record(number, {header[place] or f"Unnamed: {place}": row[place] for place in used}, unit="row")


READERS: dict[str, Callable[..., Iterator[Record]]] = {
    ".jsonl": read_json_lines,
    ".json": read_json,
    **{suffix: functools.partial(read_table, delimiter=delimiter) for suffix, delimiter in DELIMITERS.items()},
    ".parquet": read_parquet,
    ".xlsx": read_excel,
}
"""Reader by suffix: (name, text, only_text) → records.

A table without the column `text` raises a UserError; `only_text` may leave out the other columns.
"""
NOT_COMPRESSED = (".parquet", ".xlsx")


def rename_taken(columns: dict[str, Any], taken: Iterable[str]) -> dict[str, Any]:
    """Renames the columns of the user whose names are taken: `line` becomes `input_line`."""
    renamed = {}
    for name, column in columns.items():
        while name in taken or name in renamed:
            name = f"input_{name}"
        renamed[name] = column
    return renamed
