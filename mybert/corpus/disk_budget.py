"""How much disk a build takes, said before its work begins and refused if it is not there."""

import contextlib
import shutil
import zlib
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow.parquet
import zstandard

from mybert.common.errors import UserError
from mybert.common.quantities import with_unit
from mybert.corpus.examples.text_encoding import PlainTokenizer
from mybert.corpus.settings import CorpusSettings
from mybert.corpus.text.document_store import StoredDocuments, read_stored
from mybert.corpus.text.sources import Document, Source, read_documents
from mybert.io.files import decompressed, file_format, open_text

_SAMPLE_BYTES = 1 << 24
SAMPLE_DOCUMENTS, SAMPLE_CHARACTERS = 100, 500
TOKENS_A_BYTE = 0.25  # where there is no sample
_SPECIAL = ("python-docs", "hub")
BYTES_A_TOKEN = 5  # input_ids and token_type_ids
BYTES_A_ROW = 9  # two offsets, the label
_BYTES_AN_EXAMPLE = 3 * BYTES_A_TOKEN + BYTES_A_ROW  # with its special tokens
_SHARE_FILLED = 0.8  # of the maximal length
_RANDOM_SEGMENTS = 1.5  # tokens of pairs over tokens of documents: a random B is text used once more


def expect_room(sources: Sequence[Source], tokenizer: PlainTokenizer, settings: CorpusSettings) -> None:
    """Prints what the build takes, from the size of its files and a sample of the first of each kind.

    Standard input and data sets of the Hub are left out: their size is known only when they have been read.

    Raises:
        UserError: the disk has less.
    """
    of_kind: dict[tuple, list[Source]] = {}
    for source in sources:
        if Path(source.name).exists() and source.kind not in _SPECIAL:
            of_kind.setdefault((source.kind, file_format(source.name).compression), []).append(source)
    size, texts = 0, []
    for first, *others in of_kind.values():
        sample = _sample(first, settings)
        texts += [document.text for document in sample]
        share = _text_share(first, sample) * _expansion(Path(first.name))
        size += sum(int(_stored_bytes(source, settings) * share) for source in (first, *others))
    if size:
        _require("the corpus", size, examples_bytes(size, texts, tokenizer, settings), settings)


def require_room(
    stored: StoredDocuments, documents: np.ndarray, tokenizer: PlainTokenizer, settings: CorpusSettings
) -> None:
    """The same for the examples alone, once all text is on disk.

    Args:
        documents: indices of the stored documents that are used.

    Raises:
        UserError: the disk has less.
    """
    texts = read_stored(stored.folder, documents[:: max(1, len(documents) // SAMPLE_DOCUMENTS)])
    size = int(stored.size * (stored.lengths[documents].sum() / stored.lengths.sum()))
    _require("the examples", 0, examples_bytes(size, texts, tokenizer, settings), settings)


def examples_bytes(size: int, texts: Sequence[str], tokenizer: PlainTokenizer, settings: CorpusSettings) -> int:
    """About what the examples of `size` bytes of text take.

    Args:
        texts: a sample of it.
    """
    sample = [text[:SAMPLE_CHARACTERS] for text in texts]
    tokens = sum(map(len, tokenizer.backend.encode_batch_fast(sample, add_special_tokens=False)))
    share = tokens / sum(len(text.encode()) for text in sample) if any(sample) else TOKENS_A_BYTE
    bytes_a_token = BYTES_A_TOKEN + _BYTES_AN_EXAMPLE / (_SHARE_FILLED * settings.max_length)
    used = settings.dupe_factor * (_RANDOM_SEGMENTS if settings.nsp else 1)
    return int(size * share * used * bytes_a_token)


def _stored_bytes(source: Source, settings: CorpusSettings) -> int:
    """Bytes of a source on the disk; of a table only its column."""
    path = Path(source.name)
    if source.kind == "dataset":
        return sum(file.stat().st_size for file in path.rglob("*.arrow"))
    return _column_bytes(path, settings.text_column) if source.kind == ".parquet" else path.stat().st_size


def _column_bytes(path: Path, column: str) -> int:
    try:
        groups = pyarrow.parquet.read_metadata(path)
    except (pyarrow.ArrowInvalid, OSError):
        return 0  # reading will say what is wrong
    chunks = (groups.row_group(g).column(c) for g in range(groups.num_row_groups) for c in range(groups.num_columns))
    return sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema == column)


def _expansion(path: Path) -> float:
    """How many bytes a byte of a compressed file becomes, from its beginning; 1 for others."""
    if not file_format(path).compression:
        return 1.0
    with path.open("rb") as file:
        try:
            return len(decompressed(file, path).read(_SAMPLE_BYTES)) / max(1, file.tell())
        except (EOFError, OSError, zlib.error, zstandard.ZstdError):
            return 1.0  # reading will say what is wrong


def _sample(source: Source, settings: CorpusSettings) -> list[Document]:
    """The first documents of a source, unless it is read as a whole anyway."""
    if source.kind == ".json" or settings.document_per_file:
        return []
    with contextlib.suppress(UserError):  # reading will say what is wrong
        return list(islice(read_documents([source.name], text_column=settings.text_column), SAMPLE_DOCUMENTS))
    return []


def _text_share(source: Source, sample: list[Document]) -> float:
    """How much of a file of lines is text of documents, and not other columns."""
    if source.kind not in (".jsonl", ".csv", ".tsv") or len(sample) < 2:
        return 1.0
    with open_text(source.name) as file:
        lines = sum(len(line.encode(errors="surrogateescape")) for line in islice(file, sample[-1].line - 1))
    return min(1.0, sum(len(document.text.encode()) for document in sample[:-1]) / max(1, lines))


def _require(what: str, documents: int, examples: int, settings: CorpusSettings) -> None:
    """Examples stand on the disk twice for a while: as shards, and as the finished data set."""
    needed = documents + 2 * examples
    folder = next(parent for parent in Path(settings.output).absolute().parents if parent.is_dir())
    free = shutil.disk_usage(folder).free
    building, after, left = (with_unit(size, "B") for size in (needed, examples, free))
    said = f"{what}: about {building} of disk while building, {after} after; {left} free"
    if needed > free:
        raise UserError(f"no room for {said}; free some space or choose an --output elsewhere")
    print(said)
