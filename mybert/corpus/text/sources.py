"""Inputs as a user names them → a stream of documents."""

import contextlib
import glob
import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from mybert.common.errors import UserError
from mybert.common.manifest import identity, read_manifest
from mybert.corpus.text.python_docs import PYTHON_DOCS, python_documents
from mybert.io.document_formats import FORMATS, Problems, read_dataset, read_stdin
from mybert.io.files import COMPRESSIONS, STDIN, file_format

logger = logging.getLogger(__name__)

_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?(:[^:]+){0,2}")


class Document(NamedTuple):
    """One document.

    Attributes:
        text: as it stands in the source, line ends as LF.
        source: the file or data set it comes from.
        line: where it begins there, from 1: a line, or a row where there are no lines.
        others: the other columns of its row.
    """

    text: str
    source: str
    line: int
    others: dict


class Source(NamedTuple):
    """One input, found: `kind` is a file format, `dataset` (a saved folder), `hub` or `python-docs`."""

    name: str
    kind: str

    def files(self) -> list[Path]:
        """Those of it that are on this disk, sorted."""
        path = Path(self.name)
        return [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())


def read_documents(
    inputs: Sequence[str],
    *,
    text_column: str = "text",
    errors: str = "strict",
    document_per_file: bool = False,
    skipped: Counter | None = None,
    other_columns: bool = False,
) -> Iterator[Document]:
    """Streams the documents of `inputs`, in an order that depends on nothing but the inputs' names and contents.

    Args:
        inputs: files, folders, glob patterns, saved `datasets` folders, Hub data sets (`owner/name[:config[:split]]`),
            `-` for standard input (plain text or JSON lines), `python-docs` for the documentation inside Python.
        text_column: where the text is in JSON, CSV, TSV, Parquet and data sets.
        errors: `strict` raises at the first bad line; `skip` leaves it out and counts it.
        document_per_file: a `.txt` file is one document; otherwise blank lines stand between documents.
        skipped: counts what was left out, by reason; files without a document as `empty files`.
        other_columns: also read the columns beside the text.

    Raises:
        UserError: an input is missing or of an unknown kind; with `strict`, a line is not what it should be.
    """
    problems = Problems(errors, Counter() if skipped is None else skipped, other_columns)
    for source in find_sources(inputs):
        empty = True
        for text, line, others in _read(source, text_column, document_per_file, problems):
            empty = False
            if "\r" in text:
                text = text.replace("\r\n", "\n").replace("\r", "\n")
            yield Document(text, source.name, line, others)
        if empty:
            problems.skipped["empty files"] += 1


def find_sources(inputs: Sequence[str]) -> list[Source]:
    """The files and data sets that `inputs` name: in the order given, sorted within a folder or pattern, each once.

    Raises:
        UserError: nothing is there, or its kind is unknown.
    """
    found = [source for name in inputs for source in _find(name)]
    return list(dict.fromkeys(found))


def describe_sources(sources: Sequence[Source]) -> dict[str, dict]:
    """What a manifest says of `sources`: as `input-0` and so on their `identity`, and bytes of those on this disk."""
    inputs = {f"input-{number}": identity(source.name) for number, source in enumerate(sources)}
    for entry, source in zip(inputs.values(), sources, strict=True):
        if files := source.files():
            entry["bytes"] = sum(file.stat().st_size for file in files)
    return inputs


def _read(source: Source, text_column: str, document_per_file: bool, problems: Problems):
    if source.kind == PYTHON_DOCS:
        return ((text, number, {}) for text, number in python_documents())
    if source.kind in ("dataset", "hub"):
        return read_dataset(source.name, source.kind == "hub", text_column, problems)
    if source.name == STDIN:
        return read_stdin(text_column, document_per_file, problems)
    option = document_per_file if source.kind == ".txt" else text_column
    return FORMATS[source.kind](source.name, option, problems)


def _find(name: str) -> list[Source]:
    if name == PYTHON_DOCS:
        return [Source(name, PYTHON_DOCS)]
    if name == STDIN:
        return [Source(name, ".txt")]
    path = Path(name)
    if path.is_dir():
        return _find_in_folder(path)
    if path.exists():
        kind = _known_kind(path)
        if kind is None:
            raise UserError(f"{name}: unknown kind of file; expected one of {_known()}")
        return [Source(name, kind)]
    if glob.has_magic(name):
        matches = sorted(glob.glob(name, recursive=True))
        if not matches:
            raise UserError(f"no file matches {name!r}")
        return _keep_readable([Path(match) for match in matches if Path(match).is_file()], name)
    if _known_kind(path) is None and _HUB_NAME.fullmatch(name):
        return [Source(name, "hub")]
    raise UserError(f"input {name} does not exist (expected a file, a folder, a pattern, or a data set of the Hub)")


def _find_in_folder(folder: Path) -> list[Source]:
    if (folder / "dataset_info.json").is_file() or (folder / "dataset_dict.json").is_file():
        return [Source(str(folder), "dataset")]
    inside = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    visible = sorted(path for path in inside if not any(part.startswith(".") for part in path.parts))
    return _keep_readable([folder / path for path in visible], str(folder))


def _keep_readable(paths: Sequence[Path], name: str) -> list[Source]:
    ours = sorted(filter(_is_made_by_a_stage, {folder for path in paths for folder in path.parents}))
    if ours:
        logger.warning("%s: made by mybert and left out: %s", name, ", ".join(map(str, ours)))
        paths = [path for path in paths if not set(ours) & set(path.parents)]
    readable = [Source(str(path), kind) for path in paths if (kind := _known_kind(path))]
    if not readable:
        raise UserError(f"{name} holds no file of a known kind ({_known()})")
    if len(readable) < len(paths):
        others = sorted({path.suffix or path.name for path in paths if not _known_kind(path)})
        logger.warning(
            "%s: %d files of other kinds left out (%s)", name, len(paths) - len(readable), ", ".join(others)
        )
    return readable


def _is_made_by_a_stage(folder: Path) -> bool:
    """A tokenizer's vocab.txt, say, is no document; a file given by its own name is read wherever it stands."""
    with contextlib.suppress(UserError):  # somebody else's manifest
        return "stage" in read_manifest(folder)
    return False


def _known_kind(path: Path) -> str | None:
    """The key of FORMATS for a file name, with or without `.gz` or `.zst`; None if there is none."""
    kind, compression = file_format(path)
    return kind if kind in FORMATS and not (compression and kind == ".parquet") else None


def _known() -> str:
    return f"{', '.join(FORMATS)}, all but .parquet also with {' or '.join(COMPRESSIONS)}"
