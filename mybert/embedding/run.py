"""`mybert embed`: texts → a file of vectors."""

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
from mybert.embedding.outputs import VECTOR, WRITERS, vector_column
from mybert.embedding.settings import EmbedSettings
from mybert.embedding.texts import StoredTexts, store_texts
from mybert.embedding.vectors import Embedder


def main(settings: EmbedSettings) -> None:
    keep_freed_memory()
    print(f"the vectors are in {embed(settings)}")


def embed(settings: EmbedSettings) -> Path:
    """Writes a vector for each text, or for each word of each text, and prints a summary.

    Returns:
        The file, in input order. `.parquet` and `.jsonl` have the columns `text_number` (from 0), `source` and `line`
        (where the text stands), then `text`, or `word`, `start` and `end` (`text[start:end]` is the word), and
        `vector`; `.npy` has the vectors alone, a row for each text. `OUTPUT.manifest.json` says how it was made.

    Raises:
        UserError: the output exists or cannot be made, an input, its text or the checkpoint cannot be used, or the
            disk is full; nothing was written then.
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
                "checkpoint": identity(settings.checkpoint),
                "texts": {"paths": settings.inputs, "sha256": fingerprint(texts.path)},
            },
            counts={"texts": texts.count, "vectors": rows, "tokens": embedder.tokens, "left_out": texts.skipped},
        )
    _summary(settings, embedder, texts, rows, time.monotonic() - began)
    return output


def _write(settings: EmbedSettings, embedder: Embedder, texts: StoredTexts, path: Path) -> int:
    """Returns the number of vectors."""
    rows_of = _word_rows if settings.vectors == "words" else _text_rows
    rows, first, writer = 0, 0, None
    with contextlib.ExitStack() as stack:
        bar = tqdm(total=texts.count, desc="embedding", unit=" texts", unit_scale=True, disable=None)
        stack.enter_context(bar)
        for stored in texts.batches():
            batch = rows_of(stored, first, embedder, settings, bar.update)
            if writer is None:
                writer = stack.enter_context(contextlib.closing(WRITERS[path.suffix](path, batch.schema, texts.count)))
            writer.write(batch)
            first += len(stored)
            rows += len(batch)
    return rows


def _text_rows(
    stored: pa.RecordBatch, first: int, embedder: Embedder, settings: EmbedSettings, progress: Callable
) -> pa.RecordBatch:
    vectors = embedder.texts(stored["text"].to_pylist(), settings.vectors, progress)
    columns = {
        "text_number": pa.array(np.arange(first, first + len(stored))),
        "source": stored["source"],
        "line": stored["line"],
        "text": stored["text"],
        VECTOR: vector_column(vectors),
    }
    return pa.record_batch(columns)


def _word_rows(
    stored: pa.RecordBatch, first: int, embedder: Embedder, settings: EmbedSettings, progress: Callable
) -> pa.RecordBatch:
    found = embedder.words(stored["text"].to_pylist(), progress)
    text = np.repeat(np.arange(len(stored)), [len(words.words) for words in found])
    start, end = np.concatenate([words.spans for words in found]).T
    columns = {
        "text_number": pa.array(first + text),
        "source": stored["source"].take(pa.array(text)),
        "line": stored["line"].take(pa.array(text)),
        "word": pa.array([word for words in found for word in words.words], pa.string()),
        "start": pa.array(start),
        "end": pa.array(end),
        VECTOR: vector_column(np.concatenate([words.vectors for words in found])),
    }
    return pa.record_batch(columns)


def _summary(settings: EmbedSettings, embedder: Embedder, texts: StoredTexts, rows: int, seconds: float) -> None:
    print_table(
        f"Vectors of {'words' if settings.vectors == 'words' else 'texts'}",
        [
            ("texts", texts.count),
            *((f"left out: {reason}", number) for reason, number in sorted(texts.skipped.items())),
            ("vectors", rows),
            ("numbers in a vector", embedder.width),
            ("tokens read by the model", embedder.tokens),
            ("size of the file", with_unit(Path(settings.output).stat().st_size, "B")),
            ("seconds in all", seconds),
        ],
    )
