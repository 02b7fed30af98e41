"""Segments: parts of an index that never change. An index grows by segments, and merges small ones.

Files of a segment: documents.arrow and passages.arrow; vectors.npy and norms.npy, bits.npy; graph.usearch of many
passages; words_*.npy (`Postings`). All are memory mapped.

Shapes: `R` passages, `D` documents, `H` dimensions.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mybert.artifacts.manifest import json_line
from mybert.common.errors import needing
from mybert.common.progress import Bar
from mybert.retrieval.words import Postings, best_rows
from mybert.rows.labels import number

GRAPH_LEAST = 20_000
"""Passages from which a segment has a graph of neighbours; fewer are compared one by one in a few milliseconds."""
_CONNECTIVITY, _EXPANSION_ADD, _EXPANSION_SEARCH = 16, 128, 1536
_CANDIDATES = 10  # times as many as are asked for are compared again with the stored vectors
_BLOCK = 1 << 14  # passages
_ROWS = 1 << 12  # of a batch of passages.arrow
_PASSAGES = pa.schema({"document": pa.int32(), "start": pa.int64(), "end": pa.int64(), "text": pa.large_string()})
_DOCUMENTS = pa.schema(
    {"id": pa.large_string(), "title": pa.large_string(), "digest": pa.binary(16), "columns": pa.large_string()}
)


class Segment:
    """A segment that is open for reading.

    Attributes:
        documents: columns `id`, `title`, `digest` and `columns` (JSON).
        document_of: (R,) int32: the document of each passage.
        inode: of a file that is mapped, and so of no other segment while this one is open.
        postings: the words of the passages.
    """

    def __init__(self, folder: Path):
        self.folder, self.inode = folder, inode_of(folder)
        self.documents = pa.ipc.open_file(pa.memory_map(str(folder / "documents.arrow"))).read_all()
        self._passages = pa.ipc.open_file(pa.memory_map(str(folder / "passages.arrow"))).read_all()
        self.document_of = self._passages["document"].to_numpy()
        self.vectors = np.load(folder / "vectors.npy", mmap_mode="r")
        self.norms = np.load(folder / "norms.npy", mmap_mode="r")
        bits = folder / "bits.npy"
        self.bits = np.load(bits, mmap_mode="r") if bits.is_file() else None
        self.postings = Postings.load(folder)
        graph = folder / "graph.usearch"
        self.graph: Any = _usearch().restore(str(graph), view=True) if graph.is_file() else None  # memory mapped, too

    def __len__(self) -> int:
        return len(self.document_of)

    @property
    def needs_graph(self) -> bool:
        """Whether it is large and has no graph yet."""
        return self.graph is None and len(self) >= GRAPH_LEAST

    def staying(self, deleted: np.ndarray) -> np.ndarray:
        """(D,) bool: all documents but those with the numbers `deleted`."""
        stays = np.ones(len(self.documents), dtype=bool)
        stays[deleted] = False
        return stays

    def documents_with(self, where: Mapping[str, Any]) -> np.ndarray:
        """(D,) bool: the documents whose columns have these values."""
        columns = self.documents["columns"]
        good = np.ones(len(columns), dtype=bool)
        for value in where.values():  # the text of a value is in the text of its columns; few are parsed
            texts = [_as_text(one).strip('"') for one in as_values(value)]
            good &= np.any([pc.match_substring(columns, text).to_numpy() for text in texts], axis=0)
        rows = np.flatnonzero(good)
        for row, text in zip(rows.tolist(), columns.filter(pa.array(good)).to_pylist(), strict=True):
            values = json.loads(text)
            good[row] = all(name in values and has_value(values[name], value) for name, value in where.items())
        return good

    def passage(self, row: int) -> dict[str, Any]:
        """Number of the document, `start`, `end` and `text` of a passage."""
        return self._passages.slice(row, 1).to_pylist()[0]

    def document(self, number: int) -> dict[str, Any]:
        """`id`, `title` and `columns` of a document."""
        row = self.documents.slice(number, 1).to_pylist()[0]
        return {"id": row["id"], "title": row["title"], "columns": json.loads(row["columns"])}

    def nearest(self, query: np.ndarray, count: int, allowed: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """The passages with the highest cosine to a query of length 1, best first, and these.

        Args:
            query: (H,) float32.
            allowed: (R,) bool; None: all. Few allowed passages are compared one by one.
        """
        if self.graph is not None and (allowed is None or allowed.mean() > 0.5):
            rows = self._from_graph(query, count)
            rows = rows if allowed is None else rows[allowed[rows]]
            if len(rows) >= count:
                return self._rescored(query, rows, count)
        rows = np.arange(len(self)) if allowed is None else np.flatnonzero(allowed)
        if self.bits is not None and len(rows) > _CANDIDATES * count:
            rows = rows[_nearest_bits(self.bits, query, rows, _CANDIDATES * count)]
        return self._rescored(query, rows, count)

    def _from_graph(self, query: np.ndarray, count: int) -> np.ndarray:
        code, wanted = (_as_int8 if self.bits is None else _as_bits)(query[None])[0], _CANDIDATES * count
        self.graph.expansion_search = max(_EXPANSION_SEARCH, wanted)
        return np.sort(self.graph.search(code, min(wanted, len(self)), threads=1).keys.astype(np.int64))

    def cosines(self, query: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """(rows,) float32: the cosine of each of the passages `rows`, in ascending order, to a query of length 1."""
        scores = np.empty(len(rows), dtype=np.float32)
        for block, chosen in _blocks(self.vectors, rows):
            scores[block] = chosen.astype(np.float32, copy=False) @ query
        return scores / self.norms[rows]

    def unit_vectors(self, rows: np.ndarray) -> np.ndarray:
        """(rows, H) float32: the vectors of passages, scaled to length 1."""
        return self.vectors[rows].astype(np.float32) / self.norms[rows][:, None]

    def _rescored(self, query: np.ndarray, rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        scores = self.cosines(query, rows)
        best = best_rows(scores, count)
        return rows[best], scores[best]


def inode_of(folder: Path) -> int:
    """Of the documents of a segment."""
    return (folder / "documents.arrow").stat().st_ino


def as_values(wanted: Any) -> list[Any]:
    """The values of a filter, of which any will do. Numbers may be given as texts, as on the command line."""
    values = list(wanted) if isinstance(wanted, list | tuple | set) else [wanted]
    return values + [value for text in values if isinstance(text, str) and (value := number(text)) is not None]


def has_value(value: Any, wanted: Any) -> bool:
    """Whether a column has a value, or is a list with it."""
    values = value if isinstance(value, list) else [value]
    return any(
        _as_text(one) == _as_text(some) or (one is not None and _as_text(one) == some)
        for one in values
        for some in as_values(wanted)
    )


def _as_text(value: Any) -> str:
    """A value as JSON. 1.0 is 1: programs write whole numbers as fractions where other rows lack the column."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json_line(value).rstrip("\n")


def _blocks(array: np.ndarray, rows: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """The chosen rows of an array, a block at a time; consecutive ones are not copied."""
    for first in range(0, len(rows), _BLOCK):
        block = slice(first, min(first + _BLOCK, len(rows)))
        start, stop = int(rows[block.start]), int(rows[block.stop - 1]) + 1
        yield block, array[start:stop] if stop - start == block.stop - block.start else array[rows[block]]


def _nearest_bits(bits: np.ndarray, query: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    """The places in `rows` of the passages with the most equal signs."""
    code, distances = _as_bits(query[None]), np.empty(len(rows), dtype=np.float32)
    for block, chosen in _blocks(bits, rows):
        distances[block] = np.bitwise_count(chosen ^ code).sum(1)
    return np.sort(best_rows(-distances, count))


def _as_int8(vectors: np.ndarray) -> np.ndarray:
    """(R, H) int8; each vector has its own scale, which cosines do not depend on."""
    largest = np.abs(vectors).max(1, keepdims=True)
    return np.round(vectors / np.maximum(largest, 1e-12) * 127).astype(np.int8)


def _as_bits(vectors: np.ndarray) -> np.ndarray:
    """(R, ⌈H / 8⌉) uint8: the signs."""
    return np.packbits(vectors > 0, axis=1)


def write_segment(
    folder: Path,
    documents: Sequence[dict[str, Any]],
    passages: Sequence[dict[str, Any]],
    vectors: np.ndarray,
    postings: Postings,
    precision: str,
) -> None:
    """Writes a segment without a graph; `documents` and `passages` have the columns of its files."""
    folder.mkdir()
    for name, rows, schema in (("documents", documents, _DOCUMENTS), ("passages", passages, _PASSAGES)):
        table = pa.Table.from_pylist(list(rows), schema=schema)
        _write_rows(folder / f"{name}.arrow", schema, table.to_batches())
    stored = vectors if precision == "float32" else _as_int8(vectors)
    np.save(folder / "vectors.npy", stored)
    np.save(folder / "norms.npy", np.maximum(np.linalg.norm(stored.astype(np.float32), axis=1), 1e-12))
    if precision == "binary":
        np.save(folder / "bits.npy", _as_bits(vectors))
    postings.save(folder)
    flush(*folder.iterdir(), folder)


def merge_segments(folder: Path, segments: Sequence[Segment], deleted: Sequence[np.ndarray]) -> None:
    """Writes one segment with the documents of several that are not deleted, in their order, with a graph if large.

    Args:
        deleted: numbers of the deleted documents of each.
    """
    folder.mkdir()
    stays = [segment.staying(gone) for segment, gone in zip(segments, deleted, strict=True)]
    kept = [np.flatnonzero(good[segment.document_of]) for segment, good in zip(segments, stays, strict=True)]
    documents = (one.documents.filter(pa.array(good)) for one, good in zip(segments, stays, strict=True))
    _write_rows(folder / "documents.arrow", _DOCUMENTS, (batch for table in documents for batch in table.to_batches()))
    _write_rows(folder / "passages.arrow", _PASSAGES, _kept_passages(segments, stays))
    for name in ("vectors", "norms", "bits"):
        arrays = [getattr(segment, name) for segment in segments]
        if arrays[0] is not None:
            _join_arrays(folder / f"{name}.npy", arrays, kept)
    Postings.merged([segment.postings for segment in segments], kept, folder)
    if sum(map(len, kept)) >= GRAPH_LEAST:
        _build_graph(folder)
    flush(*folder.iterdir(), folder)


def _kept_passages(segments: Sequence[Segment], stays: Sequence[np.ndarray]) -> Iterator[pa.RecordBatch]:
    """The passages of documents that stay, with the new numbers of these."""
    before = 0
    for segment, good in zip(segments, stays, strict=True):
        numbers = (before + np.cumsum(good) - 1).astype(np.int32)
        for batch in segment._passages.to_batches(max_chunksize=_ROWS):
            old = batch["document"].to_numpy()
            yield batch.set_column(0, "document", pa.array(numbers[old])).filter(pa.array(good[old]))
        before += int(good.sum())


def _join_arrays(path: Path, arrays: Sequence[np.ndarray], kept: Sequence[np.ndarray]) -> None:
    shape = (sum(map(len, kept)), *arrays[0].shape[1:])
    joined, place = np.lib.format.open_memmap(path, "w+", arrays[0].dtype, shape), 0
    for array, rows in zip(arrays, kept, strict=True):
        for block, chosen in _blocks(array, rows):
            joined[place + block.start : place + block.stop] = chosen
        place += len(rows)
    joined.flush()


def _build_graph(folder: Path) -> None:
    """Writes graph.usearch: the int8 vectors or bits of all passages, each linked to near ones."""
    is_binary = (folder / "bits.npy").is_file()
    codes = np.load(folder / ("bits.npy" if is_binary else "vectors.npy"), mmap_mode="r")
    kind = {"metric": "hamming", "dtype": "b1"} if is_binary else {"metric": "cos", "dtype": "i8"}
    dimensions = codes.shape[1] * (8 if is_binary else 1)
    graph = _usearch()(ndim=dimensions, connectivity=_CONNECTIVITY, expansion_add=_EXPANSION_ADD, **kind)
    with Bar(total=len(codes), desc="linking neighbours", unit="passages", leave=False) as bar:
        for block, chosen in _blocks(codes, np.arange(len(codes))):
            chosen = _as_int8(chosen) if chosen.dtype == np.float32 else np.ascontiguousarray(chosen)
            graph.add(np.arange(block.start, block.stop, dtype=np.uint64), chosen)
            bar.update(len(chosen))
    graph.save(str(folder / "graph.usearch"))


def _usearch() -> Any:
    with needing("retrieval", "an index"):
        from usearch.index import Index
    return Index


def _write_rows(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Writes batches of about `_ROWS` rows: larger ones are cut, smaller ones are joined."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        waiting: list[pa.RecordBatch] = []
        for batch in batches:
            waiting.append(batch)
            if sum(map(len, waiting)) >= _ROWS:
                writer.write_table(pa.Table.from_batches(waiting).combine_chunks(), max_chunksize=_ROWS)
                waiting = []
        writer.write_table(pa.Table.from_batches(waiting, schema).combine_chunks(), max_chunksize=_ROWS)


def flush(*paths: Path) -> None:
    """Waits until files, and the names in folders, are on the disk."""
    for path in paths:
        if path.is_file():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        elif os.name == "posix":  # elsewhere a folder cannot be opened
            number = os.open(path, os.O_RDONLY)
            try:
                os.fsync(number)
            finally:
                os.close(number)
