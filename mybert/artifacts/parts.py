"""Output computed in parts, each in a file, so that `--resume` and other machines compute only missing parts."""

import contextlib
import functools
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from mybert.artifacts.manifest import write_json
from mybert.artifacts.resume import describe_rows_job, finished_run, working
from mybert.artifacts.staging import staged_file
from mybert.common.json_io import read_json_object
from mybert.common.progress import Bar

Progress = Callable[[int], object]
Compute = Callable[[int, Path, Progress], dict[str, int]]
"""Writes the file of a part; its number, its path and the progress of the work are given. Returns counts."""


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
        staged = functools.partial(staged_file, inputs=self.settings.inputs)
        with working(self.settings, self._description, staged, lambda kept: any(kept.glob("parts/*.json"))) as opened:
            path, scratch = opened
            yield path, scratch, Parts(scratch / "parts")

    def elsewhere(self) -> Any:
        """The settings with an absolute model path, for processes in other folders."""
        path = Path(self.settings.model)
        return replace(self.settings, model=str(path.resolve())) if path.exists() else self.settings
