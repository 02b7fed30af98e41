"""`Index`: documents that can be searched by meaning and by words, on disk."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mybert.artifacts.manifest import check_maker, identity
from mybert.common.errors import UserError, short, short_list
from mybert.common.progress import Bar
from mybert.embedding.settings import MODES
from mybert.io.files import is_unicode
from mybert.retrieval.balance import DEFAULT, balance
from mybert.retrieval.collections import id_of, joined
from mybert.retrieval.encoder import Encoder, Progress, Reranker
from mybert.retrieval.passages import cut_documents, passage_sizes
from mybert.retrieval.ranking import RERANKED, combined, reranked, words_unit
from mybert.retrieval.records import Hit, IndexedDocument, UnusableQuery, as_document
from mybert.retrieval.segments import Segment, write_segment
from mybert.retrieval.settings import FIXED, IndexSettings
from mybert.retrieval.store import Place, SegmentStore
from mybert.retrieval.words import Analyzer, Postings, Words, best_positive, best_rows, guess_language
from mybert.settings.declare import as_list
from tokenization.word_counting import batches

_DEPTH = RERANKED  # passages of each ranking that are combined
_DEEPER = 8  # times as many passages, if these are of too few documents
_SAMPLE = 1000  # passages that show how much cosines differ
_BATCH = 4_000_000  # characters that are encoded before they are written


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
        self.folder, self._options, self.store = Path(folder), options, SegmentStore(Path(folder))
        self._given_model = None if model is None else os.fspath(model)
        self._loaded: tuple[dict[str, str], Encoder] | None = None  # what made the index, and its encoder
        self._last_analyzer: Analyzer | None = None
        self._words: tuple[tuple[int, int], Words] | None = None
        self._sample: tuple[tuple[int, int], np.ndarray] | None = None
        self._rerankers: dict[str, Reranker] = {}

    @classmethod
    def create(
        cls, folder: Path, settings: IndexSettings, sample: Sequence[IndexedDocument], **options: Any
    ) -> "Index":
        """Creates an index without documents in an existing folder.

        Args:
            sample: documents that show the language, and how much BM25 counts.
        """
        path = str(Path(settings.model).resolve()) if Path(settings.model).exists() else settings.model
        texts = [document.text for document in sample]
        language = Analyzer(settings.language or guess_language(texts)).language
        encoder = Encoder(path, **options)
        titles = [document.title for document in sample]
        weight = balance(titles, texts, encoder.queries, encoder.passages, encoder.start_weight)
        made = {name: getattr(settings, name) for name in FIXED}
        chosen = {"language": language, "words_weight": weight}
        sizes = passage_sizes(settings.passage_tokens, settings.overlap, encoder)
        chosen |= dict(zip(("passage_tokens", "overlap"), sizes, strict=True))
        SegmentStore.create(folder, settings, identity(path), made | chosen)
        index = cls(folder, **options)
        index._loaded = index.store.manifest["inputs"]["model"], encoder
        return index

    def __len__(self) -> int:
        """The number of documents."""
        return self.store.documents

    @property
    def passages(self) -> int:
        """The number of passages, deleted ones not counted."""
        return len(self.store.rows)

    @property
    def model(self) -> str:
        """The folder or Hub name of the model."""
        return self._given_model or self.store.manifest["inputs"]["model"]["path"]

    @property
    def encoder(self) -> Encoder:
        """The model that made the index as it is now; loaded when it is first needed."""
        recorded = self.store.manifest["inputs"]["model"]
        if self._loaded is None or self._loaded[0] != recorded:
            check_maker(self.folder, recorded, self.model, "index the documents again")
            self._loaded = recorded, Encoder(self.model, **self._options)
        return self._loaded[1]

    @property
    def _analyzer(self) -> Analyzer:
        language = self.store.manifest["language"]
        if self._last_analyzer is None or self._last_analyzer.language != language:
            self._last_analyzer = Analyzer(language)
        return self._last_analyzer

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
            mode: `dense` compares vectors, `words` has BM25, `hybrid` adds both scores.
            where: column → value; only documents with these values are found.
            reranker: a cross-encoder; its logits are added to the scores of the passages found, see `reranked`.
        """
        if mode not in MODES:
            raise UnusableQuery(f"mode: expected {' or '.join(MODES)}, found {short(mode)}")
        if not query.strip():
            raise UnusableQuery("the query is empty; write some words")
        if not is_unicode(query):
            raise UnusableQuery("the query has half of a surrogate pair, or bytes that are not UTF-8; correct it")
        if top_k < 1:
            raise UnusableQuery(f"top_k: expected 1 or more, found {top_k}")
        self.store.refresh()
        allowed = self.store.allowed(where or {})
        first = depth = max(_DEPTH, 5 * top_k)
        rows, scores = self._ranked(query, mode, allowed, depth)
        best = self.store.of_documents(rows)
        while len(best) < min(top_k, len(self)) and len(rows) == depth:  # long documents have many passages
            depth *= _DEEPER
            rows, scores = self._ranked(query, mode, allowed, depth)
            best = self.store.of_documents(rows)
        kept = best[:top_k] if reranker is None else np.union1d(np.arange(min(first, len(rows))), best[:top_k])
        rows, scores = rows[kept], scores[kept]
        hits = [
            _hit(*self.store.passage(row), score) for row, score in zip(rows.tolist(), scores.tolist(), strict=True)
        ]
        if reranker is not None:
            hits = self._reranked(query, hits, reranker)[:top_k]
        for hit in hits:
            hit.highlights = self._analyzer.spans(hit.text, query)
        return hits

    def sample(self, count: int) -> list[Hit]:
        """At most `count` passages from all over the index, with a score of 0."""
        rows = self.store.rows
        some = rows[:: max(-(-len(rows) // count), 1)]
        return [_hit(*self.store.passage(row), score=0.0) for row in some.tolist()]

    def add(
        self,
        documents: IndexedDocument | Mapping[str, Any] | Iterable[IndexedDocument | Mapping[str, Any]],
        progress: Progress | None = None,
    ) -> dict[str, int]:
        """Adds documents; one with the id of another replaces it, and an equal one is left as it is.

        What has been written when a process is killed stays; the same call again adds the rest.

        Args:
            documents: dictionaries with `id`, `text`, and maybe `title`; other names are columns.
            progress: called with the number of documents that were just added.

        Returns:
            The numbers of documents `added`, `replaced` and `unchanged`, and of `passages`.
        """
        documents = [documents] if isinstance(documents, IndexedDocument | Mapping) else documents
        counts = {"added": 0, "replaced": 0, "unchanged": 0, "passages": 0}
        with self.store.writing():
            for batch in batches(map(as_document, documents), lambda one: len(one.text) + len(one.title), _BATCH):
                new, known = dict[str, IndexedDocument](), self.store.known([one.id for one in batch])
                for document in batch:
                    place = known.get(document.id)
                    if document.id not in new and place and place[2] == document.digest():
                        counts["unchanged"] += 1
                    else:
                        new[document.id] = document
                replaced = [known[key] for key in new if key in known]
                if new:
                    counts["passages"] += self._append(list(new.values()), replaced, progress)
                counts["replaced"] += len(replaced)
                counts["added"] += len(new) - len(replaced)
                if progress:
                    progress(len(batch))
            self.store.merge()
        return counts

    def finish(self, job: str) -> None:
        """Records the digest of the job that has built the index, for `--resume`."""
        self.store.manifest["job"] = job
        self.store.commit(self.store.manifest["segments"])

    def delete(self, ids: str | Iterable[str], missing: str = "strict") -> int:
        """Deletes documents; returns their number.

        Args:
            missing: `strict` raises a UserError for an id that is not in the index; `skip` leaves it out.
        """
        with self.store.writing():
            ids = list(dict.fromkeys(map(id_of, as_list(ids))))
            known = self.store.known(ids)
            if (unknown := [key for key in ids if key not in known]) and missing == "strict":
                path = next((key for key in self.store.known() if key.endswith(f"/{unknown[0]}")), None)
                hint = f"; {short(path)} is there, since the id of a file is its path" if path else ""
                raise UserError(
                    f"{self.folder} has no document {short_list(map(short, unknown))}; nothing is deleted{hint}"
                )
            gone = [known[key] for key in ids if key in known]
            if gone:
                self.store.commit(self.store.without(gone))
                self.store.merge()
        return len(gone)

    def _ranked(
        self, query: str, mode: str, allowed: Sequence[np.ndarray], depth: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Passages of the whole index and their scores, best first."""
        if mode == "dense":
            return self.store.nearest(self.encoder.queries([query])[0], allowed, depth)
        scores = self._bm25().scores(query) * np.concatenate([*allowed, np.array([], dtype=bool)])
        rows = best_positive(scores, depth)
        if mode == "words":
            return rows, scores[rows]
        vector = self.encoder.queries([query])[0]
        rows = np.union1d(rows, self.store.nearest(vector, allowed, depth)[0])
        if not len(rows):
            return rows, scores[rows]
        spread = float((self._sampled() @ vector).std())
        weight = self.store.manifest.get("words_weight", DEFAULT)
        both = combined(self.store.cosines(vector, rows), scores[rows], weight, spread, words_unit(scores))
        best = best_rows(both, depth)
        return rows[best], both[best]

    def _bm25(self) -> Words:
        """BM25 over the segments as they are now."""
        if self._words is None or self._words[0] != self.store.state:
            self._words = self.store.state, Words(self._analyzer, [one.postings for one in self.store.segments])
        return self._words[1]

    def _sampled(self) -> np.ndarray:
        """(about `_SAMPLE`, H) float32 of length 1: vectors from all over the index as it is now."""
        if self._sample is None or self._sample[0] != self.store.state:
            rows = self.store.rows
            parts = self.store.by_segment(rows[:: max(len(rows) // _SAMPLE, 1)])
            self._sample = self.store.state, np.concatenate([segment.unit_vectors(some) for segment, some in parts])
        return self._sample[1]

    def _reranked(self, query: str, hits: list[Hit], name: str) -> list[Hit]:
        logits = self.reranker(name).scores(query, [joined(hit.title, hit.text) for hit in hits])
        scores = reranked(np.array([hit.score for hit in hits]), logits)
        order, best = np.argsort(-scores, kind="stable"), dict[str, Hit]()
        for place in order.tolist():
            hits[place].score = float(scores[place])
            best.setdefault(hits[place].id, hits[place])
        return list(best.values())

    def _append(self, documents: list[IndexedDocument], replaced: list[Place], progress: Progress | None) -> int:
        """Adds a segment and deletes what it replaces, at once; returns the number of passages."""
        made = self.store.manifest
        sizes = passage_sizes(made["passage_tokens"], made["overlap"], self.encoder)
        pairs = [(one.title, one.text) for one in documents]
        spans, read = cut_documents(self.encoder, pairs, sizes, self._analyzer.language)
        passages: list[dict[str, Any]] = [
            {"document": number, "start": start, "end": end, "text": documents[number].text[start:end]}
            for number, places in enumerate(spans)
            for start, end in places
        ]
        texts = [joined(documents[one["document"]].title, one["text"]) for one in passages]
        with Bar(total=len(read), desc="encoding", unit="passages", leave=False) if progress else nullcontext() as bar:
            vectors = self.encoder.passages(read, bar.update if bar else None)
        name = self.store.new_name("segment")
        write_segment(
            self.folder / name,
            [one.stored() for one in documents],
            passages,
            vectors,
            Postings.of(texts, self._analyzer),
            made["precision"],
        )
        self.store.commit([*self.store.without(replaced), {"name": name, "deleted": None}])
        return len(passages)


def _hit(segment: Segment, passage: dict[str, Any], score: float) -> Hit:
    place = {name: passage[name] for name in ("text", "start", "end")}
    return Hit(**segment.document(passage["document"]), **place, score=score, highlights=[])
