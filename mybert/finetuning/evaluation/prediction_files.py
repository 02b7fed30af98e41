"""Prediction files: JSON lines, and tables made of them (.csv, .tsv, .parquet)."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from mybert.common.manifest import json_line

_INPUT = "input"


def write_table(records: Path, output: Path) -> None:
    """Writes predictions in JSON lines as a table, in the format that the suffix of `output` names.

    The columns of `input` become columns named `input.NAME`, after those of the prediction. Values in .csv and .tsv
    are quoted as in RFC 4180; lists and objects are written as JSON. A .parquet column whose values do not have one
    type holds JSON texts.
    """
    names = dict.fromkeys(name for record in _flat_records(records) for name in record)
    columns = sorted(names, key=lambda name: name == _INPUT or name.startswith(f"{_INPUT}."))
    if output.suffix == ".parquet":
        rows = list(_flat_records(records))
        table = {name: _typed([row.get(name) for row in rows]) for name in columns}
        pyarrow.parquet.write_table(pa.table(table), output)
        return
    with output.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t" if output.suffix == ".tsv" else ",")
        writer.writerow(columns)
        writer.writerows([_cell(row.get(name)) for name in columns] for row in _flat_records(records))


def _flat_records(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            record = json.loads(line)
            given = record.get(_INPUT)
            if isinstance(given, dict):
                del record[_INPUT]
                record |= {f"{_INPUT}.{name}": value for name, value in given.items()}
            yield record


def _cell(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json_line(value).rstrip("\n")


def _typed(values: list) -> pa.Array:
    try:
        column = pa.array(values)
        pyarrow.parquet.write_table(pa.table([column], ["column"]), pa.BufferOutputStream())  # raises for some types
        if column.to_pylist() == values:
            return column
    except (pa.ArrowException, OverflowError):
        pass
    return pa.array([None if value is None else json_line(value).rstrip("\n") for value in values], pa.string())
