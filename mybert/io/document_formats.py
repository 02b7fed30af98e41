"""One reader for each file format: name → (text, line, other columns) of every document."""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TextIO

import pyarrow.parquet

from mybert.common.error_messages import cause, short
from mybert.common.errors import UserError
from mybert.common.json_io import is_json, parse_json
from mybert.io.dataset_sources import open_hub, open_saved
from mybert.io.files import STDIN, is_unicode, open_text

Found = tuple[str, int, dict]  # text, line, other columns
TABLES = {  # what the suffix of a table means, in words that csv and pandas share
    ".csv": {"delimiter": ","},
    ".tsv": {"delimiter": "\t", "quoting": csv.QUOTE_NONE},
}
_NOT_UTF8 = "not UTF-8"


class Problems(NamedTuple):
    """How bad lines are handled, and which columns are read.

    Attributes:
        errors: `strict` raises at the first bad line; `skip` counts it in `skipped` and continues.
        skipped: number of skipped lines by reason.
        other_columns: whether to read the columns beside the text.
    """

    errors: str
    skipped: Counter
    other_columns: bool = False

    def report(self, name: str, place: str, reason: str, detail: str = "") -> None:
        if self.errors == "strict":
            detail = f" ({detail})" if detail else ""
            raise UserError(f"{name}, {place}: {reason}{detail}; correct it, or leave such lines out by --errors skip")
        self.skipped[reason] += 1


def read_text(name: str, document_per_file: bool, problems: Problems) -> Iterator[Found]:
    """Plain text: documents separated by blank lines, or the whole file."""
    with open_text(name) as file:
        yield from _plain_documents(file, name, document_per_file, problems)


def read_jsonl(name: str, text_column: str, problems: Problems) -> Iterator[Found]:
    """One JSON object a line."""
    with open_text(name) as file:
        yield from json_lines(file, name, text_column, problems)


def read_stdin(text_column: str, document_per_file: bool, problems: Problems) -> Iterator[Found]:
    """Plain text, or JSON lines; see `are_json`."""
    with open_text(STDIN) as file:
        is_json, lines = are_json(file)
        if is_json:
            yield from json_lines(lines, STDIN, text_column, problems)
        else:
            yield from _plain_documents(lines, STDIN, document_per_file, problems)


def are_json(lines: Iterable[str]) -> tuple[bool, Iterable[str]]:
    """Whether the first of `lines` with anything in it is a JSON object, as all should be then; and all lines."""
    head, lines = [], iter(lines)
    for line in lines:
        head.append(line)
        if line.strip():
            break
    return bool(head) and head[-1].lstrip().startswith("{") and is_json(head[-1]), chain(head, lines)


def read_json(name: str, text_column: str, problems: Problems) -> Iterator[Found]:
    """A JSON list of objects, one object, or one object a line."""
    with open_text(name) as file:
        first = next((line for line in file if line.strip()), "")
    if first.lstrip().startswith("{") and is_json(first):
        yield from read_jsonl(name, text_column, problems)
        return
    with open_text(name) as file:
        content = file.read()
    if not content.strip():
        return
    if not is_unicode(content):
        line = next(n for n, line in enumerate(content.split("\n"), 1) if not is_unicode(line))
        raise UserError(f"{name}, line {line}: {_NOT_UTF8}; correct it or leave the file out")
    try:
        records = parse_json(content)
    except ValueError as error:
        raise UserError(f"{name}: not JSON ({error}); correct it or leave the file out") from error
    for number, record in enumerate(records if isinstance(records, list) else [records], 1):
        yield from _text_of_record(record, text_column, name, number, "item", problems)


def read_csv(name: str, text_column: str, problems: Problems, table: dict) -> Iterator[Found]:
    """Values separated by commas or tabs, under a row of names.

    A field of .csv may be in quotes. In .tsv, as GLUE and other data sets have it, quotes are characters like others,
    and no field holds a tab or a line break: a text that begins with a quote would swallow all up to the next one.

    Args:
        table: of TABLES.
    """
    with open_text(name, newline="") as file:
        try:
            rows = table_rows(file, table)
            _, header = next(rows, (0, None))
            if header is None:
                return
            if text_column not in header:
                raise _missing_column(name, text_column, header)
            column = header.index(text_column)
            for line, row in rows:
                if len(row) != len(header):
                    detail = f"{len(row)}, the head has {len(header)}"
                    problems.report(name, f"line {line}", "wrong number of columns", detail)
                elif not is_unicode(row[column]):
                    problems.report(name, f"line {line}", _NOT_UTF8)
                else:
                    yield row[column], line, _others_of(dict(zip(header, row, strict=True)), text_column)
        except csv.Error as error:
            raise UserError(f"{name}, {error}; correct it or leave it out") from error


def table_rows(file: TextIO, table: dict) -> Iterator[tuple[int, list[str]]]:
    """The line that a row begins in, and its fields; blank lines are left out.

    Args:
        file: opened with `newline=""`.
        table: of TABLES.

    Raises:
        csv.Error: a quote is not closed, or more of its field comes after it, so that nobody knows where rows end; or
            the head is not one. It says in which line.
    """
    csv.field_size_limit(2**31 - 1)  # Python's own limit of 131,072 characters is less than a long document
    rows, before, header = csv.reader(file, strict=True, **table), 0, None
    try:
        for row in rows:
            if row:
                header = header or _checked_header(row, table["delimiter"])
                yield before + 1, row
            before = rows.line_num
    except csv.Error as error:
        reason = "a quote is not closed" if str(error) == "unexpected end of data" else error
        raise csv.Error(f"row that begins in line {before + 1}: not CSV ({reason})") from None


def _checked_header(row: list[str], delimiter: str) -> list[str]:
    """Refuses one column whose name holds what separates columns elsewhere, as spreadsheets of some countries do."""
    others = ";\t|,".replace(delimiter, "")
    if len(row) == 1 and any(other in row[0] for other in others):
        raise csv.Error(f"one column, {short(row[0])}; columns are separated by commas in .csv and by tabs in .tsv")
    return row


def read_parquet(name: str, text_column: str, problems: Problems) -> Iterator[Found]:
    """A Parquet file, a batch of rows at a time."""
    try:
        with pyarrow.parquet.ParquetFile(name) as file:
            columns = file.schema_arrow.names
            if text_column not in columns:
                raise _missing_column(name, text_column, columns)
            number = 0
            for batch in file.iter_batches(1024, columns=None if problems.other_columns else [text_column]):
                others = batch.drop_columns([text_column]).to_pylist()
                for value, other in zip(batch.column(text_column), others, strict=True):
                    number += 1
                    try:
                        record = {text_column: value.as_py(), **other}
                    except UnicodeDecodeError:
                        problems.report(name, f"row {number}", _NOT_UTF8)
                        continue
                    yield from _text_of_record(record, text_column, name, number, "row", problems)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{name} cannot be read as Parquet ({cause(error)})") from error


def read_dataset(name: str, from_hub: bool, text_column: str, problems: Problems) -> Iterator[Found]:
    """A data set of the Hub, streamed, or a folder written by `save_to_disk`."""
    data = open_hub(name, streaming=True) if from_hub else open_saved(name)
    if data.column_names is not None:
        if text_column not in data.column_names:
            raise _missing_column(name, text_column, data.column_names)
        data = data if problems.other_columns else data.select_columns([text_column])
    for number, record in enumerate(data, 1):
        yield from _text_of_record(record, text_column, name, number, "row", problems)


def _plain_documents(lines: Iterable[str], name: str, document_per_file: bool, problems: Problems):
    document, first = [], 1
    for number, line in enumerate(lines, 1):
        if not is_unicode(line):
            problems.report(name, f"line {number}", _NOT_UTF8)
        elif line.strip() or document_per_file:
            first = first if document else number
            document.append(line)
        elif document:
            yield "".join(document), first, {}
            document = []
    if "".join(document).strip():
        yield "".join(document), first, {}


def json_lines(lines: Iterable[str], name: str, text_column: str, problems: Problems) -> Iterator[Found]:
    """The text of each JSON object, one a line; `name` is what problems are reported of."""
    for number, line in enumerate(lines, 1):
        if not is_unicode(line):
            problems.report(name, f"line {number}", _NOT_UTF8)
        elif line.strip():
            try:
                record = parse_json(line)
            except ValueError as error:
                problems.report(name, f"line {number}", "not JSON", str(error))
                continue
            yield from _text_of_record(record, text_column, name, number, "line", problems)


def _text_of_record(record: Any, text_column: str, name: str, number: int, unit: str, problems: Problems):
    if not isinstance(record, dict):
        problems.report(name, f"{unit} {number}", "not an object", f"found {type(record).__name__}")
    elif text_column not in record:
        problems.report(name, f"{unit} {number}", f"no column {text_column!r}", _others(record))
    elif not isinstance(text := record[text_column], str):
        found = "null" if text is None else type(text).__name__
        problems.report(name, f"{unit} {number}", f"{text_column!r} is not a string", f"found {found}")
    elif not is_unicode(text):
        problems.report(name, f"{unit} {number}", "half of a surrogate pair, which is no character")
    else:
        yield text, number, _others_of(record, text_column)


def _others_of(record: dict, text_column: str) -> dict:
    return {name: value for name, value in record.items() if name != text_column}


def _missing_column(name: str, text_column: str, columns: list[str]) -> UserError:
    return UserError(f"{name} has no column {text_column!r} ({_others(columns)})")


def _others(columns) -> str:
    names = ", ".join(map(short, list(columns)[:20]))
    return f"there are {names}; choose one by --text-column" if names else "there are none"


FORMATS = {
    ".txt": read_text,
    ".jsonl": read_jsonl,
    ".json": read_json,
    **{kind: partial(read_csv, table=table) for kind, table in TABLES.items()},
    ".parquet": read_parquet,
}
