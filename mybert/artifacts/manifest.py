"""Manifests: the settings, inputs, versions and counts behind the output of a stage; and the names of its files."""

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Self

from mybert.common.errors import UserError, did_you_mean
from mybert.common.json_io import read_json_object
from mybert.common.machine import hardware

MANIFEST = "manifest.json"
RESULTS = "results.json"
HISTORY = "log.jsonl"
SAMPLES = "samples.jsonl"
ANALYSIS = "analysis.json"
PREDICTIONS = "predictions.jsonl"
CHANGES = "changes.jsonl"
REPORT = "report.html"
REPORTS = {"compare": "comparison.html"}
"""The report of a stage, if it is not `REPORT`."""
_ASIDE = ".{}.partial"  # temporary name while a file is written
PARTIAL = _ASIDE.format(MANIFEST)
_STAGES = 8  # at most that are followed, since the inputs of a folder may name it
_PACKAGES = ("mybert", "torch", "transformers", "tokenizers", "datasets", "numpy")


def write_manifest(
    folder: str | Path, stage: str, *, settings: Any, inputs: dict[str, Any], counts: dict[str, Any], **facts: Any
) -> None:
    """Writes `folder/manifest.json` and gives weight files the same permissions.

    Args:
        folder: the output folder of the stage.
        stage: the command that created the folder, for example `corpus`.
        settings: the settings dataclass, or a dictionary.
        inputs: path and fingerprint of each input.
        counts: sizes of the output, such as numbers of rows or tokens.
        facts: further entries, such as statistics or wall time.
    """
    manifest = {
        "stage": stage,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": dataclasses.asdict(settings) if not isinstance(settings, dict) else settings,
        "inputs": inputs,
        "counts": counts,
        **facts,
        "hardware": hardware(),
        "versions": versions(),
    }
    path = Path(folder) / MANIFEST
    write_json(path, manifest)
    for weights in Path(folder).rglob("*.safetensors"):
        weights.chmod(stat.S_IMODE(path.stat().st_mode))  # safetensors ignores the umask


def write_json(path: str | Path, value: Any) -> None:
    """Writes indented JSON atomically. NaN and infinity become null."""
    replace_text(Path(path), json_line(value, indent=2))


def replace_text(path: Path, text: str) -> None:
    """Writes a text file atomically: a process killed while writing, or a power failure, leaves the old file."""
    aside = path.with_name(_ASIDE.format(path.name))
    aside.write_text(text, encoding="utf-8", newline="\n")
    with aside.open("rb+") as file:
        os.fsync(file.fileno())
    aside.replace(path)


def json_line(value: Any, indent: int | None = None) -> str:
    """A JSON text and a newline. NaN and infinity become null, values of numpy those of Python, others texts."""
    return json.dumps(_finite(value), indent=indent, ensure_ascii=False, default=str, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if hasattr(value, "tolist"):
        return _finite(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """Reads the manifest of `folder`; an empty dictionary if there is none."""
    path = Path(folder) / MANIFEST
    return read_json_object(path, f"rebuild {folder}") if path.is_file() else {}


def inputs_of(manifest: dict[str, Any]) -> dict[str, dict[str, str]]:
    """The entries of the inputs by name, without malformed ones."""
    inputs = manifest.get("inputs")
    items = inputs.items() if isinstance(inputs, dict) else ()
    return {name: one for name, one in items if isinstance(one, dict) and isinstance(one.get("path"), str)}


def behind(
    manifest: dict[str, Any], follows: Callable[[str, dict[str, str]], bool], prefix: str = ""
) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """The manifests of the inputs of a stage, and those of their inputs.

    Args:
        follows: whether an input is one of them; of its name, for example `corpus`, or `model/corpus` for the corpus
            of the input `model`, and its entry in a manifest, which has a `path`.

    Yields:
        Name, folder and manifest of each.
    """
    for name, entry in inputs_of(manifest).items() if prefix.count("/") < _STAGES else ():
        known = f"{prefix}{name}"
        if follows(known, entry):
            folder = Path(entry["path"])
            input_manifest = read_manifest(folder)
            yield known, folder, input_manifest
            yield from behind(input_manifest, follows, f"{known}/")


def is_model(name: str) -> bool:
    """Whether an input is the model that a stage has read; `mybert merge` numbers its models."""
    last = name.rpartition("/")[2]
    return last in ("model", "checkpoint") or last.startswith("model-")


def fingerprint(path: str | Path) -> str:
    """SHA-256 of a file; for a folder, of the sorted (relative name, SHA-256) pairs of its files except manifests and
    reports."""
    path = Path(path)
    if path.is_file():
        with path.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    digest = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file() and p.name not in (MANIFEST, REPORT)):
        digest.update(f"{file.relative_to(path).as_posix()}\0{fingerprint(file)}\n".encode())
    return digest.hexdigest()


def files_of(name: str) -> list[Path]:
    """The file `name`, or the files of the folder, sorted."""
    path = Path(name)
    return [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())


def identity(name: str) -> dict[str, str]:
    """The manifest entry of an input: path and fingerprint, or the name alone for Hub repositories and pipes."""
    if isinstance(name, DataInMemory):
        digest = hashlib.sha256()
        for row in name.table:
            digest.update(json_line(row).encode())
        return {"path": name, "sha256": digest.hexdigest()}
    kept = next((part for part in (name, name.split(":")[0]) if Path(part).is_file() or Path(part).is_dir()), None)
    return {"path": name} | ({"sha256": fingerprint(kept)} if kept else {})  # NAME:CONFIG:SPLIT may be a folder's


def check_maker(made: Path, recorded: dict[str, str], model: str, remedy: str) -> None:
    """Raises a UserError if `model` is not the one that the manifest of `made` records; `remedy` makes it again."""
    if recorded.get("sha256") and not Path(model).exists():
        raise UserError(
            f"the model {model} of {made} does not exist; name the folder that it was moved to by "
            f"--model{did_you_mean(model)}"
        )
    if recorded and (identity(model).get("sha256") or model) != (recorded.get("sha256") or recorded.get("path")):
        raise UserError(
            f"{made} was made by {recorded['path']}, and {model} has other files; name that model, or {remedy}"
        )


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that affect results."""
    package_versions = {"python": platform.python_version()}
    return package_versions | _package_versions()


@functools.cache
def _package_versions() -> dict[str, str]:
    versions = {}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


class DataInMemory(str):
    """The name of rows in memory, for messages and manifests, such as `data in memory (train)`.

    Attributes:
        table: the rows, a `datasets.Dataset`.
    """

    PREFIX: ClassVar[str] = "data in memory"

    table: Any

    def __new__(cls, argument: str, table: Any) -> Self:
        made = super().__new__(cls, cls.PREFIX + f" ({argument})" * (argument != "data"))
        made.table = table
        return made

    def __deepcopy__(self, memo: dict[str, Any]) -> Self:
        return self
