"""Readers of documents: one per file format, and data sets; name → (text, line, other columns) of every document."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import NamedTuple

from mybert.common.errors import UserError
from mybert.common.json_io import is_json
from mybert.io.dataset_sources import open_hub, open_saved
from mybert.io.files import STDIN, is_unicode, open_text
from mybert.io.record_formats import (
    NOT_UTF8,
    READERS,
    Record,
    missing_column,
    other_columns,
    parse_lines,
)

Found = tuple[str, int, dict]  # text, line, other columns


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


def read_stdin(text_column: str, document_per_file: bool, problems: Problems) -> Iterator[Found]:
    """Plain text, or JSON lines; see `are_json`."""
    with open_text(STDIN) as file:
        is_json, lines = are_json(file)
        if is_json:
            yield from json_lines(lines, STDIN, text_column, problems)
        else:
            yield from _plain_documents(lines, STDIN, document_per_file, problems)


def are_json(lines: Iterable[str]) -> tuple[bool, Iterable[str]]:
    """Whether the first line that is not blank is a JSON object, as all should be then; and all lines."""
    head, lines = [], iter(lines)
    for line in lines:
        head.append(line)
        if line.strip():
            break
    return bool(head) and head[-1].lstrip().startswith("{") and is_json(head[-1]), chain(head, lines)


def json_lines(lines: Iterable[str], name: str, text_column: str, problems: Problems) -> Iterator[Found]:
    """The text of each JSON object, one per line; `name` is the source in messages."""
    return _texts(parse_lines(lines), name, text_column, problems)


def read_dataset(name: str, from_hub: bool, text_column: str, problems: Problems) -> Iterator[Found]:
    """A data set of the Hub, streamed, or a folder written by `save_to_disk`."""
    data = open_hub(name, streaming=True) if from_hub else open_saved(name)
    if data.column_names is not None:
        if text_column not in data.column_names:
            raise missing_column(name, text_column, data.column_names)
        data = data if problems.other_columns else data.select_columns([text_column])
    records = (Record(number, fields, unit="row") for number, fields in enumerate(data, 1))
    return _texts(records, name, text_column, problems)


def _plain_documents(lines: Iterable[str], name: str, document_per_file: bool, problems: Problems):
    document, first = [], 1
    for number, line in enumerate(lines, 1):
        if not is_unicode(line):
            problems.report(name, f"line {number}", NOT_UTF8)
        elif line.strip() or document_per_file:
            first = first if document else number
            document.append(line)
        elif document:
            yield "".join(document), first, {}
            document = []
    if "".join(document).strip():
        yield "".join(document), first, {}


def _read_records(name: str, text_column: str, problems: Problems, suffix: str) -> Iterator[Found]:
    records = READERS[suffix](name, [text_column], only_required=not problems.other_columns)
    return _texts(records, name, text_column, problems)


def _texts(records: Iterable[Record], name: str, text_column: str, problems: Problems) -> Iterator[Found]:
    for number, fields, problem, detail, unit in records:
        text = None if fields is None else fields.get(text_column)
        if problem:
            problems.report(name, f"{unit} {number}", problem, detail)
        elif text_column not in fields:
            problems.report(name, f"{unit} {number}", f"no column {text_column!r}", other_columns(fields))
        elif not isinstance(text, str):
            found = "null" if text is None else type(text).__name__
            problems.report(name, f"{unit} {number}", f"{text_column!r} is not a string", f"found {found}")
        elif not is_unicode(text):
            problems.report(name, f"{unit} {number}", "half of a surrogate pair, which is no character")
        else:
            yield text, number, {column: value for column, value in fields.items() if column != text_column}


FORMATS: dict[str, Callable[..., Iterator[Found]]] = {
    ".txt": read_text,
    **{suffix: partial(_read_records, suffix=suffix) for suffix in READERS if suffix != ".xlsx"},
}
