"""Load labelled rows from a file, a saved data set or the Hub, with columns under the names that a task uses."""

import dataclasses
import hashlib
import itertools
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
from datasets import ClassLabel, Dataset
from transformers import PreTrainedTokenizerBase

from mybert.artifacts.manifest import DataInMemory
from mybert.common.errors import UserError, cause, did_you_mean, short_list, warn_once
from mybert.common.quantities import counted
from mybert.io.dataset_sources import is_saved, open_hub, open_saved
from mybert.io.files import file_format, is_unicode, open_text
from mybert.io.record_formats import CORRECT, NOT_COMPRESSED, NOT_UTF8, READERS, Record, readable
from mybert.io.sources import README, find_sources
from mybert.rows.annotations import read_argilla
from mybert.rows.labels import UNKNOWN
from mybert.rows.splits import Split, describe_problems, refuse_rows
from mybert.rows.tables import table_of_columns, usual_columns
from mybert.tasks.base import Task


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
    columns: dict[str, list[Any]] = {name: [] for name in sorted(common)}
    for rows in tables:
        for name, values in columns.items():
            values += rows[name][:] if name in rows.column_names else [None] * len(rows)
    return table_of_columns(columns)


def read_split(name: str, task: Task, labelled: bool = True, split: str = "train", prepared: bool = True) -> Split:
    """The columns of a task, with its targets if `labelled`, converted if `prepared`; see `load_table`."""
    table = load_table(name, task, split)
    if table.note is not None:  # the task's reader has applied --columns
        if problems := task.unknown_roles():
            raise UserError(problems[0])
        task = dataclasses.replace(task, options=dataclasses.replace(task.options, columns=[]))
    rows, columns = task.by_role(read_argilla(table.rows), name, labelled)
    usual = [name for role in task.targets if role in columns for name in task.targets[role]]
    others = usual_columns([name for name in table.rows.column_names if name not in columns.values()], usual)
    return table._replace(rows=task.prepare(rows) if prepared else rows, columns=columns, others=others)


def load_table(name: str, task: Task | None, split: str) -> Split:
    """Rows with all their columns under their own names; class numbers of `datasets` become class names.

    Every value of .csv, .tsv and .xlsx is text as written: 007, True and 3.50.

    Args:
        name: a file, a folder of .txt or .md files, a folder written by `save_to_disk`, `NAME[:CONFIG[:SPLIT]]` of
            the Hub or of a folder like those on the Hub, or rows in memory.
        task: may read formats of its own, such as CoNLL; None: none.
        split: of a data set with several, unless `name` has one.
    """
    path = Path(name)
    kind = file_format(path).kind
    if isinstance(name, DataInMemory):
        table = _of_dataset(name, name.table)
    elif path.is_file():
        of_task = None if task is None else task.read(path)
        table = _read_file(path) if of_task is None else _of_dataset(name, *of_task)
    elif path.is_dir() and is_saved(path):
        table = _of_dataset(name, open_saved(name, split))
    elif path.is_dir() and (files := _text_files(path)):
        given = {} if task is None else task.options.given_columns()
        table = _read_texts(name, files, given.get("text", "text"))
    elif path.is_fifo():
        raise UserError(f"{name} is a pipe; name a file (`mybert predict` reads pipes: .jsonl, .txt, no suffix)")
    elif kind in READERS:
        raise UserError(f"{name}: there is no such file{did_you_mean(name)}")
    else:
        table = _of_dataset(name, open_hub(name, split))
    if not len(table.rows):
        raise UserError(f"{name} holds no rows")
    return table


def _of_dataset(
    name: str, rows: Dataset, word_lines: Sequence[Sequence[int]] | None = None, note: str | None = None
) -> Split:
    rows, unit = _named_labels(name, rows), "row" if word_lines is None else "line"
    numbers = range(len(rows)) if word_lines is None else [lines[0] for lines in word_lines]
    records = lambda: (Record(number + 1, row) for number, row in zip(numbers, rows, strict=True))  # noqa: E731
    return Split(name, rows, records, numbers, unit, word_lines=word_lines, note=note)


def _text_files(folder: Path) -> list[str]:
    """The files of a folder if all that can be read are plain texts; none of a copy of a repository of the Hub."""
    readme = folder / README
    if readme.is_file() and readme.read_bytes().startswith(b"---"):  # a card of the Hub
        return []
    sources = find_sources([str(folder)])
    return [source.name for source in sources] if all(source.kind == ".txt" for source in sources) else []


def _read_texts(folder: str, files: Sequence[str], column: str) -> Split:
    """A row of each file that is not blank: its text as `column`, and as `file` its name in the folder."""
    texts, names = [], []
    for name in files:
        with open_text(name) as file:
            text = file.read()
        if not is_unicode(text):
            raise UserError(f"{name}: {NOT_UTF8}; {CORRECT[NOT_UTF8]}")
        if text.strip():
            texts.append(text)
            names.append(Path(name).relative_to(folder).as_posix())
    if blank := len(files) - len(texts):
        warn_once("%s: left out %s without text", folder, counted(blank, "file"))
    columns = {column: texts}
    columns.setdefault("file", names)
    return _of_dataset(folder, table_of_columns(columns))


def _read_file(path: Path) -> Split:
    name, (kind, compression) = str(path), file_format(path)
    if kind not in READERS or (compression and kind in NOT_COMPRESSED):
        suffix = "".join(path.suffixes[-2 if compression else -1 :]) or "no suffix"
        without = " and ".join(NOT_COMPRESSED)
        raise UserError(f"{path}: expected {', '.join(READERS)} (all but {without} also .gz and .zst), found {suffix}")
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
        rows = table_of_columns(columns)
    except UserError:
        raise
    except (pa.ArrowException, ValueError, TypeError, OSError, KeyError, NotImplementedError) as error:
        # zipfile raises NotImplementedError for a compression that it does not know, in .xlsx
        raise UserError(f"{path} cannot be read: {cause(error)}; write it again or leave it out") from error
    return Split(name, rows, lambda: READERS[kind](name), numbers, unit)


def _columns_of(name: str, records: Iterable[Record]) -> tuple[dict[str, list[Any]], list[int], str]:
    """Values by column name (None where a record lacks a column), places of the records, and their unit."""
    columns: dict[str, list[Any]] = {}
    numbers: list[int] = []
    unit = "row"
    for record in readable(name, records):
        for column in record.fields:
            if column not in columns:
                columns[column] = [None] * len(numbers)
        for column, values in columns.items():
            values.append(record.fields.get(column))
        numbers.append(record.number - 1)
        unit = record.unit
    return columns, numbers, unit


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


def usable_rows(
    split: Split,
    task: Task,
    tokenizer: PreTrainedTokenizerBase,
    training: bool,
    errors: str,
    report: Callable[[str], object] = print,
    of_unknown: str = "",
) -> Split:
    """The split without rows that cannot be used; see `Task.check_rows` for `training`.

    If there are any, `errors="strict"` raises, and `skip` calls `report` with the line that names the rows left out.
    `of_unknown` is a remedy for labels that the model lacks.
    """
    try:
        problems = task.problems(split.rows, tokenizer, training)
    except UserError as error:  # about the labels of all rows
        raise UserError(f"{split.source}: {error}") from error
    if not problems:
        return split
    bad = {problem.row for problem in problems}
    if errors == "strict" or len(bad) == len(split.rows):
        remedy = "leave them out by --errors skip"
        if of_unknown and any(UNKNOWN in problem.message for problem in problems):
            remedy = f"{of_unknown}, or {remedy}"
        refuse_rows(split.source, problems, len(split.rows), split.unit, remedy, split.place)
    report(f"{describe_problems(split.source, problems, len(split.rows), split.unit, split.place)}; left out")
    return split.select([row for row in range(len(split.rows)) if row not in bad])._replace(left_out=len(bad))


def row_digests(rows: Dataset, task: Task, columns: Collection[str] | None = None) -> list[int]:
    """A number of 64 bits for the texts of each row, without regard to case, spaces and the form of accents.

    Args:
        columns: the roles to read (default: all inputs).
    """
    return [hash_of("\0".join(map(_plain, texts))) for texts in input_texts(rows, task, columns)]


def input_texts(rows: Dataset, task: Task, names: Collection[str] | None = None) -> Iterator[tuple[str, ...]]:
    """The inputs of each row as texts, or those in `names`; the words of a list are joined by spaces."""
    columns = [rows[name][:] for name in task.inputs if name in rows.column_names and name in (names or task.inputs)]
    for values in zip(*columns, strict=True):
        yield tuple(" ".join(map(str, value)) if isinstance(value, list) else str(value) for value in values)


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold()).split())


def hash_of(text: str) -> int:
    """A number below 2 ** 64."""
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "little")
