"""Rows and features in memory, with the part of `datasets.Dataset` that prediction needs."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MOST_ROWS = 1000


class MemoryRows:
    """Columns as lists. For a few rows, creating and mapping a `Dataset` takes longer than a small model."""

    def __init__(self, columns: Mapping[str, list]):
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

    def with_column(self, name: str, values: list) -> "MemoryRows":
        return MemoryRows({**self._columns, name: values})
