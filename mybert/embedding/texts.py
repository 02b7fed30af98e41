"""The texts of all inputs, read once, checked before anything is computed, and kept on disk."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from mybert.common.errors import UserError
from mybert.corpus.text.sources import Document, find_sources, read_documents
from mybert.embedding.settings import EmbedSettings
from mybert.embedding.vectors import Embedder
from mybert.io.document_formats import Problems, are_json, json_lines
from mybert.io.files import STDIN, is_unicode, open_text

_SCHEMA = pa.schema({"text": pa.large_string(), "source": pa.string(), "line": pa.int64()})
_CHARACTERS_A_BATCH = 1 << 20


class StoredTexts(NamedTuple):
    """Texts in an Arrow file of record batches with the columns `text`, `source` and `line`.

    Attributes:
        path: of the file.
        count: how many there are.
        skipped: what was left out, by reason.
    """

    path: Path
    count: int
    skipped: Counter

    def batches(self) -> Iterator[pa.RecordBatch]:
        """About a million characters each, in input order."""
        with pa.memory_map(str(self.path)) as file, pa.ipc.open_file(file) as reader:
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)


def store_texts(settings: EmbedSettings, path: Path, embedder: Embedder) -> StoredTexts:
    """Writes the texts of `settings.inputs` to `path`.

    Args:
        embedder: what will read them. That the last of many is too long is known before the first is computed; the
            tokenizing for that takes a hundredth of the time that the model takes on a CPU.

    Raises:
        UserError: an input cannot be read, a text is too long, or there is no text.
    """
    problems, count = Problems(settings.errors, Counter()), 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, _SCHEMA) as writer:
        for texts in _batches(_read(settings, problems)):
            if settings.long_texts == "refuse":
                texts = _short_enough(texts, embedder, problems)
            if texts:
                rows = [text._asdict() for text in texts]
                writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=_SCHEMA))
                count += len(texts)
    if not count:
        left_out = ", ".join(f"{reason} ({number})" for reason, number in problems.skipped.items())
        raise UserError(f"the inputs hold no text (left out: {left_out or 'none'}); look at them and at --text-column")
    return StoredTexts(path, count, problems.skipped)


def _batches(texts: Iterator[Document]) -> Iterator[list[Document]]:
    batch, characters = [], 0
    for text in texts:
        batch.append(text)
        characters += len(text.text) + 1
        if characters >= _CHARACTERS_A_BATCH:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _short_enough(texts: list[Document], embedder: Embedder, problems: Problems) -> list[Document]:
    found = []
    for text, length in zip(texts, embedder.lengths([text.text for text in texts]), strict=True):
        if length <= embedder.max_length:
            found.append(text)
        else:
            detail = f"{length:,}; --long-texts window reads such texts in windows"
            problems.report(text.source, f"line {text.line}", f"more than {embedder.max_length} tokens", detail)
    return found


def _read(settings: EmbedSettings, problems: Problems) -> Iterator[Document]:
    for source in find_sources(settings.inputs):
        if source.kind == ".txt":
            yield from _read_lines(source.name, settings.text_column, problems)
        else:
            yield from read_documents(
                [source.name], text_column=settings.text_column, errors=settings.errors, skipped=problems.skipped
            )


def _read_lines(name: str, text_column: str, problems: Problems) -> Iterator[Document]:
    """Plain text, a text a line, blank lines left out and counted; standard input may also be JSON lines."""
    with open_text(name) as file:
        is_json, lines = are_json(file) if name == STDIN else (False, file)
        if is_json:
            yield from (Document(text, name, line) for text, line in json_lines(lines, name, text_column, problems))
            return
        for number, line in enumerate(lines, 1):
            if not is_unicode(line):
                problems.report(name, f"line {number}", "not UTF-8")
            elif line.strip():
                yield Document(line.removesuffix("\n"), name, number)
            else:
                problems.skipped["blank lines"] += 1
