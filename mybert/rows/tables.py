"""Tables of rows: a `datasets.Dataset` with columns of any types, its few methods for rows in memory, and the columns
by their roles, such as text and label: those that are given, else those with usual names.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from datasets import Dataset, Features, Json, concatenate_datasets

from mybert.common.errors import UserError, nearest_name, short_list
from mybert.io.files import file_format

MOST_ROWS = 1000


class MemoryRows:
    """Columns as lists. For a few rows, creating and mapping a `Dataset` takes longer than a small model."""

    def __init__(self, columns: Mapping[str, list[Any]]):
        self._columns = dict(columns)

    @property
    def column_names(self) -> list[str]:
        return list(self._columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def __getitem__(self, key: str | int | slice) -> Any:
        """A column, a row, or a slice of all columns."""
        if isinstance(key, str):
            return self._columns[key]
        return {name: values[key] for name, values in self._columns.items()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[number] for number in range(len(self)))

    def select(self, numbers: Iterable[int]) -> "MemoryRows":
        numbers = list(numbers)
        return MemoryRows({name: [values[n] for n in numbers] for name, values in self._columns.items()})

    def select_columns(self, names: Iterable[str]) -> "MemoryRows":
        return MemoryRows({name: self._columns[name] for name in names})

    def remove_columns(self, name: str) -> "MemoryRows":
        return self.select_columns([other for other in self._columns if other != name])

    def rename_columns(self, names: Mapping[str, str]) -> "MemoryRows":
        return MemoryRows({names.get(name, name): values for name, values in self._columns.items()})

    def with_column(self, name: str, values: list[Any]) -> "MemoryRows":
        return MemoryRows({**self._columns, name: values})


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
    return table_of_columns(columns)


def table_of_columns(columns: Mapping[str, list[Any]]) -> Dataset:
    """Columns whose values may have several types as a table."""
    try:
        return Dataset.from_dict(dict(columns), on_mixed_types="use_json")
    except (OverflowError, pa.ArrowInvalid):
        return concatenate_datasets([make_column(name, values) for name, values in columns.items()], axis=1)


def make_column(name: str, values: list[Any]) -> Dataset:
    """One column; values of several types, and whole numbers that Arrow would round, are kept as JSON."""
    try:
        return Dataset.from_dict({name: values}, on_mixed_types="use_json")
    except (OverflowError, pa.ArrowInvalid):
        return Dataset.from_dict({name: values}, features=Features({name: Json()}))


def join_columns(dataset: Dataset, given: str, join: Callable[[Mapping[str, Any]], Any]) -> Dataset:
    """Replaces the columns named in `given`, separated by commas, by one column of that name, if all are there."""
    names = [name.strip() for name in given.split(",")]
    if len(names) < 2 or given in dataset.column_names or not {*names} <= {*dataset.column_names}:
        return dataset
    values = list(map(join, dataset.select_columns(names)))
    rest = dataset.select_columns([name for name in dataset.column_names if name not in names])
    return with_column(rest, given, values)


def with_column(rows: Dataset, name: str, values: list[Any]) -> Dataset:
    """The rows with another column, whose values may have several types."""
    if isinstance(rows, MemoryRows):
        return rows.with_column(name, values)
    column = make_column(name, values)
    return concatenate_datasets([rows, column], axis=1) if rows.column_names else column


# Roles


def choose_columns(
    names: Sequence[str], wanted: Mapping[str, Sequence[str]], given: Mapping[str, str], optional: Collection[str]
) -> tuple[dict[str, str], list[str], dict[str, Sequence[str]]]:
    """
    Args:
        names: the columns of the table.
        wanted: role → usual names of its column; see `usual_columns`.
        given: role → column; or several columns that are read as one, separated by commas.
        optional: roles that may have no column.

    Returns:
        Role → column; the names in `given` that are no columns; and of each role without a column its usual names.
    """
    columns = {role: column for role, column in given.items() if role in wanted}
    absent = []
    for column in dict.fromkeys(columns.values()):
        if column not in names:
            absent += [name for name in map(str.strip, column.split(",")) if name not in names] or [column]
    for role, usual in wanted.items():
        free = usual_columns([name for name in names if name not in columns.values()], usual)
        if role not in columns and free:
            columns[role] = free[0]
    return columns, absent, {role: wanted[role] for role in wanted if role not in columns and role not in optional}


def usual_columns(names: Collection[str], usual: Iterable[str]) -> list[str]:
    """The columns with usual names, in the order of these; if there are none, those that differ in case only."""
    same = [name for name in usual if name in names]
    return same or [name for one in usual for name in names if name.casefold() == one.casefold()]


class MissingColumns(UserError):
    """Rows have no column for a role of the task."""


def lacking_columns(
    source: str,
    names: Sequence[str],
    absent: Sequence[str],
    unnamed: Mapping[str, Sequence[str]],
    roles: Sequence[str],
) -> str:
    """The message about missing columns.

    Args:
        names: the columns of `source`.
        absent, unnamed: of `choose_columns`.
        roles: the roles whose columns the message asks for.
    """
    lacking = [f"no column {name!r}{nearest_name(name, names)}" for name in absent]
    lacking += [f"no column for {role!r} (looked for {', '.join(tried)})" for role, tried in unnamed.items()]
    message = f"{source} has {' and '.join(lacking)}; there are {short_list(names) or 'none'}"
    if roles:
        message += f"; name {'it' if len(roles) == 1 else 'them'} by --columns "
        message += " ".join(f"{role}=COLUMN" for role in roles)
        if unnamed and file_format(source).kind in (".csv", ".tsv", ".xlsx"):
            message += ", or add a line of names if the file has none"
    return message
