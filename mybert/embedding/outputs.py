"""Vectors as a file: one writer for each format, fed with record batches in input order."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

VECTOR = "vector"
_ROWS_A_WRITE = 8192


def vector_column(vectors: np.ndarray) -> pa.FixedSizeListArray:
    """(R, H) float32 as a column."""
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel(), pa.float32()), vectors.shape[1])


class NpyWriter:
    """The vectors alone, as numpy reads them.

    Args:
        path: file to write.
        schema: of the batches.
        rows: of all batches together; numpy wants the number in front.
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
    """Every column; vectors as fixed-size lists of float32."""

    def __init__(self, path: Path, schema: pa.Schema, rows: int):
        self.writer = pq.ParquetWriter(path, schema, compression="zstd")

    def write(self, batch: pa.RecordBatch) -> None:
        self.writer.write_batch(batch, row_group_size=_ROWS_A_WRITE)

    def close(self) -> None:
        self.writer.close()


class JsonlWriter:
    """Every column, an object a line; each number in the fewest digits that give the same float32 again."""

    def __init__(self, path: Path, schema: pa.Schema, rows: int):
        self.file = path.open("w", encoding="utf-8", newline="\n")

    def write(self, batch: pa.RecordBatch) -> None:
        for start in range(0, len(batch), _ROWS_A_WRITE):
            part = batch.slice(start, _ROWS_A_WRITE)
            digits = pc.cast(part[VECTOR].flatten(), pa.string()).to_pylist()
            width = part[VECTOR].type.list_size
            for number, record in enumerate(part.drop_columns([VECTOR]).to_pylist()):
                vector = ", ".join(digits[number * width : (number + 1) * width])
                head = json.dumps(record, ensure_ascii=False)[:-1]
                self.file.write(f'{head}, "{VECTOR}": [{vector}]}}\n')

    def close(self) -> None:
        self.file.close()


WRITERS = {".npy": NpyWriter, ".parquet": ParquetWriter, ".jsonl": JsonlWriter}
