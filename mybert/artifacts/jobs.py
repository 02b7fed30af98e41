"""Jobs that `--resume` continues: a temporary folder that outlives an interruption, and output computed in parts.

Other machines and later runs compute only the parts that are missing. Trainings resume otherwise, from checkpoints:
`mybert/training/exact_resume.py`.
"""

import contextlib
import functools
import glob
import logging
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from mybert.artifacts.manifest import MANIFEST, files_of, identity, write_json
from mybert.artifacts.run_fingerprint import RunFingerprint
from mybert.artifacts.staging import manifest_beside, staged_file, staged_folder
from mybert.common.errors import UserError
from mybert.common.json_io import parse_json, read_json_object
from mybert.common.progress import Bar

logger = logging.getLogger(__name__)

_SCRATCH, _JOB = ".scratch", "job.json"
LOCK_SECONDS = 10  # processes of a killed build end within a few seconds
Progress = Callable[[int], object]
Compute = Callable[[int, Path, Progress], dict[str, int]]
"""Writes the file of a part; its number, its path and the progress of the work are given. Returns counts."""


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


@contextlib.contextmanager
def work_folder(
    settings: Any,
    job: RunFingerprint,
    is_worth: Callable[[Path], bool],
    staged: Callable[..., Any] = staged_folder,
    **options: Any,
) -> Iterator[tuple[Path, Path]]:
    """Yields the temporary path of `staged`, and a scratch folder in or beside it, which is removed at the end.

    With `resume`, the folder of an unfinished run of the same job is used again. After an interruption it is kept if
    the scratch folder `is_worth` it; after a kill it is always kept. Files in the scratch folder are closed before the
    end of the block, since Windows removes no open file.

    Args:
        options: of `staged`.
    """
    staging = staged(
        settings.output,
        overwrite=settings.overwrite,
        find_left=lambda: unfinished_folder(settings.output, job) if settings.resume else None,
        keep=lambda folder: settings.resume and is_worth(folder / _SCRATCH),
        seconds=LOCK_SECONDS if settings.resume else 0,
        **options,
    )
    with staging as path:
        scratch = (path if path.is_dir() else path.parent) / _SCRATCH
        if not scratch.exists():
            scratch.mkdir()
            write_json(scratch / _JOB, job.as_dict())
        yield path, scratch
        shutil.rmtree(scratch)


def describe_rows_job(settings: Any) -> RunFingerprint:
    """Everything that determines the output of `settings.model` for `settings.inputs`."""
    inputs = {"model": identity(settings.model), "inputs": [[name, sizes_and_times(name)] for name in settings.inputs]}
    return RunFingerprint.of(settings, inputs, decisive={"format": Path(settings.output).suffix})


def sizes_and_times(name: str) -> list[list[int]]:
    """Size and time of each file of an input, which is not read."""
    return [[file.stat().st_size, file.stat().st_mtime_ns] for file in files_of(name)]


def unfinished_folder(output: str | Path, job: RunFingerprint) -> Path | None:
    """The folder of an unfinished run of the same job; None if there is none."""
    output = Path(output).resolve()
    for folder in sorted(output.parent.glob(f".{glob.escape(output.name)}.partial-*")):
        try:
            stored_job = parse_json((folder / _SCRATCH / _JOB).read_bytes())
        except (OSError, ValueError):
            continue
        if not isinstance(stored_job, dict):
            continue
        if different := job.differences(stored_job):
            logger.warning("--resume: %s is of a run with other %s; starting anew", folder, " and ".join(different))
            continue
        logger.warning("--resume: continuing in %s", folder)
        return folder
    return None


class Parts:
    """The files of the parts in a folder.

    The counts of a part are written after its file and mark it as finished.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.part"

    def _counts_path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.json"

    def is_finished(self, number: int) -> bool:
        return self._counts_path(number).is_file()

    def compute(self, compute: Compute, number: int, progress: Progress) -> None:
        """Computes a part. Another process may compute the same part at the same time."""
        aside = self.folder / f".{number:06d}-{os.getpid()}-{uuid.uuid4().hex}"
        try:
            counts = compute(number, aside, progress)
            aside.replace(self.path(number))
        finally:
            aside.unlink(missing_ok=True)
        write_json(self._counts_path(number), counts)

    def compute_on_ray(self, make: Callable[[], Compute], count: int, name: str) -> None:
        """Computes the unfinished parts of `count` on a Ray cluster; each actor calls `make` once."""
        from mybert.artifacts.engines import map_on_actors  # which few runs need

        if missing := [number for number in range(count) if not self.is_finished(number)]:
            done = map_on_actors(functools.partial(self._computing, make), missing)
            for _ in Bar(done, total=len(missing), desc=name, unit="parts"):
                pass

    def _computing(self, make: Callable[[], Compute]) -> Callable[[int], None]:
        """A function that computes the part of a number."""
        compute = make()
        return lambda number: self.compute(compute, number, lambda _: None)

    def finished(self) -> Iterator[Path]:
        """The files in order, up to the first that is missing."""
        number = 0
        while self.is_finished(number):
            yield self.path(number)
            number += 1

    def counts(self) -> Counter[str]:
        """The sums of the counts of `finished`."""
        total: Counter[str] = Counter()
        for number, _ in enumerate(self.finished()):
            total.update(read_json_object(self._counts_path(number), "start again without --resume"))
        return total


class RowsJob:
    """The computation of a file from rows, in parts.

    Args:
        settings: of a command with the settings `model`, `inputs`, `output`, `overwrite`, `engine` and `resume`.

    Attributes:
        model: its identity, for the manifest.
        digest: of everything that determines the output, for the manifest.
        finished: with `resume`, the manifest of the output if this job has made it; else None.
    """

    def __init__(self, settings: Any):
        self.settings, self._description = settings, describe_rows_job(settings)
        self.model = self._description.inputs["model"]
        self.digest = self._description.digest
        self.finished = finished_run(settings, self._description)

    @contextlib.contextmanager
    def working(self) -> Iterator[tuple[Path, Path, Parts]]:
        """The temporary path of the output, the scratch folder beside it, and the parts, which `resume` keeps."""
        folder = work_folder(
            self.settings,
            self._description,
            lambda scratch: any(scratch.glob("parts/*.json")),
            staged_file,
            inputs=self.settings.inputs,
        )
        with folder as (path, scratch):
            yield path, scratch, Parts(scratch / "parts")

    def elsewhere(self) -> Any:
        """The settings with an absolute model path, for processes in other folders."""
        path = Path(self.settings.model)
        return replace(self.settings, model=str(path.resolve())) if path.exists() else self.settings
