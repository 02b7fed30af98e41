"""`mybert embed`: texts to a file of vectors."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from tqdm.auto import tqdm

from mybert.common.manifest import fingerprint, identity, write_manifest
from mybert.common.memory_allocator import keep_freed_memory
from mybert.common.output_folders import staged_file
from mybert.common.quantities import with_unit
from mybert.common.tables import print_table
from mybert.embedding.embedder import Embedder
from mybert.embedding.settings import EmbedSettings
from mybert.embedding.texts import StoredTexts, store_texts
from mybert.embedding.vector_files import VECTOR, WRITERS, rename_taken, vector_column


def main(settings: EmbedSettings) -> None:
    keep_freed_memory()
    print(f"vectors: {embed(settings)}")


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
    output = Path(settings.output)
    with staged_file(output, settings.inputs, overwrite=settings.overwrite) as path:
        embedder = Embedder(settings)
        texts = store_texts(settings, path.with_name("texts.arrow"), embedder)
        rows = _write(settings, embedder, texts, path)
        write_manifest(
            path.parent,
            "embed",
            settings=settings,
            inputs={
                "model": identity(settings.model),
                "texts": {"paths": settings.inputs, "sha256": fingerprint(texts.path)},
            },
            counts={"texts": texts.count, "vectors": rows, "tokens": embedder.tokens, "skipped": texts.skipped},
        )
    print_table(
        f"Vectors of {'words' if settings.vectors == 'words' else 'texts'}",
        [
            ("texts", texts.count),
            *((f"skipped: {reason}", number) for reason, number in sorted(texts.skipped.items())),
            ("vectors", rows),
            ("dimensions", embedder.width),
            ("tokens", embedder.tokens),
            ("file size", with_unit(output.stat().st_size, "B")),
            ("seconds", time.monotonic() - began),
        ],
    )
    return output


def _write(settings: EmbedSettings, embedder: Embedder, texts: StoredTexts, path: Path) -> int:
    """Returns the number of vectors."""
    compute = _word_rows if settings.vectors == "words" else _text_rows
    rows, first, writer = 0, 0, None
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(
            tqdm(total=texts.count, desc="embedding", unit=" texts", unit_scale=True, disable=None)
        )
        for stored in texts.batches():
            places, columns, vectors = compute(stored, embedder, settings, bar.update)
            columns = {
                "text_number": pa.array(first + places),
                "source": stored["source"].take(places),
                "line": stored["line"].take(places),
                **columns,
            }
            others = {name: column.take(places) for name, column in texts.other_columns(stored).items()}
            columns |= rename_taken(others, {*columns, VECTOR})
            batch = pa.record_batch(columns | {VECTOR: vector_column(vectors)})
            if writer is None:
                writer = stack.enter_context(contextlib.closing(WRITERS[path.suffix](path, batch.schema, texts.count)))
            writer.write(batch)
            first += len(stored)
            rows += len(batch)
    return rows


def _text_rows(stored: pa.RecordBatch, embedder: Embedder, settings: EmbedSettings, progress: Callable):
    """
    Returns:
        (R,) the text of each vector; columns of the texts; (R, H) vectors.
    """
    vectors = embedder.texts(stored["text"].to_pylist(), settings.vectors, progress)
    return np.arange(len(stored)), {"text": stored["text"]}, vectors


def _word_rows(stored: pa.RecordBatch, embedder: Embedder, settings: EmbedSettings, progress: Callable):
    """As `_text_rows`, for words."""
    found = embedder.words(stored["text"].to_pylist(), progress)
    start, end = np.concatenate([words.spans for words in found]).T
    columns = {
        "word": pa.array([word for words in found for word in words.words], pa.string()),
        "start": pa.array(start),
        "end": pa.array(end),
    }
    places = np.repeat(np.arange(len(stored)), [len(words.words) for words in found])
    return places, columns, np.concatenate([words.vectors for words in found])
