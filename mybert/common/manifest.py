"""The manifest of a stage's folder: how it was made, of what, and with what."""

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
import math
import platform
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mybert.common.error_messages import cause, short
from mybert.common.errors import UserError
from mybert.common.json_io import parse_json
from mybert.common.machine import commit, hardware

MANIFEST = "manifest.json"
_ASIDE = ".{}.partial"  # the name of a file while it is written
PARTIAL = _ASIDE.format(MANIFEST)
_PACKAGES = ("mybert", "torch", "transformers", "tokenizers", "datasets", "numpy")


def write_manifest(folder: str | Path, stage: str, *, settings: Any, inputs: dict, counts: dict, **facts) -> None:
    """Writes `folder/manifest.json`, and lets others read the weights that lie there.

    Args:
        stage: the command that made the folder, for example `corpus`.
        settings: the settings dataclass (or a dictionary) it was called with.
        inputs: for each input its path and fingerprint.
        counts: what was made, in numbers.
        facts: anything else worth keeping, such as statistics or wall time.
    """
    manifest = {
        "stage": stage,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": dataclasses.asdict(settings) if dataclasses.is_dataclass(settings) else settings,
        "inputs": inputs,
        "counts": counts,
        **facts,
        "hardware": hardware(),
        **({"commit": commit()} if commit() else {}),
        "versions": versions(),
    }
    path = Path(folder) / MANIFEST
    write_json(path, manifest)
    for weights in Path(folder).rglob("*.safetensors"):
        weights.chmod(stat.S_IMODE(path.stat().st_mode))  # safetensors writes for the owner alone, whatever the umask


def write_json(path: str | Path, value: Any) -> None:
    """Writes `value` as indented JSON, null for numbers that it has none of, aside first and renamed when complete."""
    path = Path(path)
    aside = path.with_name(_ASIDE.format(path.name))
    text = json.dumps(_finite(value), indent=2, ensure_ascii=False, default=str, allow_nan=False)
    aside.write_text(text + "\n", encoding="utf-8")
    aside.replace(path)


def json_line(value: Any) -> str:
    """`value` as a line of JSON, null for numbers that it has none of."""
    settings = {"ensure_ascii": False, "default": str, "allow_nan": False}
    try:
        return json.dumps(value, **settings) + "\n"
    except ValueError:
        return json.dumps(_finite(value), **settings) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_manifest(folder: str | Path) -> dict:
    """The manifest of `folder`, or an empty dictionary when there is none.

    Raises:
        UserError: the file is there but is no JSON object.
    """
    path = Path(folder) / MANIFEST
    if not path.is_file():
        return {}
    try:
        found = parse_json(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path} is damaged ({cause(error)}); rebuild {folder}") from error
    if not isinstance(found, dict):
        raise UserError(f"{path} is damaged (expected a JSON object, found {short(found)}); rebuild {folder}")
    return found


def fingerprint(path: str | Path) -> str:
    """SHA-256 of a file's bytes, or of a folder's sorted (relative name, content hash) pairs; manifests left out."""
    path = Path(path)
    if path.is_file():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    digest = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file() and p.name != MANIFEST):
        digest.update(f"{file.relative_to(path).as_posix()}\0{fingerprint(file)}\n".encode())
    return digest.hexdigest()


def identity(name: str) -> dict[str, str]:
    """What a manifest says of an input: its path and fingerprint; its name alone if it is on the Hub, or a pipe."""
    kept = Path(name).is_file() or Path(name).is_dir()
    return {"path": name} | ({"sha256": fingerprint(name)} if kept else {})


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that a result may depend on."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
