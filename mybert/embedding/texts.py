"""The texts of all inputs, read once, checked before anything is computed, and kept on disk."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from mybert.common.errors import UserError
from mybert.corpus.files import is_unicode, open_text
from mybert.corpus.formats import Problems
from mybert.corpus.sources import Document, find_sources, read_documents
from mybert.embedding.settings import EmbedSettings

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


def store_texts(settings: EmbedSettings, path: Path) -> StoredTexts:
    """Writes the texts of `settings.inputs` to `path`.

    Raises:
        UserError: an input cannot be read, or there is no text.
    """
    skipped: Counter = Counter()
    count, texts, characters = 0, [], 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, _SCHEMA) as writer:

        def write() -> None:
            rows = [text._asdict() for text in texts]
            writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=_SCHEMA))
            texts.clear()

        for text in _read(settings, skipped):
            texts.append(text)
            count += 1
            characters += len(text.text) + 1
            if characters >= _CHARACTERS_A_BATCH:
                write()
                characters = 0
        if texts:
            write()
    if not count:
        raise UserError("the inputs hold no text; look at them and at --text-column")
    return StoredTexts(path, count, skipped)


def _read(settings: EmbedSettings, skipped: Counter) -> Iterator[Document]:
    problems = Problems(settings.errors, skipped)
    for source in find_sources(settings.inputs):
        if source.kind == ".txt":
            yield from _read_lines(source.name, problems)
        else:
            yield from read_documents(
                [source.name], text_column=settings.text_column, errors=settings.errors, skipped=skipped
            )


def _read_lines(name: str, problems: Problems) -> Iterator[Document]:
    """Plain text, a text a line; blank lines are left out and counted."""
    with open_text(name) as file:
        for number, line in enumerate(file, 1):
            if not is_unicode(line):
                problems.report(name, f"line {number}", "not UTF-8")
            elif line.strip():
                yield Document(line.removesuffix("\n"), name, number)
            else:
                problems.skipped["blank lines"] += 1
