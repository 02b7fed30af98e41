"""`Index`: documents that can be searched by meaning and by words, on disk."""

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mybert.common.error_messages import did_you_mean, short, short_list
from mybert.common.errors import UserError
from mybert.common.manifest import MANIFEST, identity, read_manifest, write_manifest
from mybert.common.output_folders import exclusive_lock
from mybert.embedding.settings import MODES
from mybert.io.stored_texts import rename_taken
from mybert.retrieval.collections import joined
from mybert.retrieval.encoder import Encoder, Progress
from mybert.retrieval.passages import PassageCutter
from mybert.retrieval.ranking import fused
from mybert.retrieval.reranker import Reranker
from mybert.retrieval.segments import Segment, merge_segments, write_segment
from mybert.retrieval.words import Analyzer, Postings, Words, best_rows, guess_language

FORMAT = 1
"""Of the files of an index; a later version of MyBERT that changes them raises it."""
_DEPTH = 100  # passages of each ranking that are fused or reranked
_DELETED_SHARE = 0.25  # of a segment, above which it is written again
_ATTEMPTS = 5  # to open the segments of a manifest
_BATCH = 4_000_000  # characters that are encoded before they are written

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class IndexedDocument:
    """A document to be indexed. `columns` are kept, and searches can be filtered by them."""

    id: str
    text: str
    title: str = ""
    columns: Mapping[str, Any] = field(default_factory=dict)

    def digest(self) -> bytes:
        """A hash of everything but the id."""
        content = json.dumps([self.title, self.text, self.columns], sort_keys=True, default=str, ensure_ascii=False)
        return hashlib.blake2b(content.encode(errors="surrogatepass"), digest_size=16).digest()


@dataclass
class Hit:
    """A passage that was found.

    Attributes:
        id, title, columns: of its document.
        start, end: `text` is `document[start:end]`.
        score: the sum of reciprocal ranks (hybrid), the cosine (dense), BM25 (words), or the reranker's.
        highlights: start and end in `text` of each word that is also in the query.
    """

    id: str
    title: str
    text: str
    start: int
    end: int
    score: float
    highlights: list[tuple[int, int]]
    columns: dict[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """The hit as one flat dictionary."""
        own = dataclasses.asdict(self)
        del own["columns"]
        return own | rename_taken(self.columns, own)


@dataclass(frozen=True)
class IndexOptions:
    """How an index is made; fixed when it is created. See `IndexSettings`."""

    passage_tokens: int = 200
    overlap: int = 40
    precision: str = "float32"
    language: str | None = None


class Index:
    """A folder written by `mybert index`.

    Args:
        folder: the index.
        model: the model that made it, if it has been moved (default: the one in its manifest).
        options: `device`, `dtype` and `max_tokens_per_batch` of `Embedder`.

    Raises:
        UserError: there is no index, a later version has made it, or `model` is another model.

    Example:
        >>> index = Index("index")
        >>> [(hit.id, hit.text[hit.start : hit.end]) for hit in index.search("how to open a file", top_k=3)]
        >>> index.add([{"id": "new", "title": "Files", "text": "Call open()."}])
        >>> index.delete(["old"])
    """

    def __init__(self, folder: str | PathLike[str], *, model: str | None = None, **options: Any):
        self.folder, self._options = Path(folder), options
        self._read()
        recorded = self.manifest["inputs"]["model"]
        self.model = os.fspath(model or recorded["path"])
        self._model_identity = recorded
        self._is_checked = False
        self._encoder: Encoder | None = None
        self._analyzer = Analyzer(self.manifest["language"])
        self._rerankers: dict[str, Reranker] = {}

    @classmethod
    def create(
        cls, folder: Path, model: str, made: IndexOptions, settings: Any, sample: Sequence[str], **options: Any
    ) -> "Index":
        """Creates an index without documents in an existing folder; `sample` are texts that show the language."""
        path = str(Path(model).resolve()) if Path(model).exists() else model
        facts = dataclasses.asdict(made) | {"language": made.language or guess_language(sample), "format": FORMAT}
        _write(folder, settings, identity(path), facts | {"segments": [], "written": 0})
        return cls(folder, **options)

    def __len__(self) -> int:
        """The number of documents."""
        return sum(len(segment.documents) - len(gone) for segment, gone in zip(*self._parts(), strict=True))

    @property
    def passages(self) -> int:
        """The number of passages, deleted ones not counted."""
        return sum(int(self._alive[number].sum()) for number in range(len(self._segments)))

    @property
    def encoder(self) -> Encoder:
        """The model; loaded when it is first needed."""
        if self._encoder is None:
            self._check_model()
            self._encoder = Encoder(self.model, **self._options)
        return self._encoder

    def reranker(self, name: str) -> Reranker:
        """A cross-encoder; loaded when it is first needed."""
        if name not in self._rerankers:
            options = {key: value for key, value in self._options.items() if key in ("device", "dtype")}
            self._rerankers[name] = Reranker(name, **options)
        return self._rerankers[name]

    def search(
        self,
        query: str,
        top_k: int = 5,
        mode: str = "hybrid",
        where: Mapping[str, Any] | None = None,
        reranker: str | None = None,
    ) -> list[Hit]:
        """Finds passages, the best one of each document, best first.

        Args:
            mode: `dense` compares vectors, `words` has BM25, `hybrid` adds the reciprocal ranks of both.
            where: column → value; only documents with these values are found.
            reranker: a cross-encoder that scores the passages found and sorts them anew.
        """
        if mode not in MODES:
            raise UserError(f"mode: expected {' or '.join(MODES)}, found {short(mode)}")
        if not query.strip():
            raise UserError("the query is empty; write some words")
        self._refresh()
        allowed = self._allowed(where or {})
        rows, scores = self._ranked(query, mode, allowed, max(_DEPTH, 5 * top_k))
        hits: list[Hit] = []
        texts = []
        seen: set[tuple[int, int]] = set()
        for row, score in zip(rows.tolist(), scores.tolist(), strict=True):
            number = int(np.searchsorted(self._starts, row, side="right")) - 1
            found = self._segments[number].passage(row - int(self._starts[number]))
            if reranker is None and (number, found["document"]) in seen:
                continue
            seen.add((number, found["document"]))
            hits.append(self._hit(number, found, score))
            texts.append(joined(hits[-1].title, hits[-1].text))
            if reranker is None and len(hits) == top_k:
                break
        if reranker is not None:
            hits = self._reranked(query, hits, texts, reranker)[:top_k]
        for hit in hits:
            hit.highlights = self._analyzer.spans(hit.text, query)
        return hits

    def add(
        self, documents: Iterable[IndexedDocument | Mapping[str, Any]], progress: Progress | None = None
    ) -> dict[str, int]:
        """Adds documents; one with the id of another replaces it, and an equal one is left as it is.

        What has been written when a process is killed stays; the same call again adds the rest.

        Args:
            documents: dictionaries with `id`, `text`, and maybe `title`; other names are columns.
            progress: called with the number of documents that were just added.

        Returns:
            The numbers of documents `added`, `replaced` and `unchanged`, and of `passages`.
        """
        counts = {"added": 0, "replaced": 0, "unchanged": 0, "passages": 0}
        with self._writing():
            known = self._known()
            for batch in _batches(map(_document, documents)):
                new: dict[str, IndexedDocument] = {}
                for document in batch:
                    place = known.get(document.id)
                    if document.id not in new and place and place[2] == document.digest():
                        counts["unchanged"] += 1
                    else:
                        new[document.id] = document
                replaced = [known[key] for key in new if key in known]
                if new:
                    counts["passages"] += self._append(list(new.values()), replaced)
                    number = len(self._segments) - 1
                    known |= {key: (number, row, one.digest()) for row, (key, one) in enumerate(new.items())}
                counts["replaced"] += len(replaced)
                counts["added"] += len(new) - len(replaced)
                if progress:
                    progress(len(batch))
            self._merge()
        return counts

    def finish(self, job: str) -> None:
        """Records the digest of the job that has built the index, for `--resume`."""
        self.manifest["job"] = job
        self._commit(self.manifest["segments"])

    def delete(self, ids: Iterable[str], missing: str = "strict") -> int:
        """Deletes documents; returns their number.

        Args:
            missing: `strict` raises a UserError for an id that is not in the index; `skip` leaves it out.
        """
        with self._writing():
            known, ids = self._known(), list(dict.fromkeys(map(str, ids)))
            if (unknown := [key for key in ids if key not in known]) and missing == "strict":
                raise UserError(f"{self.folder} has no document {short_list(map(short, unknown))}; nothing is deleted")
            gone = [known[key] for key in ids if key in known]
            if gone:
                self._commit(self._entries(gone))
                self._merge()
        return len(gone)

    # Reading

    def _read(self) -> None:
        """Opens the segments that the manifest names; a merge that ends meanwhile may remove them, so twice."""
        if not (self.folder / MANIFEST).is_file():
            raise UserError(f"{self.folder} is no index; make one by `mybert index`{did_you_mean(str(self.folder))}")
        for attempt in range(_ATTEMPTS):
            state = _state(self.folder)
            manifest = read_manifest(self.folder)
            if manifest.get("stage") != "index":
                raise UserError(f"{self.folder} is no index, but an output of `mybert {manifest.get('stage')}`")
            if manifest["format"] > FORMAT:
                made = manifest.get("versions", {}).get("mybert")
                raise UserError(
                    f"{self.folder} was made by mybert {made}, a later version; install it, or index again"
                )
            try:
                segments = [Segment(self.folder / entry["name"]) for entry in manifest["segments"]]
                deleted = [
                    np.load(self.folder / entry["deleted"]) if entry["deleted"] else np.array([], dtype=np.int64)
                    for entry in manifest["segments"]
                ]
                break
            except (OSError, ValueError) as error:
                if attempt == _ATTEMPTS - 1:
                    raise UserError(f"{self.folder} is damaged ({error}); index the documents again") from error
        self.manifest, self._segments, self._deleted, self._state_read = manifest, segments, deleted, state
        self._starts = np.concatenate([[0], np.cumsum([len(segment) for segment in segments])]).astype(np.int64)
        self._alive = []
        for segment, gone in zip(segments, deleted, strict=True):
            stays = np.ones(len(segment.documents), dtype=bool)
            stays[gone] = False
            self._alive.append(stays[segment.document_of])
        self._words: Words | None = None

    def _refresh(self) -> None:
        """Reads the index again if another process has changed it."""
        if _state(self.folder) != self._state_read:
            self._read()

    def _parts(self) -> tuple[list[Segment], list[np.ndarray]]:
        return self._segments, self._deleted

    def _check_model(self) -> None:
        if self._is_checked:
            return
        recorded = self._model_identity
        if recorded.get("sha256") and not Path(self.model).exists():
            raise UserError(
                f"the model {self.model} of {self.folder} does not exist; name the folder that it was moved to by "
                f"--model{did_you_mean(self.model)}"
            )
        found = identity(self.model)
        if (found.get("sha256") or self.model) != (recorded.get("sha256") or recorded["path"]):
            raise UserError(
                f"{self.folder} was made by {recorded['path']}, and {self.model} is another model; name the same one, "
                "or index the documents again"
            )
        self._is_checked = True

    def _allowed(self, where: Mapping[str, Any]) -> list[np.ndarray]:
        """Per segment, (R,) bool: the passages that are not deleted and whose documents have the values."""
        if not where:
            return self._alive
        allowed = [
            alive & segment.documents_with(where)[segment.document_of]
            for segment, alive in zip(self._segments, self._alive, strict=True)
        ]
        if not any(good.any() for good in allowed):
            columns = {name for segment in self._segments for name in segment.column_names()}
            if unknown := [name for name in where if name not in columns]:
                there = short_list(sorted(columns)) or "none"
                raise UserError(f"no document has the column {short(unknown[0])} (there are: {there})")
        return allowed

    def _ranked(
        self, query: str, mode: str, allowed: Sequence[np.ndarray], depth: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Passages of the whole index and their scores, best first."""
        found = []
        if mode != "words":
            found.append(self._nearest(query, allowed, depth))
        if mode != "dense":
            if self._words is None:
                self._words = Words(self._analyzer, [segment.postings for segment in self._segments])
            scores = self._words.scores(query) if self._segments else np.array([])
            scores *= np.concatenate(allowed) if self._segments else 1
            rows = best_rows(scores, depth)
            rows = rows[scores[rows] > 0]
            found.append((rows, scores[rows]))
        return fused([rows for rows, _ in found], depth) if len(found) > 1 else found[0]

    def _nearest(self, query: str, allowed: Sequence[np.ndarray], depth: int) -> tuple[np.ndarray, np.ndarray]:
        vector = self.encoder.queries([query])[0]
        rows, scores = [np.array([], dtype=np.int64)], [np.array([], dtype=np.float32)]
        for segment, start, good in zip(self._segments, self._starts, allowed, strict=False):
            if good.any():
                found, cosines = segment.nearest(vector, depth, None if good.all() else good)
                rows.append(start + found)
                scores.append(cosines)
        all_rows, all_scores = np.concatenate(rows), np.concatenate(scores)
        best = best_rows(all_scores, depth)
        return all_rows[best], all_scores[best]

    def _hit(self, number: int, found: dict[str, Any], score: float) -> Hit:
        document = self._segments[number].documents.slice(found["document"], 1).to_pylist()[0]
        place = {name: found[name] for name in ("text", "start", "end")}
        columns = json.loads(document["columns"])
        return Hit(document["id"], document["title"], **place, score=score, highlights=[], columns=columns)

    def _reranked(self, query: str, hits: list[Hit], texts: list[str], name: str) -> list[Hit]:
        scores = self.reranker(name).scores(query, texts)
        order, best = np.argsort(-scores, kind="stable"), {}
        for place in order.tolist():
            hits[place].score = float(scores[place])
            best.setdefault(hits[place].id, hits[place])
        return list(best.values())

    # Writing

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        with exclusive_lock(self.folder / MANIFEST):
            self._refresh()
            named = {entry[key] for entry in self.manifest["segments"] for key in ("name", "deleted")}
            for path in self.folder.iterdir():  # of a killed process, or a merge whose readers are gone
                if path.name.startswith(("segment-", "deleted-")) and path.name not in named:
                    shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
            yield

    def _known(self) -> dict[str, tuple[int, int, bytes]]:
        """Segment, number in it, and digest of each document that is not deleted, by its id."""
        known = {}
        for number, (segment, gone) in enumerate(zip(*self._parts(), strict=True)):
            dead, columns = set(gone.tolist()), (segment.documents[name].to_pylist() for name in ("id", "digest"))
            for row, (key, digest) in enumerate(zip(*columns, strict=True)):
                if row not in dead:
                    known[key] = (number, row, digest)
        return known

    def _append(self, documents: list[IndexedDocument], replaced: list[tuple[int, int, bytes]]) -> int:
        """Adds a segment and deletes what it replaces, at once; returns the number of passages."""
        made = self.manifest
        most = min(made["passage_tokens"], self.encoder.room)
        cutter = PassageCutter(self.encoder.embedder, most, made["overlap"], self._analyzer.language)
        passages: list[dict[str, Any]] = []
        for number, document in enumerate(documents):
            for start, end in cutter.spans(document.title, document.text):
                text = document.text[start:end]
                passages.append({"document": number, "start": start, "end": end, "text": text})
        texts = [joined(documents[one["document"]].title, one["text"]) for one in passages]
        name = self._new("segment")
        write_segment(
            self.folder / name,
            [
                {
                    "id": one.id,
                    "title": one.title,
                    "digest": one.digest(),
                    "columns": json.dumps(dict(one.columns), ensure_ascii=False, default=str),
                }
                for one in documents
            ],
            passages,
            self.encoder.passages(texts),
            Postings.of(texts, self._analyzer),
            made["precision"],
        )
        self._commit([*self._entries(replaced), {"name": name, "deleted": None}])
        return len(passages)

    def _entries(self, gone: Sequence[tuple[int, int, bytes]]) -> list[dict[str, Any]]:
        """The entries of the segments in the manifest, after the deletion of documents."""
        entries = [dict(entry) for entry in self.manifest["segments"]]
        for number in sorted({number for number, *_ in gone}):
            rows = [row for segment, row, _ in gone if segment == number]
            name = f"{self._new('deleted')}.npy"
            np.save(self.folder / name, np.union1d(self._deleted[number], rows).astype(np.int64))
            entries[number]["deleted"] = name
        return entries

    def _merge(self) -> None:
        """Merges the last segments while the one before them is not twice as large, so that there are few."""
        entries = self.manifest["segments"]
        if empty := {n for n, alive in enumerate(self._alive) if not alive.any()}:
            self._commit([entry for n, entry in enumerate(entries) if n not in empty])
        sizes = [len(segment) for segment in self._segments]
        first = len(sizes)
        while first and (first == len(sizes) or sizes[first - 1] < 2 * sum(sizes[first:])):
            first -= 1
        groups = [range(first, len(sizes))] if len(sizes) - first > 1 else []
        alone = (n for n in range(len(sizes)) if not (groups and n >= first) and self._is_stale(n))
        for group in [*groups, *(range(number, number + 1) for number in reversed(list(alone)))]:
            name = self._new("segment")
            merge_segments(
                self.folder / name,
                self._segments[group.start : group.stop],
                self._deleted[group.start : group.stop],
            )
            entries = list(self.manifest["segments"])
            entries[group.start : group.stop] = [{"name": name, "deleted": None}]
            self._commit(entries)

    def _is_stale(self, number: int) -> bool:
        """Whether a segment has many deleted documents or lacks its graph."""
        segment, gone = self._segments[number], len(self._deleted[number])
        return gone > _DELETED_SHARE * len(segment.documents) or segment.needs_graph

    def _new(self, kind: str) -> str:
        """A name that no file of the index has."""
        self.manifest["written"] += 1
        return f"{kind}-{self.manifest['written']:06d}"

    def _commit(self, entries: list[dict[str, Any]]) -> None:
        """Makes the entries the segments of the index. What is written before it does not count, after it stays."""
        made = {name: self.manifest[name] for name in ("passage_tokens", "overlap", "precision", "language", "format")}
        facts = made | {"segments": entries, "written": self.manifest["written"]}
        before = {entry[key] for entry in self.manifest["segments"] for key in ("name", "deleted")}
        _write(self.folder, self.manifest["settings"], self._model_identity, facts, job=self.manifest.get("job"))
        self._read()
        for name in before - {entry[key] for entry in entries for key in ("name", "deleted")} - {None}:
            path = self.folder / name
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def _write(folder: Path, settings: Any, model: dict[str, str], facts: dict[str, Any], job: str | None = None) -> None:
    counts = {"segments": len(facts["segments"])}
    facts = facts | ({"job": job} if job else {})
    write_manifest(folder, "index", settings=settings, inputs={"model": model}, counts=counts, **facts)


def _state(folder: Path) -> tuple[int, int]:
    found = (folder / MANIFEST).stat()
    return found.st_mtime_ns, found.st_ino


def _document(given: IndexedDocument | Mapping[str, Any]) -> IndexedDocument:
    if isinstance(given, IndexedDocument):
        return given
    columns = dict(given)
    key, text, title = columns.pop("id", None), columns.pop("text", None), columns.pop("title", None)
    if key is None or not isinstance(text, str):
        raise UserError(f"a document needs an id and a text, found {short(given)}")
    return IndexedDocument(str(key), text, title if isinstance(title, str) else "", columns)


def _batches(documents: Iterable[IndexedDocument]) -> Iterator[list[IndexedDocument]]:
    batch, size = [], 0
    for document in documents:
        batch.append(document)
        size += len(document.text) + len(document.title)
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
