"""Vector files (.npy, .parquet, .jsonl): writers that take record batches, and one reader in blocks."""

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mybert.common.error_messages import cause
from mybert.common.errors import UserError

VECTOR = "vector"
ROWS_PER_BLOCK = 8192


def vector_column(vectors: np.ndarray) -> pa.FixedSizeListArray:
    """(R, H) float32 as a column."""
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel(), pa.float32()), vectors.shape[1])


def rename_taken(columns: dict, taken: Iterable[str]) -> dict:
    """Renames the columns of the user whose names are taken: `line` becomes `input_line`."""
    renamed = {}
    for name, column in columns.items():
        while name in taken or name in renamed:
            name = f"input_{name}"
        renamed[name] = column
    return renamed


class NpyWriter:
    """Writes the vectors without other columns.

    Args:
        path: file to write.
        schema: schema of the batches.
        rows: total number of rows, which the header of .npy contains.
    """

    def __init__(self, path: Path, schema: pa.Schema, rows: int):
        self.file = path.open("wb")
        shape = (rows, schema.field(VECTOR).type.list_size)
        np.lib.format.write_array_header_1_0(self.file, {"descr": "<f4", "fortran_order": False, "shape": shape})

    def write(self, batch: pa.RecordBatch) -> None:
        self.file.write(batch[VECTOR].values.to_numpy().astype("<f4", copy=False).tobytes())

    def close(self) -> None:
        self.file.close()


class ParquetWriter:
    """Writes every column; vectors are fixed-size lists of float32."""

    def __init__(self, path: Path, schema: pa.Schema, rows: int):
        self.writer = pq.ParquetWriter(path, schema, compression="zstd")

    def write(self, batch: pa.RecordBatch) -> None:
        self.writer.write_batch(batch, row_group_size=ROWS_PER_BLOCK)

    def close(self) -> None:
        self.writer.close()


class JsonlWriter:
    """Writes every column, one object per line; numbers have the fewest digits that give the same float32."""

    def __init__(self, path: Path, schema: pa.Schema, rows: int):
        self.file = path.open("w", encoding="utf-8", newline="\n")

    def write(self, batch: pa.RecordBatch) -> None:
        for start in range(0, len(batch), ROWS_PER_BLOCK):
            part = batch.slice(start, ROWS_PER_BLOCK)
            digits = pc.cast(part[VECTOR].flatten(), pa.string()).to_pylist()
            width = part[VECTOR].type.list_size
            for number, record in enumerate(part.drop_columns([VECTOR]).to_pylist()):
                vector = ", ".join(digits[number * width : (number + 1) * width])
                head = json.dumps(record, ensure_ascii=False, default=str)[:-1]
                self.file.write(f'{head}, "{VECTOR}": [{vector}]}}\n')

    def close(self) -> None:
        self.file.close()


WRITERS = {".npy": NpyWriter, ".parquet": ParquetWriter, ".jsonl": JsonlWriter}


def read_vectors(path: Path) -> Iterator[tuple[np.ndarray, Callable[[int], dict]]]:
    """Yields blocks of a vector file.

    Yields:
        (R, H) float32 vectors, and a function from a row of the block to its other columns. Rows of .npy have the
        column `text_number` alone.

    Raises:
        UserError: the file cannot be read or holds no vectors.
    """
    try:
        yield from _READERS[path.suffix](path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # pa.ArrowInvalid is a ValueError
        raise UserError(f"{path} cannot be read as vectors ({cause(error)}); make it by `mybert embed`") from error


def _read_npy(path: Path):
    vectors = np.load(path, mmap_mode="r")
    if vectors.ndim != 2:
        raise ValueError(f"expected two dimensions, found {vectors.ndim}")
    for start in range(0, len(vectors), ROWS_PER_BLOCK):
        block = np.asarray(vectors[start : start + ROWS_PER_BLOCK], dtype=np.float32)
        yield block, lambda row, start=start: {"text_number": start + row}


def _read_parquet(path: Path):
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS_PER_BLOCK):
            vectors, others = batch[VECTOR], batch.drop_columns([VECTOR])
            block = vectors.flatten().to_numpy().reshape(len(batch), -1)
            yield block, lambda row, others=others: others.slice(row, 1).to_pylist()[0]


def _read_jsonl(path: Path):
    with path.open(encoding="utf-8") as file:
        while rows := [json.loads(line) for line in islice(file, ROWS_PER_BLOCK)]:
            block = np.array([row.pop(VECTOR) for row in rows], dtype=np.float32)
            yield block, rows.__getitem__


_READERS = {".npy": _read_npy, ".parquet": _read_parquet, ".jsonl": _read_jsonl}
