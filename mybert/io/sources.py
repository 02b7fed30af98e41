"""Finding the files and data sets that the inputs of a command name."""

import contextlib
import glob
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mybert.artifacts.manifest import files_of, identity, read_manifest
from mybert.common.errors import UserError, did_you_mean, warn_once
from mybert.common.quantities import counted
from mybert.io.files import COMPRESSIONS, PLAIN_TEXT, STDIN, file_format
from mybert.io.record_formats import NOT_COMPRESSED, READERS

PYTHON_DOCS, README = "python-docs", "README.md"

_FORMATS = (".txt", *READERS)
_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?(:[^:]+){0,2}")


class Source(NamedTuple):
    """A file or data set. `kind` is a `file_format`, `dataset` (a saved folder), `hub` or `python-docs`."""

    name: str
    kind: str


def is_python_docs(name: str) -> bool:
    """Whether an input is `python-docs` or `python-docs:PACKAGE`."""
    return name.partition(":")[0] == PYTHON_DOCS


def find_sources(inputs: Sequence[str]) -> list[Source]:
    """Finds the files and data sets of `inputs`, in the given order, sorted within a folder or pattern, each once.

    Args:
        inputs: files, folders, glob patterns, saved `datasets` folders, Hub data sets (`owner/name[:config[:split]]`),
            `-` for standard input (plain text or JSON lines), `python-docs` for the documentation inside Python,
            `python-docs:PACKAGE` for that of an installed package.
    """
    return list(dict.fromkeys(source for name in inputs for source in _find(name)))


def check_texts(name: str) -> None:
    """Raises a UserError if `name` is no input that `find_sources` finds, or a data set that the Hub does not have."""
    for source in find_sources([name]):
        if source.kind == "hub":
            _check_data_set(name)


def check_rows(name: str) -> None:
    """Raises a UserError if `name` is neither a file or folder, `-`, nor a data set that the Hub has."""
    if name == STDIN or os.path.exists(name.split(":")[0]) or os.path.exists(name):
        return
    is_here = "/" not in name or os.path.isdir(name.split("/")[0])  # OWNER/NAME may have a suffix
    if (
        not _HUB_NAME.fullmatch(name)
        or file_format(name).kind in _FORMATS
        or (is_here and Path(name).suffix[1:].isalpha())
    ):
        raise UserError(f"{name}: there is no such file{did_you_mean(name)}")
    _check_data_set(name)


def _check_data_set(name: str) -> None:
    repository = name.split(":")[0]
    if not os.path.exists(repository):
        from mybert.common.hub import check_repository  # here, since its import takes half a second

        check_repository(repository, "dataset")


def describe_sources(sources: Sequence[Source]) -> dict[str, dict[str, Any]]:
    """Manifest entries of `sources`, named `input-0` and so on: `identity`, and the bytes of files on this disk."""
    inputs: dict[str, dict[str, Any]] = {
        f"input-{number}": identity(source.name) for number, source in enumerate(sources)
    }
    for entry, source in zip(inputs.values(), sources, strict=True):
        if files := files_of(source.name):
            entry["bytes"] = sum(file.stat().st_size for file in files)
    return inputs


def _find(name: str) -> list[Source]:
    if is_python_docs(name):
        return [Source(name, PYTHON_DOCS)]
    if name == STDIN:
        return [Source(name, ".txt")]
    path = Path(name)
    if path.is_dir():
        return _find_in_folder(path)
    kind = _known_kind(path)
    if path.exists():
        if kind is None:
            raise UserError(f"{name}: unknown file format; expected {_known()}")
        return [Source(name, kind)]
    if glob.has_magic(name):
        matches = [Path(match) for match in sorted(glob.glob(name, recursive=True))]
        if not matches:
            raise UserError(f"no file matches {name!r}")
        files = [match for match in matches if match.is_file()]
        folders = {match for match in matches if match.is_dir() and not _is_output(match)}
        # a shell would name the folders, and their files would be read
        _warn_of_folders(name, folders.difference(*(file.parents for file in files)))
        return _readable(files, name)
    if kind is None and _HUB_NAME.fullmatch(name):
        return [Source(name, "hub")]
    raise UserError(
        f"input {name} does not exist (expected a file, a folder, a pattern, a data set of the Hub, or - for texts on "
        f"standard input){did_you_mean(name)}"
    )


def _find_in_folder(folder: Path) -> list[Source]:
    if (folder / "dataset_info.json").is_file() or (folder / "dataset_dict.json").is_file():
        return [Source(str(folder), "dataset")]
    inside = sorted(path.relative_to(folder) for path in folder.rglob("*"))
    visible = [folder / path for path in inside if not any(part.startswith(".") for part in path.parts)]
    _warn_of_folders(str(folder), {path for path in visible if path.is_symlink() and path.is_dir()})
    return _readable([path for path in visible if path.is_file()], str(folder))


def _warn_of_folders(name: str, folders: set[Path]) -> None:
    """Warns that the files in `folders` are not read: a pattern matches them, or they are links, maybe in a circle."""
    if folders:
        names = ", ".join(map(str, sorted(folders)))
        warn_once("%s: skipped folders: %s; name them to read their files", name, names)


def _readable(paths: Sequence[Path], name: str) -> list[Source]:
    """The files of known formats that no command of MyBERT has written; a warning names the others."""
    ours = sorted(filter(_is_output, {folder for path in paths for folder in path.parents}))
    if ours:
        warn_once("%s: skipped output folders of mybert: %s", name, ", ".join(map(str, ours)))
        paths = [path for path in paths if not set(ours) & set(path.parents)]
    readable = [Source(str(path), kind) for path in paths if (kind := _known_kind(path))]
    if not readable:
        raise UserError(f"{name} holds no file of a known format ({_known()})")
    if any(source.kind != ".txt" for source in readable):  # then a README.md is about the data
        readable = [source for source in readable if Path(source.name).name != README]
    if len(readable) < len(paths):
        read = {source.name for source in readable}
        others = sorted({path.suffix or path.name for path in paths if str(path) not in read})
        skipped = counted(len(paths) - len(readable), "file")
        warn_once("%s: skipped %s of other formats (%s)", name, skipped, ", ".join(others))
    return readable


def _is_output(folder: Path) -> bool:
    """Whether `folder` is an output of MyBERT, such as a tokenizer with its vocab.txt."""
    with contextlib.suppress(UserError):  # a manifest.json of another program
        return "stage" in read_manifest(folder)
    return False


def _known_kind(path: Path) -> str | None:
    """The format of a file name, with or without `.gz` or `.zst`; None if unknown."""
    kind, compression = file_format(path)
    return kind if kind in _FORMATS and not (compression and kind in NOT_COMPRESSED) else None


def _known() -> str:
    compressed = ", ".join(kind for kind in (*PLAIN_TEXT, *READERS) if kind not in NOT_COMPRESSED)
    others = ", ".join(NOT_COMPRESSED)
    return f"{compressed} (also with {' or '.join(COMPRESSIONS)}), {others}"
