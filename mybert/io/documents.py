"""Reading documents from files, data sets and standard input."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from mybert.common.errors import UserError, short_list
from mybert.common.json_io import is_json
from mybert.io.dataset_sources import open_hub, open_saved
from mybert.io.files import STDIN, is_unicode, open_text
from mybert.io.python_docs import python_documents
from mybert.io.record_formats import CORRECT, NOT_UTF8, READERS, Record, TextColumn, parse_lines
from mybert.io.sources import PYTHON_DOCS, Source, find_sources


class Document(NamedTuple):
    """One document.

    Attributes:
        text: the text; lines end with LF.
        line: the line in which the document begins, or its row in formats without lines; from 1.
        others: the other columns of its row.
        unit: `line` or `row`, what `line` counts; `file` for the text of a whole file.
    """

    text: str
    source: str
    line: int
    others: dict[str, Any]
    unit: str = "line"

    @property
    def place(self) -> str:
        """Where the document is in its source, for messages."""
        return f"{'line' if self.unit == 'file' else self.unit} {self.line}"


class Problems(NamedTuple):
    """Invalid lines: `strict` raises at the first one; `skip` counts it by its reason in `skipped`, and continues."""

    errors: str
    skipped: Counter[str]

    def report(self, name: str, place: str, reason: str, detail: str = "") -> None:
        if self.errors == "strict":
            detail = f" ({detail})" if detail else ""
            remedy = CORRECT.get(reason, "correct it")
            raise UserError(f"{name}, {place}: {reason}{detail}; {remedy}, or skip such lines by --errors skip")
        self.skipped[reason] += 1

    def print_skipped(self, what: str) -> None:
        """Says what was skipped, if it was more than blank lines."""
        counts = [f"{reason} ({number:,})" for reason, number in self.skipped.items() if reason != "blank lines"]
        if counts:
            print(f"left out of the {what}: {short_list(counts)}")


def read_documents(
    inputs: Sequence[str],
    *,
    text_column: str | TextColumn = "text",
    errors: str = "strict",
    plain_text: str = "paragraphs",
    skipped: Counter[str] | None = None,
    with_other_columns: bool = False,
    with_line_ends: bool = False,
) -> Iterator[Document]:
    """Streams the documents of `inputs`. Their order depends on the names and contents of the inputs alone.

    Args:
        inputs: see `find_sources`.
        text_column: column of the text in JSON, CSV, TSV, Parquet and data sets.
        errors: `strict` raises at the first invalid line; `skip` skips and counts it.
        plain_text: the unit of a document in plain text and standard input: `paragraphs` (separated by blank lines),
            `line` or `file`.
        skipped: counts skipped lines by reason; files without a document count as `empty files`.
        with_line_ends: keep CRLF and CR in the texts of rows, where they become LF otherwise.
    """
    column = TextColumn(text_column) if isinstance(text_column, str) else text_column
    problems = Problems(errors, Counter() if skipped is None else skipped)
    for source in find_sources(inputs):
        is_empty = True
        for document in _read(source, column, plain_text, with_other_columns, problems):
            is_empty = False
            if "\r" in document.text and not with_line_ends:
                document = document._replace(text=document.text.replace("\r\n", "\n").replace("\r", "\n"))
            yield document
        if is_empty:
            problems.skipped["empty files"] += 1


def _read(
    source: Source, column: TextColumn, plain_text: str, with_other_columns: bool, problems: Problems
) -> Iterator[Document]:
    name = source.name
    if source.kind == PYTHON_DOCS:
        yield from (Document(text, name, number, {}, "row") for text, number in python_documents(name))
    elif source.kind == ".txt":
        with open_text(name) as file:
            has_json, lines = _has_json_lines(file) if name == STDIN else (False, file)
            if has_json:
                yield from _texts(parse_lines(lines), name, column, problems)
            elif plain_text == "line":
                yield from _lines(lines, name, problems)
            else:
                yield from _paragraphs(lines, name, plain_text == "file", problems)
    else:
        yield from _texts(records_of(source, column, not with_other_columns), name, column, problems)


def _has_json_lines(lines: Iterable[str]) -> tuple[bool, Iterable[str]]:
    """Whether the first line that is not blank is a JSON object; and all lines."""
    head, lines = [], iter(lines)
    for line in lines:
        head.append(line)
        if line.strip():
            break
    return bool(head) and head[-1].lstrip().startswith("{") and is_json(head[-1]), chain(head, lines)


def records_of(source: Source, column: TextColumn | None = None, only_text: bool = False) -> Iterator[Record]:
    """The records of a source that is no plain text; see `READERS` for the other arguments.

    Classes of data sets are named; -1, a hidden label, is None.
    """
    if source.kind in READERS:
        yield from READERS[source.kind](source.name, column, only_text=only_text)
        return
    data: Any = open_hub(source.name, streaming=True) if source.kind == "hub" else open_saved(source.name)
    if column is not None and data.column_names is not None:
        column.check(source.name, data.column_names)
        data = data.select_columns([column.name]) if only_text else data
    names = {
        column: dict(enumerate(feature.names))
        for column, feature in (data.features or {}).items()
        if hasattr(feature, "names")
    }
    for number, fields in enumerate(data, 1):
        for column in names.keys() & fields.keys():
            label = fields[column]
            fields[column] = names[column].get(label, label) if label != -1 else None
        yield Record(number, fields, unit="row")


def _lines(lines: Iterable[str], name: str, problems: Problems) -> Iterator[Document]:
    for number, line in enumerate(lines, 1):
        if not is_unicode(line):
            problems.report(name, f"line {number}", NOT_UTF8)
        elif line.strip():
            yield Document(line.removesuffix("\n"), name, number, {})
        else:
            problems.skipped["blank lines"] += 1


def _paragraphs(lines: Iterable[str], name: str, whole_file: bool, problems: Problems) -> Iterator[Document]:
    """Documents separated by blank lines, or the whole file."""
    document: list[str] = []
    first, unit = 1, "file" if whole_file else "line"
    for number, line in enumerate(lines, 1):
        if not is_unicode(line):
            problems.report(name, f"line {number}", NOT_UTF8)
        elif line.strip() or whole_file:
            first = first if document else number
            document.append(line)
        elif document:
            yield Document("".join(document), name, first, {}, unit)
            document = []
    if "".join(document).strip():
        yield Document("".join(document), name, first, {}, unit)


def _texts(records: Iterable[Record], name: str, column: TextColumn, problems: Problems) -> Iterator[Document]:
    for number, fields, problem, detail, unit in records:
        text = fields.get(column.name)
        if problem:
            problems.report(name, f"{unit} {number}", problem, detail)
        elif column.name not in fields:
            problems.report(name, f"{unit} {number}", f"no column {column.name!r}", column.others(fields))
        elif not isinstance(text, str):
            type_name = "null" if text is None else type(text).__name__
            problems.report(name, f"{unit} {number}", f"{column.name!r} is not a string", f"found {type_name}")
        elif not is_unicode(text):
            problems.report(name, f"{unit} {number}", "half of a surrogate pair, which is no character")
        else:
            others = {other: value for other, value in fields.items() if other != column.name}
            yield Document(text, name, number, others, unit)
