"""The temporary folder of a run, kept for `--resume` after an interruption."""

import contextlib
import functools
import glob
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import filelock

from mybert.artifacts.manifest import MANIFEST, files_of, identity, write_json
from mybert.artifacts.run_fingerprint import RunFingerprint
from mybert.artifacts.staging import acquire, manifest_beside, staged_folder
from mybert.common.errors import UserError
from mybert.common.json_io import parse_json, read_json_object

logger = logging.getLogger(__name__)

_SCRATCH, _JOB, _LOCK = ".scratch", "job.json", "lock"
LOCK_SECONDS = 10  # processes of a killed build end within a few seconds


def finished_run(settings: Any, job: RunFingerprint) -> dict[str, Any] | None:
    """The manifest of the output if `--resume` finds there what the same job has made; None if a run is to compute."""
    if not settings.resume:
        return None
    output = Path(settings.output).resolve()
    file = output / MANIFEST if output.is_dir() else manifest_beside(output)
    manifest = read_json_object(file, f"rebuild {output}") if output.exists() and file.is_file() else {}
    if "job" not in manifest:
        return None
    if manifest["job"] != job.digest:
        raise UserError(
            f"--resume: {settings.output} is finished, with other settings or inputs; name another output, or replace "
            "this one by --overwrite in place of --resume"
        )
    print(f"the run in {settings.output} is finished: nothing is left to compute")
    return manifest


def work_folder(
    settings: Any,
    job: RunFingerprint,
    stage: str,
    is_worth: Callable[[Path], bool],
    close: Callable[[], object] = lambda: None,
) -> contextlib.AbstractContextManager[tuple[Path, Path]]:
    """The folder that becomes the output of a stage, and the scratch folder in it; see `working`."""
    return working(settings, job, functools.partial(staged_folder, stage=stage), is_worth, close)


@contextlib.contextmanager
def working(
    settings: Any,
    job: RunFingerprint,
    staged: Callable[..., Any],
    is_worth: Callable[[Path], bool],
    close: Callable[[], object] = lambda: None,
) -> Iterator[tuple[Path, Path]]:
    """Yields the temporary path of `staged`, and the scratch folder, which is removed at the end.

    With `resume`, the folder of an unfinished run of the same job is used again. After an interruption it is kept if
    the scratch folder `is_worth` it; after a kill it is always kept. `close` closes files in the scratch folder.
    """
    with contextlib.ExitStack() as opened:  # closed before the folder is renamed or removed, as Windows requires
        left = unfinished_folder(settings.output, job, opened) if settings.resume else None
        staging = staged(
            settings.output,
            overwrite=settings.overwrite,
            left=left,
            keep=lambda folder: settings.resume and is_worth(folder / _SCRATCH),
        )
        with staging as path, opened:
            scratch = (path if path.is_dir() else path.parent) / _SCRATCH
            opened.callback(close)
            if left is None:
                scratch.mkdir()
                _lock(scratch, opened)
                write_json(scratch / _JOB, job.as_dict())
            yield path, scratch
            opened.close()
            shutil.rmtree(scratch)


def describe_rows_job(settings: Any) -> RunFingerprint:
    """Everything that determines the output of `settings.model` for `settings.inputs`."""
    inputs = {"model": identity(settings.model), "inputs": [[name, sizes_and_times(name)] for name in settings.inputs]}
    return RunFingerprint.of(settings, inputs, decisive={"format": Path(settings.output).suffix})


def sizes_and_times(name: str) -> list[list[int]]:
    """Size and time of each file of an input, which is not read."""
    return [[file.stat().st_size, file.stat().st_mtime_ns] for file in files_of(name)]


def unfinished_folder(output: str | Path, job: RunFingerprint, opened: contextlib.ExitStack) -> Path | None:
    """The folder of an unfinished run of the same job, locked until `opened` is closed; None if there is none."""
    output = Path(output).resolve()
    for folder in sorted(output.parent.glob(f".{glob.escape(output.name)}.partial-*")):
        try:
            found = parse_json((folder / _SCRATCH / _JOB).read_bytes())
        except (OSError, ValueError):
            continue
        if not isinstance(found, dict):
            continue
        if different := job.differences(found):
            logger.warning("--resume: %s is of a run with other %s; starting anew", folder, " and ".join(different))
            continue
        try:
            _lock(folder / _SCRATCH, opened)
        except filelock.Timeout as error:
            raise UserError(f"--resume: another run is working in {folder}; wait for it or stop it") from error
        logger.warning("--resume: continuing in %s", folder)
        return folder
    return None


def _lock(scratch: Path, opened: contextlib.ExitStack) -> None:
    """Locks the scratch folder until `opened` is closed; not on a file system without locks."""
    lock = filelock.FileLock(scratch / _LOCK, timeout=LOCK_SECONDS)
    acquire(lock)
    opened.callback(lock.release)
