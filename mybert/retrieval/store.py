"""The segments of an index and its manifest, which is replaced at once whenever they change."""

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mybert.artifacts.manifest import MANIFEST, read_manifest, write_manifest
from mybert.artifacts.staging import exclusive_lock
from mybert.common.errors import UserError, cause, short, short_list
from mybert.embedding.settings import check_index
from mybert.retrieval.records import UnusableQuery
from mybert.retrieval.segments import Segment, flush, inode_of, merge_segments
from mybert.retrieval.settings import FIXED
from mybert.retrieval.words import best_rows

FORMAT = 1
"""Of the files of an index; a later version of MyBERT that changes them raises it."""
FACTS = (*FIXED, "words_weight", "format")
"""Entries of the manifest that are fixed when an index is made."""
_DELETED_SHARE = 0.25  # of a segment, above which it is written again
_ATTEMPTS = 5  # to open the segments of a manifest

Place = tuple[int, int, bytes]
"""Where a document is: number of its segment, its number in it, and its digest."""


class SegmentStore:
    """The folder of an index.

    Attributes:
        manifest: the contents of manifest.json; `segments` has the names of folders and of files of deleted documents.
        segments: open for reading, in order.
        deleted: numbers of the deleted documents of each segment.
        alive: per segment, (R,) bool: the passages that are not deleted.
        starts: the number of passages before each segment.
        state: of the manifest that was read; another one has another state.
    """

    def __init__(self, folder: Path):
        self.folder, self.segments = folder, list[Segment]()
        self._read()

    @classmethod
    def create(cls, folder: Path, settings: Any, model: dict[str, str], facts: dict[str, Any]) -> None:
        """Writes the manifest of an index without segments into an existing folder."""
        _write(folder, settings, model, facts | {"format": FORMAT, "segments": [], "written": 0})

    @property
    def documents(self) -> int:
        """The number of documents that are not deleted."""
        return sum(len(one.documents) - len(gone) for one, gone in zip(self.segments, self.deleted, strict=True))

    @property
    def rows(self) -> np.ndarray:
        """The passages that are not deleted; they are numbered one segment after the other."""
        return np.flatnonzero(np.concatenate([*self.alive, np.array([], dtype=bool)]))

    def passage(self, row: int) -> tuple[Segment, dict[str, Any]]:
        """A passage, and its segment."""
        number = int(np.searchsorted(self.starts, row, side="right")) - 1
        return self.segments[number], self.segments[number].passage(row - int(self.starts[number]))

    def of_documents(self, rows: np.ndarray) -> np.ndarray:
        """The places in `rows` of the first passage of each document."""
        numbers = np.searchsorted(self.starts, rows, side="right") - 1
        documents = numbers << 32
        for number in np.unique(numbers).tolist():
            own = numbers == number
            documents[own] += self.segments[number].document_of[rows[own] - self.starts[number]]
        return np.sort(np.unique(documents, return_index=True)[1])

    def by_segment(self, rows: np.ndarray) -> Iterator[tuple[Segment, np.ndarray]]:
        """Each segment with those of the passages, in ascending order, that it has, by its own numbers."""
        bounds = np.searchsorted(rows, self.starts)
        for number, segment in enumerate(self.segments):
            yield segment, rows[bounds[number] : bounds[number + 1]] - self.starts[number]

    def allowed(self, where: Mapping[str, Any]) -> list[np.ndarray]:
        """Per segment, (R,) bool: the passages that are not deleted and whose documents have the values."""
        if not where:
            return self.alive
        allowed = [
            alive & segment.documents_with(where)[segment.document_of]
            for segment, alive in zip(self.segments, self.alive, strict=True)
        ]
        if not any(good.any() for good in allowed):
            some = [one for segment in self.segments for one in segment.documents["columns"][:1000].to_pylist()]
            columns = {name for one in some for name in json.loads(one)}
            if unknown := [name for name in where if name not in columns]:
                there = short_list(sorted(columns)) or "none"
                raise UnusableQuery(f"no document has the column {short(unknown[0])} (there are: {there})")
        return allowed

    def nearest(self, vector: np.ndarray, allowed: Sequence[np.ndarray], count: int) -> tuple[np.ndarray, np.ndarray]:
        """The allowed passages with the highest cosine to a query of length 1, best first, and these."""
        rows, scores = [np.array([], dtype=np.int64)], [np.array([], dtype=np.float32)]
        for segment, start, good in zip(self.segments, self.starts, allowed, strict=False):
            if good.any():
                nearest_rows, cosines = segment.nearest(vector, count, None if good.all() else good)
                rows.append(start + nearest_rows)
                scores.append(cosines)
        all_rows, all_scores = np.concatenate(rows), np.concatenate(scores)
        best = best_rows(all_scores, count)
        return all_rows[best], all_scores[best]

    def cosines(self, vector: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The cosines of passages, in ascending order, to a query of length 1."""
        parts = [segment.cosines(vector, some) for segment, some in self.by_segment(rows)]
        return np.concatenate([*parts, np.array([], dtype=np.float32)])

    def refresh(self) -> None:
        """Reads the index again if another process has changed it."""
        try:
            state = _state(self.folder)
        except OSError as error:
            raise UserError(f"the index {self.folder} was moved or deleted ({cause(error)})") from error
        if state != self.state:
            self._read()

    def _read(self) -> None:
        """Opens the segments that the manifest names; a merge that ends meanwhile may remove them, so twice."""
        check_index(self.folder)
        for attempt in range(_ATTEMPTS):
            state = _state(self.folder)
            manifest = read_manifest(self.folder)
            if manifest.get("format", 0) > FORMAT:
                made = manifest.get("versions", {}).get("mybert")
                raise UserError(
                    f"{self.folder} was made by mybert {made}, a later version; install it, or index again"
                )
            try:
                opened = {(one.folder.name, one.inode): one for one in self.segments}
                folders = [self.folder / entry["name"] for entry in manifest["segments"]]
                segments = [opened.get((one.name, inode_of(one))) or Segment(one) for one in folders]
                deleted = [
                    np.load(self.folder / entry["deleted"]) if entry["deleted"] else np.array([], dtype=np.int64)
                    for entry in manifest["segments"]
                ]
                break
            except (OSError, ValueError, LookupError, TypeError) as error:
                if attempt == _ATTEMPTS - 1:
                    raise UserError(f"{self.folder} is damaged ({cause(error)}); index the documents again") from error
        self.manifest, self.segments, self.deleted, self.state = manifest, segments, deleted, state
        self.starts = np.concatenate([[0], np.cumsum([len(segment) for segment in segments])]).astype(np.int64)
        self.alive = [
            segment.staying(gone)[segment.document_of] for segment, gone in zip(segments, deleted, strict=True)
        ]

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Locks the index against other writers, and removes what no manifest names."""
        with exclusive_lock(self.folder / MANIFEST):
            self.refresh()
            self._remove_unnamed()  # of a killed process, or a merge whose readers are gone
            yield

    def _remove_unnamed(self) -> None:
        """Removes the segments and the files of deleted documents that the manifest does not name."""
        named = {entry[key] for entry in self.manifest["segments"] for key in ("name", "deleted")}
        for path in self.folder.iterdir():
            if path.name.startswith(("segment-", "deleted-")) and path.name not in named:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)

    def known(self, ids: Sequence[str] | None = None) -> dict[str, Place]:
        """Segment, number in it, and digest of each document that is not deleted, by its id; of some or of all ids."""
        known: dict[str, Place] = {}
        for number, (segment, gone) in enumerate(zip(self.segments, self.deleted, strict=True)):
            stays = segment.staying(gone)
            if ids is not None:
                stays &= pc.is_in(segment.documents["id"], value_set=pa.array(ids, pa.large_string())).to_numpy()
            rows = np.flatnonzero(stays)
            keys, digests = (segment.documents[name].take(pa.array(rows)).to_pylist() for name in ("id", "digest"))
            known |= {key: (number, *rest) for key, *rest in zip(keys, rows.tolist(), digests, strict=True)}
        return known

    def without(self, gone: Sequence[Place]) -> list[dict[str, Any]]:
        """The entries of the segments in the manifest, after the deletion of documents."""
        entries = [dict(entry) for entry in self.manifest["segments"]]
        for number in sorted({number for number, *_ in gone}):
            rows = [row for segment, row, _ in gone if segment == number]
            name = f"{self.new_name('deleted')}.npy"
            np.save(self.folder / name, np.union1d(self.deleted[number], rows).astype(np.int64))
            flush(self.folder / name)
            entries[number]["deleted"] = name
        return entries

    def merge(self) -> None:
        """Merges the last segments, so that each is at least twice as large as all after it, and there are few."""
        entries = self.manifest["segments"]
        if empty := {n for n, alive in enumerate(self.alive) if not alive.any()}:
            self.commit([entry for n, entry in enumerate(entries) if n not in empty])
        sizes = [len(segment) for segment in self.segments]
        first = next((n for n, size in enumerate(sizes) if size < 2 * sum(sizes[n + 1 :])), len(sizes))
        groups = [range(first, len(sizes))] if first < len(sizes) else []
        alone = (n for n in range(len(sizes)) if not (groups and n >= first) and self._is_stale(n))
        for group in [*groups, *(range(number, number + 1) for number in reversed(list(alone)))]:
            name = self.new_name("segment")
            merge_segments(
                self.folder / name,
                self.segments[group.start : group.stop],
                self.deleted[group.start : group.stop],
            )
            entries = list(self.manifest["segments"])
            entries[group.start : group.stop] = [{"name": name, "deleted": None}]
            self.commit(entries)

    def _is_stale(self, number: int) -> bool:
        """Whether a segment has many deleted documents or lacks its graph."""
        segment, gone = self.segments[number], len(self.deleted[number])
        return gone > _DELETED_SHARE * len(segment.documents) or segment.needs_graph

    def new_name(self, kind: str) -> str:
        """A name that no file of the index has."""
        self.manifest["written"] += 1
        return f"{kind}-{self.manifest['written']:06d}"

    def commit(self, entries: list[dict[str, Any]]) -> None:
        """Makes the entries the segments of the index. What is written before it does not count, after it stays."""
        made = {name: self.manifest[name] for name in FACTS if name in self.manifest}
        facts = made | {"segments": entries, "written": self.manifest["written"]}
        settings, model = self.manifest["settings"], self.manifest["inputs"]["model"]
        _write(self.folder, settings, model, facts, job=self.manifest.get("job"))
        self._read()
        self._remove_unnamed()


def _write(folder: Path, settings: Any, model: dict[str, str], facts: dict[str, Any], job: str | None = None) -> None:
    counts = {"segments": len(facts["segments"])}
    facts = facts | ({"job": job} if job else {})
    flush(folder)  # the manifest names nothing that a power failure could take away
    write_manifest(folder, "index", settings=settings, inputs={"model": model}, counts=counts, **facts)
    flush(folder)


def _state(folder: Path) -> tuple[int, int]:
    status = (folder / MANIFEST).stat()
    return status.st_mtime_ns, status.st_ino
