"""Prediction files: JSON lines, and tables made of them (.csv, .tsv, .parquet)."""

import csv
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from mybert.artifacts.manifest import json_line

_INPUT = "input"
_FORMULA = re.compile("[=+@\t\r\n\uff1d\uff0b\uff20\uff0d-]")  # how a cell begins that spreadsheets compute (OWASP)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


def write_table(records: Path, output: Path, spreadsheet_safe: bool = False) -> int:
    """Writes predictions in JSON lines as a table, in the format that the suffix of `output` names.

    The columns of `input` become columns named `input.NAME`, after those of the prediction. Values in .csv and .tsv
    are quoted as in RFC 4180; lists and objects are written as JSON. A .parquet column whose values do not have one
    type holds JSON texts.

    Args:
        spreadsheet_safe: as in `write_cells`.

    Returns:
        The number of formulas in a .csv or .tsv file.
    """
    names = dict.fromkeys(name for record in _flat_records(records) for name in record)
    columns = sorted(names, key=lambda name: name == _INPUT or name.startswith(f"{_INPUT}."))
    if output.suffix == ".parquet":
        rows = list(_flat_records(records))
        table = {name: _typed([row.get(name) for row in rows]) for name in columns}
        pyarrow.parquet.write_table(pa.table(table), output)
        return 0
    cells = ([cell(row.get(name)) for name in columns] for row in _flat_records(records))
    return write_cells(output, itertools.chain([columns], cells), spreadsheet_safe)


def write_cells(output: Path, rows: Iterable[Sequence[Any]], spreadsheet_safe: bool, encoding: str = "utf-8") -> int:
    """Writes rows as .csv or .tsv.

    Args:
        spreadsheet_safe: whether to put an apostrophe before each formula: a text that is no number and begins with
            a character after which spreadsheets compute the rest.

    Returns:
        The number of formulas.
    """
    formulas = 0
    with output.open("w", encoding=encoding, newline="") as file:
        writer = csv.writer(file, delimiter="\t" if output.suffix == ".tsv" else ",")
        for row in rows:
            computed = [isinstance(x, str) and bool(_FORMULA.match(x)) and not _NUMBER.fullmatch(x) for x in row]
            formulas += sum(computed)
            if spreadsheet_safe:
                row = [f"'{one}" if yes else one for one, yes in zip(row, computed, strict=True)]
            writer.writerow(row)
    return formulas


def _flat_records(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            record = json.loads(line)
            given = record.get(_INPUT)
            if isinstance(given, dict):
                del record[_INPUT]
                record |= {f"{_INPUT}.{name}": value for name, value in given.items()}
            yield record


def cell(value: Any) -> str:
    """A value as the text of a cell: lists and objects as JSON."""
    return "" if value is None else value if isinstance(value, str) else json_line(value).rstrip("\n")


def _typed(values: list[Any]) -> pa.Array:
    try:
        column = pa.array(values)
        pyarrow.parquet.write_table(pa.table([column], ["column"]), pa.BufferOutputStream())  # raises for some types
        if column.to_pylist() == values:
            return column
    except (pa.ArrowException, OverflowError):
        pass
    return pa.array([None if value is None else json_line(value).rstrip("\n") for value in values], pa.string())
