"""Rows of a file, folder or Hub data set, under the names that a task knows."""

import atexit
import csv
import functools
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import pandas as pd
from datasets import ClassLabel, Dataset, Features, Value
from datasets.exceptions import DatasetGenerationError

from mybert.common.error_messages import short
from mybert.common.errors import UserError
from mybert.common.json_io import is_json, parse_json
from mybert.common.paths import did_you_mean
from mybert.finetuning.tasks.base import Task
from mybert.io.dataset_sources import open_hub, open_saved, root_cause
from mybert.io.document_formats import TABLES, table_rows
from mybert.io.files import file_format, open_file, open_text

_READERS = {
    ".jsonl": ("json", {}),
    ".json": ("json", {}),
    # a text may be "None", "NA" or "null"
    **{kind: ("csv", {**table, "keep_default_na": False}) for kind, table in TABLES.items()},
    ".parquet": ("parquet", {}),
}
_RECORDS = [kind for kind, (builder, _) in _READERS.items() if builder == "json"]


class Split(NamedTuple):
    """Rows of a file.

    Attributes:
        source: the file.
        rows: with all columns as they are called there; or those that a task reads, under its names.
        records: gives all rows of the file, one by one as they are written: a column of Arrow has one type, which
            makes 2 of JSON 2.0 where another row has 1.5.
        numbers: which of those `rows` are, from 0, ascending. In JSON lines a blank one counts, as editors count.
        left_out: how many others could not be used.
    """

    source: str
    rows: Dataset
    records: Callable[[], Iterable[dict | None]]
    numbers: Sequence[int]
    left_out: int = 0

    def given(self) -> Iterator[dict]:
        """The rows as they are in the file, with all columns."""
        chosen = set(self.numbers)
        return (record for number, record in enumerate(self.records()) if number in chosen)

    def select(self, places: Sequence[int]) -> "Split":
        """Some of the rows, by their places among these, ascending."""
        return self._replace(rows=self.rows.select(places), numbers=[self.numbers[place] for place in places])


def read_split(name: str, task: Task, labelled: bool = True, split: str = "train", limit: int | None = None) -> Split:
    """
    Args:
        name, split: see `read_table`.
        task: names the columns, and reads formats that it alone knows.
        labelled: whether the task's targets are required.
        limit: rows at most, from the first on.

    Raises:
        UserError: it cannot be read, has no rows, or lacks a column.
    """
    found = read_table(name, task, split)
    found = found._replace(rows=task.prepare(task.canonical(found.rows, name, labelled)))
    return found if limit is None else found.select(range(min(limit, len(found.rows))))


def read_table(name: str, task: Task, split: str) -> Split:
    """Rows with all their columns, as they are called there; classes by name.

    Whatever stands in .csv and .tsv is text, as it is spelt: 007, True and 3.50 stay so. Quotes mean what they do to
    `mybert.io.document_formats.read_csv`.

    Args:
        name: a file, a folder of `save_to_disk`, or `NAME[:CONFIG[:SPLIT]]` of the Hub.
        split: of a data set that has several, where the name does not say.

    Raises:
        UserError: it cannot be read, or has no rows.
    """
    path, is_records = Path(name), False
    if path.is_file():
        rows = task.read(path)
        is_records = rows is None and file_format(path).kind in _RECORDS
        rows = _read_file(path) if rows is None else rows
    elif path.is_dir():
        rows = open_saved(name, split)
    elif path.is_fifo():
        raise UserError(f"{name} is a pipe; name a file (`mybert predict` reads some: .jsonl, .txt, no suffix)")
    elif file_format(path).kind in _READERS:
        raise UserError(f"{name}: there is no such file{did_you_mean(name)}")
    else:
        rows = open_hub(name, split)
    if not len(rows):
        raise UserError(f"{name} holds no rows")
    rows = _named_labels(rows)
    if is_records:
        numbers = [number for number, record in enumerate(_unparsed(path)) if record != b""]
        return Split(name, rows, functools.partial(_records, path), numbers)
    return Split(name, rows, lambda: rows, range(len(rows)))


def _read_file(path: Path) -> Dataset:
    kind, compression = file_format(path)
    if kind not in _READERS or (compression and kind == ".parquet"):
        found = f"{kind}{compression}" or "no suffix"
        raise UserError(f"{path}: expected {', '.join(_READERS)} (all but .parquet also .gz and .zst), found {found}")
    size = path.stat().st_size
    if not size:
        raise UserError(f"{path} is empty")
    if compression:
        with open_file(path) as file:  # `datasets` does not notice that the end is missing
            size = sum(map(len, iter(lambda: file.read(1 << 20), b"")))
    builder, options = _READERS[kind]
    if builder == "json" and (reason := _undecodable_line(path) or _broken_line(path, kind)):
        raise UserError(f"{path}{reason}")  # Arrow's reader ends the process on a row that is `null`, or nested deeply
    try:
        if builder == "json":
            options = {"chunksize": size}  # a column's type is what all of its values say, not the first megabytes
        elif builder == "csv":
            features, count = _texts(path, TABLES[kind], options)
            options = {**options, "features": features}
        rows = datasets.load_dataset(builder, data_files=str(path), split="train", cache_dir=_scratch(), **options)
        if builder == "csv" and len(rows) != count:  # pandas passes over a line of spaces, where there is one column
            raise ValueError(f"{count - len(rows)} rows are spaces alone; put these between quotes, or leave them out")
        rows.data.validate(full=True)  # texts that are not UTF-8 are loaded, and fail when they are used
        return _dates_as_text(rows, path) if builder == "json" else rows
    except csv.Error as error:
        raise UserError(f"{path}{_undecodable_line(path) or f', {error}; correct it'}") from error
    except (DatasetGenerationError, ValueError, TypeError, OSError) as error:
        reason = _undecodable_line(path) if builder == "csv" else None
        raise UserError(f"{path}{reason or f': {root_cause(error)}'}") from error


def _scratch() -> str:
    """A new folder that is gone at the end of this process.

    The cache of `datasets` knows a file by name and time: it would give the rows of an older one of the same time.
    """
    home = Path(datasets.config.HF_DATASETS_CACHE)
    home.mkdir(parents=True, exist_ok=True)
    folder = tempfile.TemporaryDirectory(prefix="mybert-", dir=home, ignore_cleanup_errors=True)
    atexit.register(folder.cleanup)
    return folder.name


def _texts(path: Path, table: dict, options: dict) -> tuple[Features, int]:
    """Every column of a table as text, and its number of rows.

    Else pandas reads 007 as 7, and True as a word or not by what else is there.

    Raises:
        ValueError: a row has more fields than there are names, or fewer, which pandas would fill up; there is none; or
            two columns have one name.
    """
    with open_text(str(path), newline="") as file:
        rows = table_rows(file, table)
        _, names = next(rows, (0, []))
        twice = next((name for name, times in Counter(filter(None, names)).items() if times > 1), None)
        if twice is not None:
            raise ValueError(f"two columns are called {short(twice)}; rename one")
        count = 0
        for count, (line, row) in enumerate(rows, 1):  # noqa: B007 - it is used after the loop
            if len(row) != len(names):
                raise ValueError(f"line {line} has {len(row)} fields, the first line {len(names)} names; correct one")
    if not count:
        raise ValueError("no row follows the names of the columns")
    with open_file(path) as file:
        head = pd.read_csv(file, nrows=0, **options)
    return Features({name: Value("string") for name in head.columns}), count


def _dates_as_text(rows: Dataset, path: Path) -> Dataset:
    """JSON has no dates: what Arrow takes for one is text again, as it is spelt."""
    names = rows.column_names
    dated = [name for name in names if "timestamp" in repr(rows.features[name])]
    if not dated:
        return rows
    records = [record for record in _records(path) if record is not None]
    rows = rows.remove_columns(dated)
    for name in dated:
        rows = rows.add_column(name, [record.get(name) for record in records])
    return rows.select_columns(names)


def _undecodable_line(path: Path) -> str | None:
    with open_file(path) as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return f", line {number}: not UTF-8 ({error.reason}); save the file as UTF-8"
    return None


def _broken_line(path: Path, kind: str) -> str | None:
    """Where a file of JSON goes wrong, which `datasets` does not say."""
    unit, number, records = "line" if kind == ".jsonl" else "row", 0, 0
    try:
        for number, record in enumerate(_unparsed(path), 1):
            if record == b"":
                continue
            record = parse_json(record.decode("utf-8-sig"), unique=True) if isinstance(record, bytes) else record
            if not isinstance(record, dict):
                return f", {unit} {number}: expected a JSON object, found {type(record).__name__}"
            if problem := unwritable(record) or _too_large(record):
                return f", {unit} {number}: {problem}"
            records += 1
    except ValueError as error:
        return f"{f', {unit} {number}' if number else ''}: not JSON ({error})"
    return None if records else " holds no rows"


def unwritable(record: dict) -> str | None:
    """Why a record of JSON cannot be written again: a surrogate without its other half, no end of nesting."""
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        return f"{error.object[error.start : error.end]!r} is half a surrogate pair, no character"
    except RecursionError:
        return "nested too deeply"
    return None


def _too_large(record: dict) -> str | None:
    """Of whole numbers, which Arrow would round; at the top of a record, where numbers that name rows stand."""
    for name, value in record.items():
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            return f"{name!r} is a whole number of more than 64 bits ({short(value)}); put it between quotes"
    return None


def _records(path: Path) -> Iterator[dict | None]:
    """Those of a file that has been found to hold such, and None for blank lines."""
    for record in _unparsed(path):
        if isinstance(record, bytes):
            record = parse_json(record.decode("utf-8-sig")) if record else None
        yield record


def _unparsed(path: Path) -> Iterator[bytes | Any]:
    """The lines of a file of JSON, empty if they are blank; where it is one value, the items of that."""
    with open_file(path) as file:
        for record in file if file_format(path).kind == ".jsonl" else _items(file.read()):
            yield b"" if isinstance(record, bytes) and not record.strip() else record


def _items(content: bytes) -> list:
    try:
        parsed: Any = parse_json(content, unique=True)
    except ValueError:
        lines = content.splitlines()
        if not is_json(next((line for line in lines if line.strip()), b"")):
            raise
        return lines  # JSON lines under another suffix
    return parsed if isinstance(parsed, list) else [parsed]


def _named_labels(rows: Dataset) -> Dataset:
    """Class numbers become the names that the data set has for them; -1, a hidden label, becomes None."""
    names = {}
    for column, feature in rows.features.items():
        inner = getattr(feature, "feature", feature)
        if isinstance(inner, ClassLabel):
            names[column] = inner.names

    def named(values, labels):
        if isinstance(values, list):
            return [named(value, labels) for value in values]
        return None if values is None or values < 0 else labels[values]

    if not names:
        return rows
    plain = {column: [named(value, labels) for value in rows[column]] for column, labels in names.items()}
    rows = rows.remove_columns(list(names))
    for column, values in plain.items():
        rows = rows.add_column(column, values)
    return rows
