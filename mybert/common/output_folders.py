"""What a stage leaves on disk: made aside, and renamed when it is complete."""

import contextlib
import glob
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import filelock

from mybert.common.disk_space import report_full_disk
from mybert.common.errors import UserError
from mybert.common.manifest import MANIFEST, PARTIAL, read_manifest
from mybert.common.paths import is_there

logger = logging.getLogger(__name__)


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
    existing = {"overwrite": overwrite, "stage": stage, "inputs": inputs}
    refuse_existing(path, **existing)
    path = Path(path).resolve()  # a link stays, and what it leads to is replaced
    with exclusive_lock(path):
        refuse_existing(path, **existing)  # what another run may have made a moment ago
        folder = left
        if folder is None:
            _name_leftovers(path)
            folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.partial-", dir=path.parent))
            folder.chmod(0o755)
        try:
            with report_full_disk(path):
                yield folder
            replace_folder(folder, path)
        finally:
            if not keep(folder):
                shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def staged_file(path: str | Path, inputs: Iterable[str | Path] = (), *, overwrite: bool = True) -> Iterator[Path]:
    """Yields the path of a file to write, which takes the name `path` when the block ends well.

    It lies in a new folder that has room for others and is gone then. A manifest written there stays, as
    `PATH.manifest.json`; that of an older file goes with it.

    Args:
        inputs: what is read meanwhile; names that are no paths are passed over.
        overwrite: whether a file that a stage has made, which has such a manifest, may be replaced.

    Raises:
        UserError: `path` cannot be made, is an input or a file that may not be replaced, or the disk is full.
    """
    path = Path(path)
    _refuse_unreachable(path)
    # /dev/stdout is a link to a file where output is redirected: that name is not to be replaced
    if path.absolute().is_relative_to("/dev") or (path.exists() and not path.is_file()):
        raise UserError(f"output {path} is no file; name a file")
    given, path = path, path.resolve()  # a link stays, and what it leads to is replaced
    for name in inputs:
        if path.exists() and is_there(Path(name)) and path.samefile(name):
            raise UserError(f"output {given} is the input {name}; name another file")
    with exclusive_lock(path):
        if path.exists() and not overwrite:
            raise UserError(f"output {given} exists; add --overwrite to replace it or name another file")
        if path.exists() and not manifest_beside(path).is_file():
            raise UserError(f"--overwrite: {given} was not made by mybert; remove it yourself or name another file")
        _name_leftovers(path)
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.partial-", dir=path.parent))
        try:
            with report_full_disk(path):
                yield folder / path.name
            manifest = manifest_beside(path)
            manifest.unlink(missing_ok=True)  # it never stands beside a file that it is not about
            (folder / path.name).replace(path)
            if (folder / MANIFEST).exists():
                (folder / MANIFEST).replace(manifest)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def exclusive_lock(path: str | Path, process: int = 0) -> Iterator[None]:
    """Keeps other runs out of the folder `path`, which may not be there yet; a killed run keeps nobody out.

    Args:
        process: which one of the run this is; number 0 stands for all.

    Raises:
        UserError: another run is at work there.
    """
    if process:
        yield
        return
    path = Path(path).resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path.with_name(f".{path.name}.lock"), timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        raise UserError(f"another run is at work in {path}; wait for its end, or end it") from error
    except NotImplementedError:  # a file system without locks
        logger.warning("%s cannot be locked; see to it that no other run writes there", path)
    try:
        yield
    finally:
        if lock.is_locked:
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()


def manifest_beside(path: Path) -> Path:
    """The manifest of an output that is one file."""
    return path.with_name(f"{path.name}.{MANIFEST}")


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
    _refuse_unreachable(path)
    if path.exists() and not path.is_dir():
        raise UserError(f"output {path} is a file; name a folder")
    if os.path.ismount(path):
        raise UserError(f"output {path} is where a disk is mounted; name a folder in it")
    if is_vacant(path):
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


def is_vacant(path: str | Path) -> bool:
    """Whether there is no such folder, or nothing in it; a manifest that was not written to its end is nothing."""
    path = Path(path)
    return not path.exists() or (path.is_dir() and not any(item.name != PARTIAL for item in path.iterdir()))


def _refuse_unreachable(path: Path) -> None:
    above = next((parent for parent in path.absolute().parents if parent.exists()), path)
    if not above.is_dir():
        raise UserError(f"output {path} cannot be made: {above} is a file")
    if not os.access(above, os.W_OK | os.X_OK):
        raise UserError(f"output {path} cannot be made: no permission to write in {above}; name another folder")


def empty_folder(path: str | Path) -> None:
    """Makes the folder `path`, or removes what is in it but for its manifest; a link to a folder stays.

    The manifest is to be replaced: until then it says whose folder it is, should a kill come in between.
    """
    path = Path(path).resolve()
    path.mkdir(parents=True, exist_ok=True)
    for item in path.iterdir():
        if item.name == MANIFEST:
            continue
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
