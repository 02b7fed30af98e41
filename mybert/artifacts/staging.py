"""Output files and folders, written to a temporary name and renamed when complete; a full disk as a one-line error."""

import contextlib
import errno
import functools
import glob
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import filelock

from mybert.artifacts.manifest import MANIFEST, PARTIAL, read_manifest
from mybert.common.errors import UserError
from mybert.common.quantities import with_unit

logger = logging.getLogger(__name__)

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
"""Errors of file systems without locks, such as some NFS mounts."""


@contextlib.contextmanager
def staged_folder(
    path: str | Path,
    *,
    overwrite: bool = False,
    stage: str | None = None,
    inputs: Iterable[str | Path] = (),
    **resuming: Any,
) -> Iterator[Path]:
    """Yields a temporary folder that is renamed to `path` on success and removed on failure.

    Args:
        path: the output folder.
        overwrite, stage, inputs: see `refuse_existing`.
        resuming: see `_staging`.
    """
    refuse = functools.partial(refuse_existing, path, overwrite=overwrite, stage=stage, inputs=inputs)
    with _staging(path, refuse, **resuming) as (folder, path):
        yield folder
        replace_folder(folder, path)


@contextlib.contextmanager
def staged_file(
    path: str | Path,
    inputs: Iterable[str | Path] = (),
    *,
    overwrite: bool = True,
    **resuming: Any,
) -> Iterator[Path]:
    """Yields a temporary path that is renamed to `path` on success.

    The temporary file is in a new folder, which may hold other temporary files and is removed at the end. A
    manifest.json written there becomes `PATH.manifest.json` and replaces that of an older file.

    Args:
        path: the output file.
        inputs: the inputs being read; names that are not paths are ignored.
        overwrite: whether to replace an existing file that has a manifest.
        resuming: see `_staging`.
    """
    refuse = functools.partial(refuse_existing_file, path, inputs, overwrite=overwrite)
    with _staging(path, refuse, **resuming) as (folder, path):
        yield folder / path.name
        manifest_beside(path).unlink(missing_ok=True)  # a manifest must never describe another file
        (folder / path.name).replace(path)
        if (folder / MANIFEST).exists():
            (folder / MANIFEST).replace(manifest_beside(path))


@contextlib.contextmanager
def _staging(
    path: str | Path,
    refuse: Callable[[], None],
    *,
    find_left: Callable[[], Path | None] = lambda: None,
    keep: Callable[[Path], bool] = lambda folder: False,
    seconds: float = 0,
) -> Iterator[tuple[Path, Path]]:
    """Yields a temporary folder beside an output, and the path of the output.

    Args:
        refuse: raises if the output must not be written.
        find_left: returns the temporary folder of an interrupted run, to be used instead of a new one.
        keep: called with the folder on failure; returns whether to keep it.
        seconds: how long to wait for another run that writes the output.
    """
    refuse()
    path = Path(path).resolve()  # follow a symbolic link: its target is replaced
    with exclusive_lock(path, seconds=seconds):
        refuse()  # another run may have created it meanwhile
        folder, done = find_left() or temporary_folder(path), False
        try:
            with report_full_disk(path):
                yield folder, path
            done = True
        finally:
            if done or not keep(folder):
                shutil.rmtree(folder, ignore_errors=True)


def refuse_existing_file(path: str | Path, inputs: Iterable[str | Path] = (), *, overwrite: bool) -> None:
    """Raises if a stage must not write the file `path`; see `staged_file`."""
    given, path = Path(path), Path(path).resolve()
    _check_parent(given)
    # /dev/stdout may be a link to a regular file, which must not be replaced
    if given.absolute().is_relative_to("/dev") or (path.exists() and not path.is_file()):
        raise UserError(f"output {given} is not a file; name a file")
    for name in inputs:
        if path.exists() and os.path.exists(name) and path.samefile(name):
            raise UserError(f"output {given} is the input {name}; name another file")
    if path.exists() and not overwrite:
        raise UserError(f"output {given} exists; add --overwrite to replace it or name another file")
    if path.exists() and not manifest_beside(path).is_file():
        raise UserError(f"--overwrite: {given} was not made by mybert; remove it yourself or name another file")


@contextlib.contextmanager
def exclusive_lock(path: str | Path, process: int = 0, seconds: float = 0) -> Iterator[None]:
    """Locks `path`, which need not exist, against other runs. The lock of a killed run is released.

    Folders above `path` are created; those that stay empty are removed again. Only the process of rank 0 takes the
    lock; it waits for another run for a number of seconds.
    """
    if process:
        yield
        return
    path = Path(path).resolve()
    missing = [folder for folder in path.parents if not folder.exists()]  # the deepest first
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path.with_name(f".{path.name}.lock"), timeout=seconds)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        raise UserError(f"another run is writing to {path}; wait until it ends, or stop it") from error
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        logger.warning("%s cannot be locked on this file system; let no other run write there", path)
    try:
        yield
    finally:
        with contextlib.suppress(PermissionError):  # on Windows, where filelock removes it
            Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()
        with contextlib.suppress(OSError):  # not empty
            for folder in missing:
                folder.rmdir()


def manifest_beside(path: Path) -> Path:
    """The path of the manifest of an output file."""
    return path.with_name(f"{path.name}.{MANIFEST}")


def temporary_folder(path: Path) -> Path:
    """A new folder beside `path`. Warns about those of killed runs, which are kept: such a run may still be active."""
    for kind in ("partial", "old"):
        for folder in sorted(path.parent.glob(f".{glob.escape(path.name)}.{kind}-*")):
            logger.warning("%s was left by a killed run; remove it unless that run is still active", folder)
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.partial-", dir=path.parent))
    folder.chmod(0o755)
    return folder


def refuse_existing(
    path: str | Path, *, overwrite: bool, stage: str | None = None, inputs: Iterable[str | Path] = ()
) -> None:
    """Raises if a stage must not write to the folder `path`, so that a typing error never deletes files.

    Args:
        path: the output folder.
        overwrite: whether to replace a folder that the same stage created.
        stage: the name of the stage; None for any MyBERT stage.
        inputs: the inputs of the stage; names that are not paths are ignored.
    """
    path = Path(path)
    _check_parent(path)
    if path.exists() and not path.is_dir():
        raise UserError(f"output {path} is a file; name a folder")
    if os.path.ismount(path):
        raise UserError(f"output {path} is a mount point; name a folder in it")
    if is_vacant(path):
        return
    for name in inputs:
        if os.path.exists(name) and Path(name).resolve().is_relative_to(path.resolve()):
            raise UserError(f"output {path} holds the input {name}; name another folder")
    manifest = read_manifest(path)
    unfinished = manifest.get("complete") is False
    if not manifest and (path / "tokenizer" / MANIFEST).is_file():  # of a quickstart
        unfinished = not read_manifest(path / "model").get("complete")
    if not overwrite and unfinished:
        raise UserError(f"output {path} holds an unfinished run; add --resume to continue it or --overwrite")
    if not overwrite:
        raise UserError(f"output {path} exists; add --overwrite to replace it or name another folder")
    if "stage" not in manifest or stage not in (None, manifest["stage"]):
        maker = f"`mybert {stage}`" if stage else "mybert"
        raise UserError(f"--overwrite: {path} was not made by {maker}; remove it yourself or name another folder")


def is_vacant(path: str | Path) -> bool:
    """Whether `path` does not exist or is an empty folder, not counting an incomplete manifest."""
    path = Path(path)
    return not path.exists() or (path.is_dir() and not any(item.name != PARTIAL for item in path.iterdir()))


def _check_parent(path: Path) -> None:
    above = next((parent for parent in path.absolute().parents if parent.exists()), path)
    if not above.is_dir():
        raise UserError(f"output {path} cannot be created: {above} is a file")
    if not os.access(above, os.W_OK | os.X_OK):
        raise UserError(f"output {path} cannot be created: no permission to write in {above}; name another folder")


def empty_folder(path: str | Path, *kept: str) -> None:
    """Creates the folder `path`, or empties it except for its manifest and the items of the names `kept`.

    The caller replaces the manifest. Until then it identifies the folder if the process is killed.
    """
    path = Path(path).resolve()
    path.mkdir(parents=True, exist_ok=True)
    for item in path.iterdir():
        if item.is_dir() and not item.is_symlink() and item.name not in kept:
            shutil.rmtree(item)
        elif item.name not in (MANIFEST, *kept):
            item.unlink()


def replace_folder(new: Path, path: Path) -> None:
    """Renames the folder `new` to `path`. An existing folder is removed only after the rename."""
    if not path.exists():
        new.rename(path)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old-", dir=path.parent))
    path.rename(old / path.name)
    new.rename(path)
    shutil.rmtree(old)


FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers for a full disk, an exhausted quota and a file size limit."""

_REMEDY = "free some space or choose another --output; incomplete output is never taken for complete"


@contextlib.contextmanager
def report_full_disk(path: str | Path, needed: int | None = None, remedy: str = _REMEDY) -> Iterator[None]:
    """Converts "no space left" and "file too large" errors into a UserError.

    `path` is the file being written, `needed` its size in bytes if known; the message ends with `remedy`.
    """
    try:
        yield
    except Exception as error:
        number = _error_number(error)
        if number not in FULL_DISK:
            raise
        free = shutil.disk_usage(Path(path).absolute().parent).free
        needs = "" if needed is None else f"it takes about {with_unit(needed, 'B')}; "
        state = f"{os.strerror(number)}; {needs}{with_unit(free, 'B')} free on that disk"
        raise UserError(f"no room to write {path} ({state}): {remedy}") from error


def _error_number(error: Exception) -> int | None:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    if "inline_container" in str(error):  # torch.save gives no errno; only writing fails there
        return errno.ENOSPC
    match = re.search(r"\bos error (\d+)", str(error))  # tokenizers and safetensors (Rust)
    return int(match[1]) if match else None
