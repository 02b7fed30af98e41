"""`mybert embed`: texts to a file of vectors."""

import contextlib
import itertools
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from mybert.artifacts.jobs import Parts, RowsJob
from mybert.artifacts.manifest import fingerprint, write_manifest
from mybert.common.progress import Bar
from mybert.common.quantities import with_unit
from mybert.common.tables import print_table
from mybert.embedding.embedder import Embedder
from mybert.embedding.settings import EmbedSettings
from mybert.embedding.vector_files import VECTOR, WRITERS, vector_column
from mybert.io.documents import Document, Problems
from mybert.io.record_formats import rename_taken
from mybert.io.stored_texts import StoredTexts, store_texts


def embed(settings: EmbedSettings) -> Path:
    """Writes a vector for each text, or for each word of each text, and prints a summary.

    Returns:
        The file, in input order. `.parquet` and `.jsonl` have the columns `text_number` (from 0), `source` and `line`
        (the place of the text), then `text`, or `word`, `start` and `end` (`text[start:end]` is the word), the other
        columns of the input row, and `vector`. `.npy` has the vectors alone, one row per text. The settings and
        inputs are in `OUTPUT.manifest.json`.

    Raises:
        UserError: the output exists or cannot be created, an input, a text or the checkpoint cannot be used, or the
            disk is full. Nothing is written then.
    """
    began = time.monotonic()
    output, job = Path(settings.output), RowsJob(settings)
    if job.finished:
        return output
    with job.working() as (path, scratch, parts):
        embedder = Embedder(settings)
        if embedder.modules.names and settings.pooling not in (None, "words"):
            replaced = ", ".join(embedder.modules.names)
            print(f"--pooling {settings.pooling} replaces the modules of {settings.model} ({replaced})")
        texts = store_texts(
            settings.inputs,
            scratch / "texts.arrow",
            text_column=settings.text_column,
            errors=settings.errors,
            usable=partial(_short_enough, embedder) if embedder.long_texts == "refuse" else None,
        )
        if settings.engine == "ray":
            count = sum(1 for _ in texts.batches())
            parts.compute_on_ray(partial(_VectorPart, job.elsewhere(), texts), count, "embedding")
        else:
            _compute_here(_VectorPart(settings, texts, embedder), texts, parts)
        _join(parts, texts.count, path)
        counts = parts.counts()
        write_manifest(
            path.parent,
            "embed",
            settings=settings,
            job=job.digest,
            inputs={"model": job.model, "texts": {"paths": settings.inputs, "sha256": fingerprint(texts.path)}},
            counts={
                "texts": texts.count,
                "vectors": counts["vectors"],
                "tokens": counts["tokens"],
                "truncated": counts["truncated"],
                "skipped": texts.skipped,
            },
        )
    print_table(
        f"Vectors of {'words' if settings.pooling == 'words' else 'texts'}",
        [
            ("texts", texts.count),
            *((f"skipped: {reason}", number) for reason, number in sorted(texts.skipped.items())),
            ("vectors", counts["vectors"]),
            ("dimensions", embedder.width),
            ("tokens", counts["tokens"]),
            *([("truncated texts", counts["truncated"])] if counts["truncated"] else []),
            ("file size", with_unit(output.stat().st_size, "B")),
            ("seconds", time.monotonic() - began),
        ],
    )
    return output


def _short_enough(embedder: Embedder, texts: list[Document], problems: Problems) -> list[Document]:
    """Reports texts that are too long before any vector is computed."""
    kept = []
    for text, length in zip(texts, embedder.lengths([text.text for text in texts]), strict=True):
        if length <= embedder.max_length:
            kept.append(text)
        else:
            detail = f"{length:,}; --long-texts window splits such texts into windows"
            problems.report(text.source, text.place, f"more than {embedder.max_length} tokens", detail)
    return kept


def _compute_here(compute: "_VectorPart", texts: StoredTexts, parts: Parts) -> None:
    """Computes the parts that are not finished. When it returns, no batch keeps the file of the texts open."""
    with Bar(total=texts.count, desc="embedding", unit="texts") as bar:
        for number, stored in enumerate(texts.batches()):
            if parts.is_finished(number):
                bar.update(len(stored))
            else:
                parts.compute(compute, number, bar.update)


class _VectorPart:
    """Writes the vectors of a batch of stored texts, with their columns, as an Arrow file."""

    def __init__(self, settings: EmbedSettings, texts: StoredTexts, embedder: Embedder | None = None):
        self._settings, self._texts, self._embedder = settings, texts, embedder or Embedder(settings)
        self._firsts = [0, *itertools.accumulate(map(len, texts.batches()))]  # text numbers

    def __call__(self, number: int, path: Path, progress: Callable[[int], object]) -> dict[str, int]:
        stored, first = self._texts.batch(number), self._firsts[number]
        tokens, truncated = self._embedder.tokens, self._embedder.truncated
        if self._settings.pooling == "words":
            places, columns, vectors = _word_rows(stored, self._embedder, progress)
        else:
            vectors = self._embedder.texts(stored["text"].to_pylist(), self._settings.pooling, progress)
            places, columns = np.arange(len(stored)), {"text": stored["text"]}
        columns = {
            "text_number": pa.array(first + places),
            "source": stored["source"].take(places),
            "line": stored["line"].take(places),
            **columns,
        }
        others = {name: column.take(places) for name, column in self._texts.other_columns(stored).items()}
        columns |= rename_taken(others, {*columns, VECTOR})
        batch = pa.record_batch(columns | {VECTOR: vector_column(vectors)})
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return {
            "vectors": len(batch),
            "tokens": self._embedder.tokens - tokens,
            "truncated": self._embedder.truncated - truncated,
        }


def _join(parts: Parts, count: int, path: Path) -> None:
    """Writes the batches of all parts into one file."""
    with contextlib.ExitStack() as stack:
        writer = None
        for part in parts.finished():
            with pa.memory_map(str(part)) as file, pa.ipc.open_file(file) as reader:
                batch = reader.get_batch(0)  # the only one
                if writer is None:
                    writer = stack.enter_context(WRITERS[path.suffix](path, batch.schema, count))
                writer(batch)


def _word_rows(
    stored: pa.RecordBatch, embedder: Embedder, progress: Callable[[int], object]
) -> tuple[np.ndarray, dict[str, pa.Array], np.ndarray]:
    """(R,) the text of each word; columns of the words; (R, H) vectors."""
    word_vectors = embedder.words(stored["text"].to_pylist(), progress)
    start, end = np.concatenate([words.spans for words in word_vectors]).T
    columns = {
        "word": pa.array([word for words in word_vectors for word in words.words], pa.string()),
        "start": pa.array(start),
        "end": pa.array(end),
    }
    places = np.repeat(np.arange(len(stored)), [len(words.words) for words in word_vectors])
    return places, columns, np.concatenate([words.vectors for words in word_vectors])
