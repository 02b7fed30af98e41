"""What a stage leaves on disk: a folder that is complete or absent, with a manifest that says how it was made."""

import contextlib
import dataclasses
import errno
import glob
import hashlib
import importlib.metadata
import json
import logging
import os
import platform
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mybert.common.errors import UserError
from mybert.common.foreign import cause, is_there, parse_json, short
from mybert.common.machine import commit, hardware

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PACKAGES = ("mybert", "torch", "transformers", "tokenizers", "datasets", "numpy")


@contextlib.contextmanager
def staged_folder(
    path: str | Path,
    *,
    overwrite: bool = False,
    stage: str | None = None,
    inputs: Iterable[str | Path] = (),
    left: Path | None = None,
    keep: Callable[[Path], bool] = lambda folder: False,
) -> Iterator[Path]:
    """Yields a new folder beside `path` that takes its name when the block ends well, and vanishes when it does not.

    Args:
        overwrite, stage, inputs: see `refuse_existing`.
        left: what an earlier run has left, used in place of a new folder.
        keep: whether the folder stays when the block does not end well.

    Raises:
        UserError: `refuse_existing` refuses `path`, or the disk is full.
    """
    refuse_existing(path, overwrite=overwrite, stage=stage, inputs=inputs)
    path = Path(path).resolve()  # a link stays, and what it leads to is replaced
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = left
    if folder is None:
        _name_leftovers(path)
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.partial-", dir=path.parent))
        folder.chmod(0o755)
    try:
        with explain_full_disk(path):
            yield folder
        replace_folder(folder, path)
    finally:
        if not keep(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _name_leftovers(path: Path) -> None:
    """Warns of folders that a killed run has left beside `path`; they stay, since that run may not have ended yet."""
    for kind in ("partial", "old"):
        for folder in sorted(path.parent.glob(f".{glob.escape(path.name)}.{kind}-*")):
            logger.warning(
                "%s was left by a run that was killed; remove it, unless that run is still going on", folder
            )


def refuse_existing(
    path: str | Path, *, overwrite: bool, stage: str | None = None, inputs: Iterable[str | Path] = ()
) -> None:
    """Says whether a stage may write to `path`: a slip of the keyboard must not cost anybody's files.

    Args:
        overwrite: whether a folder that the stage itself has made before may be replaced.
        stage: which that is; None: any of ours.
        inputs: what the stage reads; names that are no paths are passed over.

    Raises:
        UserError: `path` cannot be made; it is a file, or a folder with something in it that may not be replaced; or
            replacing it would remove an input.
    """
    path = Path(path)
    above = next((parent for parent in path.absolute().parents if parent.exists()), path)
    if not above.is_dir():
        raise UserError(f"output {path} cannot be made: {above} is a file")
    if not os.access(above, os.W_OK | os.X_OK):
        raise UserError(f"output {path} cannot be made: no permission to write in {above}; name another folder")
    if path.exists() and not path.is_dir():
        raise UserError(f"output {path} is a file; name a folder")
    if os.path.ismount(path):
        raise UserError(f"output {path} is where a disk is mounted; name a folder in it")
    if not path.is_dir() or not any(path.iterdir()):
        return
    inside = [name for name in map(Path, inputs) if is_there(name) and name.resolve().is_relative_to(path.resolve())]
    if inside:
        raise UserError(f"output {path} holds the input {inside[0]}; name another folder")
    manifest = read_manifest(path)
    if not overwrite and manifest.get("complete") is False:
        raise UserError(
            f"output {path} holds an unfinished run: add --resume to go on with it, --overwrite to replace it"
        )
    if not overwrite:
        raise UserError(f"output {path} exists; add --overwrite to replace it or name another folder")
    if "stage" not in manifest or stage not in (None, manifest["stage"]):
        maker = f"`mybert {stage}`" if stage else "mybert"
        raise UserError(f"--overwrite: {path} was not made by {maker}; remove it yourself or name another folder")


def empty_folder(path: str | Path) -> None:
    """Makes the folder `path`, or removes what is in it; a link to a folder stays."""
    path = Path(path).resolve()
    path.mkdir(parents=True, exist_ok=True)
    for item in path.iterdir():
        if item.is_dir() and not item.is_symlink():
            shutil.rmtree(item)
        else:
            item.unlink()


def replace_folder(new: Path, path: Path) -> None:
    """Gives the folder `new` the name `path`; an old folder of that name is gone only after the new one stands."""
    if path.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old-", dir=path.parent))
        path.rename(old / path.name)
        new.rename(path)
        shutil.rmtree(old)
    else:
        new.rename(path)


@contextlib.contextmanager
def explain_full_disk(
    path: str | Path,
    needed: int | None = None,
    remedy: str = "free some space or choose an --output elsewhere; no half-written folder looks like a complete one",
) -> Iterator[None]:
    """Turns "no space left" and "file too large" into a UserError that says what to do.

    Args:
        path: what is written.
        needed: bytes that it takes, if known.
        remedy: what to do.
    """
    try:
        yield
    except Exception as error:
        number = _full_disk(error)
        if number is None:
            raise
        free = shutil.disk_usage(Path(path).absolute().parent).free / 2**30
        needs = "" if needed is None else f"it takes about {needed / 2**30:.3g} GiB; "
        raise UserError(
            f"no room to write {path} ({os.strerror(number)}; {needs}{free:.3g} GiB free on that disk): {remedy}"
        ) from error


def _full_disk(error: Exception) -> int | None:
    """The operating system's number for a full disk, if that is what `error` is about."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno if error.errno in _FULL_DISK else None
    if "inline_container" in str(error):  # torch.save tells no reason; only writing fails there
        return errno.ENOSPC
    found = re.search(r"\bos error (\d+)", str(error))  # tokenizers and safetensors, which are written in Rust
    return int(found[1]) if found and int(found[1]) in _FULL_DISK else None


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
    """Writes `value` as indented JSON, aside first and renamed when complete."""
    path = Path(path)
    aside = path.with_name(f".{path.name}.partial")
    aside.write_text(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n", encoding="utf-8")
    aside.replace(path)


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
    """What a manifest says of an input: its path and fingerprint; its name alone if it is on the Hub."""
    return {"path": name} | ({"sha256": fingerprint(name)} if Path(name).exists() else {})


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that a result may depend on."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
