"""One reader for each file format: name → (text, line) of every document."""

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import pyarrow.parquet

from mybert.common.errors import UserError
from mybert.common.foreign import cause, load_saved_dataset, parse_json, short
from mybert.corpus.files import is_unicode, open_text

TextAndLine = tuple[str, int]
_NOT_UTF8 = "not UTF-8"


class Problems(NamedTuple):
    """What to do about a bad line: raise (`errors` is `strict`) or count it in `skipped` and go on (`skip`)."""

    errors: str
    skipped: Counter

    def report(self, name: str, place: str, reason: str, detail: str = "") -> None:
        if self.errors == "strict":
            detail = f" ({detail})" if detail else ""
            raise UserError(f"{name}, {place}: {reason}{detail}; correct it, or leave such lines out by --errors skip")
        self.skipped[reason] += 1


def read_text(name: str, document_per_file: bool, problems: Problems) -> Iterator[TextAndLine]:
    """Plain text: documents separated by blank lines, or the whole file."""
    lines, first = [], 1
    with open_text(name) as file:
        for number, line in enumerate(file, 1):
            if not is_unicode(line):
                problems.report(name, f"line {number}", _NOT_UTF8)
            elif line.strip() or document_per_file:
                first = first if lines else number
                lines.append(line)
            elif lines:
                yield "".join(lines), first
                lines = []
    if "".join(lines).strip():
        yield "".join(lines), first


def read_jsonl(name: str, text_column: str, problems: Problems) -> Iterator[TextAndLine]:
    """One JSON object a line."""
    with open_text(name) as file:
        for number, line in enumerate(file, 1):
            if not is_unicode(line):
                problems.report(name, f"line {number}", _NOT_UTF8)
            elif line.strip():
                try:
                    record = parse_json(line)
                except ValueError as error:
                    problems.report(name, f"line {number}", "not JSON", _json_error(error))
                    continue
                yield from _text_of_record(record, text_column, name, number, "line", problems)


def read_json(name: str, text_column: str, problems: Problems) -> Iterator[TextAndLine]:
    """A JSON list of objects, one object, or one object a line."""
    with open_text(name) as file:
        first = next((line for line in file if line.strip()), "")
    if first.lstrip().startswith("{") and _is_json(first):
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
        raise UserError(f"{name}: not JSON ({_json_error(error)}); correct it or leave the file out") from error
    for number, record in enumerate(records if isinstance(records, list) else [records], 1):
        yield from _text_of_record(record, text_column, name, number, "item", problems)


def read_csv(name: str, text_column: str, problems: Problems) -> Iterator[TextAndLine]:
    """Comma- or tab-separated values under a row of names."""
    csv.field_size_limit(2**31 - 1)  # Python's own limit of 131,072 characters is less than a long document
    delimiter = "\t" if ".tsv" in Path(name).suffixes else ","
    with open_text(name, newline="") as file:
        rows = csv.reader(file, delimiter=delimiter)
        try:
            header = next(rows, None)
            if header is None:
                return
            if text_column not in header:
                raise _missing_column(name, text_column, header)
            column, before = header.index(text_column), rows.line_num
            for row in rows:
                line, before = before + 1, rows.line_num
                if not row:
                    continue
                if len(row) != len(header):
                    detail = f"{len(row)}, the head has {len(header)}"
                    problems.report(name, f"line {line}", "wrong number of columns", detail)
                elif not is_unicode(row[column]):
                    problems.report(name, f"line {line}", _NOT_UTF8)
                else:
                    yield row[column], line
        except csv.Error as error:
            raise UserError(f"{name}, line {rows.line_num}: not CSV ({error}); correct it or leave it out") from error


def read_parquet(name: str, text_column: str, problems: Problems) -> Iterator[TextAndLine]:
    """One column of a Parquet file, a batch of rows at a time."""
    try:
        with pyarrow.parquet.ParquetFile(name) as file:
            columns = file.schema_arrow.names
            if text_column not in columns:
                raise _missing_column(name, text_column, columns)
            number = 0
            for batch in file.iter_batches(1024, columns=[text_column]):
                for value in batch.column(0):
                    number += 1
                    try:
                        text = value.as_py()
                    except UnicodeDecodeError:
                        problems.report(name, f"row {number}", _NOT_UTF8)
                        continue
                    yield from _checked(text, text_column, name, number, "row", problems)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{name} cannot be read as Parquet ({cause(error)})") from error


def read_dataset(name: str, from_hub: bool, text_column: str, problems: Problems) -> Iterator[TextAndLine]:
    """A data set of the Hub, streamed, or a folder written by `save_to_disk`."""
    data = _open_hub_dataset(name) if from_hub else _open_saved_dataset(name)
    if data.column_names is not None:
        if text_column not in data.column_names:
            raise _missing_column(name, text_column, data.column_names)
        data = data.select_columns([text_column])
    for number, record in enumerate(data, 1):
        yield from _text_of_record(record, text_column, name, number, "row", problems)


def _open_saved_dataset(name: str) -> datasets.Dataset:
    try:
        data = load_saved_dataset(name)
    except Exception as error:  # datasets trips over a wrong type in one of its files anywhere
        raise UserError(f"{name} cannot be read as a saved data set ({cause(error)})") from error
    if isinstance(data, datasets.DatasetDict):
        if len(data) != 1:
            raise UserError(f"{name} holds the splits {', '.join(data)}; name the folder of one, such as {name}/train")
        data = next(iter(data.values()))
    return data


def _open_hub_dataset(name: str) -> datasets.IterableDataset:
    path, config, split, *_ = [*name.split(":"), None, None]
    try:
        return datasets.load_dataset(path, config, split=split or "train", streaming=True)
    except Exception as error:  # the Hub's client raises a dozen kinds, none of which a user can tell apart
        raise UserError(f"{name} is neither here nor a data set that the Hub gives ({error})") from error


def _text_of_record(record: Any, text_column: str, name: str, number: int, unit: str, problems: Problems):
    if not isinstance(record, dict):
        problems.report(name, f"{unit} {number}", "not an object", f"found {type(record).__name__}")
    elif text_column not in record:
        problems.report(name, f"{unit} {number}", f"no column {text_column!r}", _others(record))
    else:
        yield from _checked(record[text_column], text_column, name, number, unit, problems)


def _checked(text: Any, text_column: str, name: str, number: int, unit: str, problems: Problems):
    if not isinstance(text, str):
        found = "null" if text is None else type(text).__name__
        problems.report(name, f"{unit} {number}", f"{text_column!r} is not a string", f"found {found}")
    elif not is_unicode(text):
        problems.report(name, f"{unit} {number}", "half of a surrogate pair, which is no character")
    else:
        yield text, number


def _missing_column(name: str, text_column: str, columns: list[str]) -> UserError:
    return UserError(f"{name} has no column {text_column!r} ({_others(columns)})")


def _others(columns) -> str:
    names = ", ".join(map(short, list(columns)[:20]))
    return f"there are {names}; choose one by --text-column" if names else "there are none"


def _is_json(line: str) -> bool:
    try:
        parse_json(line)
    except ValueError:
        return False
    return True


def _json_error(error: ValueError) -> str:
    return "a number of too many digits" if "int_max_str_digits" in str(error) else str(error)


FORMATS = {
    ".txt": read_text,
    ".jsonl": read_jsonl,
    ".json": read_json,
    ".csv": read_csv,
    ".tsv": read_csv,
    ".parquet": read_parquet,
}
