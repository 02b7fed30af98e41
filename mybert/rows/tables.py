"""Tables of rows: a `datasets.Dataset` with columns of any types, and its few methods for rows in memory."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from datasets import Dataset, Features, Json, concatenate_datasets

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
