"""Vector files (.npy, .parquet, .jsonl): writers that take record batches, and one reader in blocks."""

import contextlib
import functools
import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mybert.artifacts.manifest import json_line
from mybert.common.errors import UserError, cause

VECTOR = "vector"
ROWS_PER_BLOCK = 8192
Write = Callable[[pa.RecordBatch], object]
Block = tuple[np.ndarray, Callable[[int], dict[str, Any]]]
"""(R, H) float32, and a function from a row of the block to its other columns."""


def vector_column(vectors: np.ndarray) -> pa.FixedSizeListArray:
    """(R, H) float32 as a column."""
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel(), pa.float32()), vectors.shape[1])


def json_vectors(column: pa.FixedSizeListArray) -> list[str]:
    """The vectors of a column as JSON; numbers have the fewest digits that give the same float32."""
    width, digits = column.type.list_size, pc.cast(column.flatten(), pa.string()).to_pylist()
    return [f"[{', '.join(digits[start : start + width])}]" for start in range(0, len(digits), width)]


@contextlib.contextmanager
def _npy_writer(path: Path, schema: pa.Schema, rows: int) -> Iterator[Write]:
    """Writes the vectors without other columns. The header contains the total number of rows."""
    shape = (rows, schema.field(VECTOR).type.list_size)
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        yield lambda batch: file.write(batch[VECTOR].values.to_numpy().astype("<f4", copy=False).tobytes())


@contextlib.contextmanager
def _parquet_writer(path: Path, schema: pa.Schema, rows: int) -> Iterator[Write]:
    """Writes every column; vectors are fixed-size lists of float32."""
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        yield lambda batch: writer.write_batch(batch, row_group_size=ROWS_PER_BLOCK)


@contextlib.contextmanager
def _jsonl_writer(path: Path, schema: pa.Schema, rows: int) -> Iterator[Write]:
    """Writes every column, one object per line."""

    def write(batch: pa.RecordBatch) -> None:
        for start in range(0, len(batch), ROWS_PER_BLOCK):
            part = batch.slice(start, ROWS_PER_BLOCK)
            records = part.drop_columns([VECTOR]).to_pylist()
            for record, vector in zip(records, json_vectors(part[VECTOR]), strict=True):
                head = json_line(record).removesuffix("}\n")
                file.write(f'{head}, "{VECTOR}": {vector}}}\n')

    with path.open("w", encoding="utf-8", newline="\n") as file:
        yield write


WRITERS = {".npy": _npy_writer, ".parquet": _parquet_writer, ".jsonl": _jsonl_writer}
"""Writer by suffix: a context whose value writes a record batch."""


def read_vectors(path: Path) -> Iterator[Block]:
    """Yields the blocks of a vector file. Rows of .npy have the column `text_number` alone."""
    start = 0
    try:
        for block, columns_of in _READERS[path.suffix](path):
            if block.ndim != 2:
                raise ValueError(f"expected two dimensions, found {block.ndim}")
            if not np.isfinite(block.sum(dtype=np.float64)):
                row = int((~np.isfinite(block)).any(1).argmax())
                raise ValueError(f"vector {start + row} has a NaN or infinite value")
            yield block, columns_of
            start += len(block)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # pa.ArrowInvalid is a ValueError
        raise UserError(f"{path} cannot be read as vectors ({cause(error)}); make it by `mybert embed`") from error


def _read_npy(path: Path) -> Iterator[Block]:
    vectors = np.load(path, mmap_mode="r")
    for start in range(0, len(vectors), ROWS_PER_BLOCK):
        block = np.asarray(vectors[start : start + ROWS_PER_BLOCK], dtype=np.float32)
        yield block, functools.partial(_numbered, start)


def _numbered(start: int, row: int) -> dict[str, Any]:
    return {"text_number": start + row}


def _read_parquet(path: Path) -> Iterator[Block]:
    with pq.ParquetFile(path) as file:
        yield from map(_parquet_block, file.iter_batches(ROWS_PER_BLOCK))


def _parquet_block(batch: pa.RecordBatch) -> Block:
    vectors, others = batch[VECTOR], batch.drop_columns([VECTOR])
    block = vectors.flatten().to_numpy().astype(np.float32, copy=False).reshape(len(batch), -1)
    return block, lambda row: others.slice(row, 1).to_pylist()[0]


def _read_jsonl(path: Path) -> Iterator[Block]:
    with path.open(encoding="utf-8") as file:
        while rows := [json.loads(line) for line in islice(file, ROWS_PER_BLOCK)]:
            block = np.array([row.pop(VECTOR) for row in rows], dtype=np.float32)
            yield block, rows.__getitem__


_READERS = {".npy": _read_npy, ".parquet": _read_parquet, ".jsonl": _read_jsonl}
