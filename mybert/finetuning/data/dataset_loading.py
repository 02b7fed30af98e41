"""Load labelled rows from a file, a saved data set or the Hub, with columns under the names that a task uses."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet
from datasets import ClassLabel, Dataset, Features, Json, concatenate_datasets

from mybert.artifacts.manifest import DataInMemory
from mybert.common.errors import UserError, cause, did_you_mean, short_list
from mybert.common.json_io import unwritable
from mybert.finetuning.tasks.base import Problem, Task
from mybert.io.dataset_sources import is_saved, open_hub, open_saved
from mybert.io.files import file_format
from mybert.io.record_formats import CORRECT, NOT_COMPRESSED, READERS, Record


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
        parts: the files of rows from several; `numbers` count their rows together.
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

    def given(self) -> Iterator[dict]:
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

    def place(self, problem: Problem) -> str:
        """The place in the file, from 1, of a row that cannot be used, or of its word; of several files with name."""
        row, _, word = problem
        number = self.numbers[row] if word is None or self.word_lines is None else self.word_lines[row][word]
        for part in self.parts:
            if number < len(part.rows):
                return f"{part.place(problem._replace(row=number))} of {part.source}"
            number -= len(part.rows)
        return str(number + 1)


def read_splits(names: Sequence[str], task: Task) -> Split:
    """The labelled rows of several files as one split; a row is counted with those of the files before."""
    if len(names) == 1:
        return read_split(names[0], task)
    parts = [read_split(name, task, prepared=False) for name in names]
    same = len({frozenset(part.rows.column_names) for part in parts}) == 1
    if not same:  # such as words with tags, and texts with spans
        parts = [part._replace(rows=task.prepare(part.rows)) for part in parts]
    first, *others = ({*task.inputs, *task.targets}.intersection(part.rows.column_names) for part in parts)
    for part, roles in zip(parts[1:], others, strict=True):
        if roles != first:
            there, here = short_list(sorted(first)), short_list(sorted(roles))
            raise UserError(
                f"--train: the files must have the same columns; {names[0]} has {there}, {part.source} has {here}"
            )
    rows = _joined([part.rows for part in parts])
    units = {part.unit for part in parts}

    def records() -> Iterator[Record]:
        given = itertools.chain.from_iterable(part.given() for part in parts)
        return (Record(number, row) for number, row in enumerate(given, 1))

    source, unit = " and ".join(names), units.pop() if len(units) == 1 else "row"
    return Split(
        source, task.prepare(task.joined(rows)) if same else rows, records, range(len(rows)), unit, parts=parts
    )


def _joined(tables: Sequence[Dataset]) -> Dataset:
    """The rows of all tables: the columns that all have, and `problem`."""
    every = {name for rows in tables for name in rows.column_names}
    common = [name for name in every if name == "problem" or all(name in rows.column_names for rows in tables)]
    columns: dict[str, list] = {name: [] for name in sorted(common)}
    for rows in tables:
        for name, values in columns.items():
            values += rows[name][:] if name in rows.column_names else [None] * len(rows)
    return concatenate_datasets([make_column(name, values) for name, values in columns.items()], axis=1)


def read_split(name: str, task: Task, labelled: bool = True, split: str = "train", prepared: bool = True) -> Split:
    """The columns of a task, with its targets if `labelled`, converted if `prepared`; see `load_table`."""
    found = load_table(name, task, split)
    if found.note is not None:  # the task's reader has applied --columns
        task = dataclasses.replace(task, options=dataclasses.replace(task.options, columns=[]))
    rows, columns = task.canonical(found.rows, name, labelled)
    usual = [name for role in task.targets if role in columns for name in task.targets[role]]
    others = [name for name in usual if name in found.rows.column_names and name not in columns.values()]
    return found._replace(rows=task.prepare(rows) if prepared else rows, columns=columns, others=others)


def load_table(name: str, task: Task | None, split: str) -> Split:
    """Rows with all their columns under their own names; class numbers of `datasets` become class names.

    Every value of .csv, .tsv and .xlsx is text as written: 007, True and 3.50.

    Args:
        name: a file, a folder written by `save_to_disk`, `NAME[:CONFIG[:SPLIT]]` of the Hub or of a folder like those
            on the Hub, or rows in memory.
        task: may read formats of its own, such as CoNLL; None: none.
        split: of a data set with several, unless `name` has one.
    """
    path = Path(name)
    kind = file_format(path).kind
    if isinstance(name, DataInMemory):
        found = _of_dataset(name, name.table)
    elif path.is_file():
        of_task = None if task is None else task.read(path)
        found = _read_file(path) if of_task is None else _of_dataset(name, *of_task)
    elif path.is_dir() and is_saved(path):
        found = _of_dataset(name, open_saved(name, split))
    elif path.is_fifo():
        raise UserError(f"{name} is a pipe; name a file (`mybert predict` reads pipes: .jsonl, .txt, no suffix)")
    elif kind in READERS:
        raise UserError(f"{name}: there is no such file{did_you_mean(name)}")
    else:
        found = _of_dataset(name, open_hub(name, split))
    if not len(found.rows):
        raise UserError(f"{name} holds no rows")
    return found


def _of_dataset(
    name: str, rows: Dataset, word_lines: Sequence[Sequence[int]] | None = None, note: str | None = None
) -> Split:
    rows, unit = _named_labels(name, rows), "row" if word_lines is None else "line"
    numbers = range(len(rows)) if word_lines is None else [lines[0] for lines in word_lines]
    records = lambda: (Record(number + 1, row) for number, row in zip(numbers, rows, strict=True))  # noqa: E731
    return Split(name, rows, records, numbers, unit, word_lines=word_lines, note=note)


def _read_file(path: Path) -> Split:
    name, (kind, compression) = str(path), file_format(path)
    if kind not in READERS or (compression and kind in NOT_COMPRESSED):
        found = f"{kind}{compression}" or "no suffix"
        without = " and ".join(NOT_COMPRESSED)
        raise UserError(f"{path}: expected {', '.join(READERS)} (all but {without} also .gz and .zst), found {found}")
    if not path.stat().st_size:
        raise UserError(f"{path} is empty")
    try:
        if kind == ".parquet":
            table = pyarrow.parquet.read_table(name)
            table.validate(full=True)  # else invalid UTF-8 raises an error when a text is used
            return _of_dataset(name, Dataset(table))
        columns, numbers, unit = _columns_of(name, READERS[kind](name))
        if not numbers:
            raise UserError(f"{name} holds no rows")
        rows = concatenate_datasets([make_column(column, values) for column, values in columns.items()], axis=1)
    except UserError:
        raise
    except (pa.ArrowException, ValueError, TypeError, OSError, KeyError, NotImplementedError) as error:
        raise UserError(f"{path} cannot be read: {cause(error)}") from error
    return Split(name, rows, lambda: READERS[kind](name), numbers, unit)


def _columns_of(name: str, records: Iterable[Record]) -> tuple[dict[str, list], list[int], str]:
    """Values by column name (None where a record lacks a column), places of the records, and their unit."""
    columns, numbers, unit = {}, [], "row"
    for number, fields, problem, detail, unit in records:
        problem = problem or unwritable(fields)
        if problem:
            detail = f" ({detail})" if detail else ""
            raise UserError(f"{name}, {unit} {number}: {problem}{detail}; {CORRECT.get(problem, 'correct it')}")
        for column in fields:
            columns.setdefault(column, [None] * len(numbers))
        for column, values in columns.items():
            values.append(fields.get(column))
        numbers.append(number - 1)
    return columns, numbers, unit


def table_of(rows: Any) -> Dataset:
    """A list of dictionaries, a DataFrame or a Dataset as a Dataset; columns of mixed types are kept as JSON."""
    if isinstance(rows, Dataset):
        return rows.with_format(None)  # a format such as torch hides columns
    if isinstance(rows, list):
        names = dict.fromkeys(name for row in rows for name in row)  # `from_list`: of the first row
        columns = {name: [row.get(name) for row in rows] for name in names}
    else:
        try:
            return Dataset.from_pandas(rows, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            columns = rows.astype(object).where(rows.notna(), None).to_dict("list")
    return concatenate_datasets([make_column(name, values) for name, values in columns.items()], axis=1)


def make_column(name: str, values: list) -> Dataset:
    """One column; values of several types, and whole numbers that Arrow would round, are kept as JSON."""
    try:
        return Dataset.from_dict({name: values}, on_mixed_types="use_json")
    except (OverflowError, pa.ArrowInvalid):
        return Dataset.from_dict({name: values}, features=Features({name: Json()}))


def _named_labels(source: str, rows: Dataset) -> Dataset:
    """Replaces the class numbers of `ClassLabel` columns by names, and -1, a hidden label, by None."""

    def named(value: Any, names: Sequence[str], column: str) -> Any:
        if isinstance(value, list):
            return [named(item, names, column) for item in value]
        if value is not None and value >= len(names):
            raise UserError(
                f"{source}: {column!r} has the class {value}, and its {len(names)} names ({short_list(names)}) count "
                "from 0; correct the numbers, or store them without names"
            )
        return None if value is None or value < 0 else names[value]

    for column, feature in rows.features.items():
        inner = getattr(feature, "feature", feature)
        if isinstance(inner, ClassLabel):
            values = [named(value, inner.names, column) for value in rows[column][:]]
            rows = rows.remove_columns(column).add_column(column, values)
    return rows
