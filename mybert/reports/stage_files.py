"""The files of a finished or running stage, read for reports and findings."""

import contextlib
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from mybert.artifacts.manifest import ANALYSIS, HISTORY, MANIFEST, PREDICTIONS, RESULTS, SAMPLES, read_manifest
from mybert.common.errors import UserError, did_you_mean
from mybert.common.json_io import parse_json, read_json_object


@dataclass(frozen=True)
class StageFiles:
    """What a stage has written into its folder.

    Attributes:
        stage: the command, such as `pretrain`.
        manifest, results: the contents of manifest.json and results.json; empty if there is none.
        log: entries of log.jsonl.
        samples: entries of samples.jsonl: predictions of the same inputs at every evaluation.
    """

    folder: Path
    stage: str
    manifest: dict[str, Any]
    results: dict[str, Any]
    log: list[dict[str, Any]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)

    @property
    def task(self) -> str:
        """The task of a fine-tuning or an evaluation; empty if it is not recorded."""
        return self.results.get("task") or ""

    @property
    def config(self) -> dict[str, Any]:
        """config.json of the model; empty if the stage has not written it yet."""
        return _read_object(self.folder / "config.json")

    @functools.cached_property
    def training(self) -> list[dict[str, Any]]:
        """Log entries of training steps with a finite loss."""
        return [entry for entry in self.log if is_number(entry.get("loss"))]

    def logged(self, name: str) -> list[float]:
        """The finite values of a measure in the log of training steps."""
        return [entry[name] for entry in self.training if is_number(entry.get(name))]

    @functools.cached_property
    def evaluations(self) -> list[dict[str, Any]]:
        """Log entries of evaluations, the last one of each step."""
        by_step = {entry.get("step"): entry for entry in self.log if any(name.startswith("eval_") for name in entry)}
        return list(by_step.values())

    @property
    def scores(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Of a training on masked tokens: the metrics on held-out text, and those of constant predictions."""
        return self.results.get("metrics") or {}, self.results.get("constant_baselines") or {}

    @property
    def parts(self) -> dict[str, dict[str, Any]]:
        """Results by evaluated data: of `finetune` test and validation, of `evaluate` one without a name (of retrieval
        none)."""
        if self.stage == "evaluate":
            return {"": self.results} if self.results and self.task != "retrieval" else {}
        return {name: self.results[name] for name in ("test", "validation") if self.results.get(name)}

    @property
    def is_regression(self) -> bool:
        return self._has_metric("mse", "pearson", "spearman")

    @property
    def has_several_labels(self) -> bool:
        """Whether a row may have any number of labels."""
        return self._has_metric("f1_micro")

    def _has_metric(self, *names: str) -> bool:
        """Whether a fine-tuning or an evaluation was scored by one of the metrics."""
        scored = [self.results.get("metric"), *(name for part in self.parts.values() for name in part["metrics"])]
        return any(name in scored for name in names)

    def analysis(self, part: str = "") -> dict[str, Any]:
        """analysis.json of an evaluation; empty if there is none."""
        return _read_object(self.folder / part / ANALYSIS)

    def predictions(self, part: str = "") -> Iterator[dict[str, Any]]:
        """The lines of predictions.jsonl of an evaluation."""
        return _read_lines(self.folder / part / PREDICTIONS)

    def lines(self, name: str) -> Iterator[dict[str, Any]]:
        """The objects of another file of JSON lines."""
        return _read_lines(self.folder / name)


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def read_stage(folder: str | Path) -> StageFiles:
    """Reads the files of a stage; raises a UserError if MyBERT has not written them, or one is damaged."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; name the output folder of a stage{did_you_mean(str(folder))}")
    manifest = read_manifest(folder)
    if not isinstance(manifest.get("stage"), str):
        inside = sorted(str(path.parent) for path in folder.glob(f"*/{MANIFEST}"))
        such = f", such as {' or '.join(inside[:3])}" if inside else ""
        raise UserError(f"{folder} has no {MANIFEST}; name the output folder of a MyBERT command{such}")
    return StageFiles(
        folder,
        manifest["stage"],
        manifest,
        _read_object(folder / RESULTS),
        list(_read_lines(folder / HISTORY)),
        list(_read_lines(folder / SAMPLES)),
    )


@contextlib.contextmanager
def explain_missing(files: StageFiles) -> Iterator[None]:
    """Turns the error of an entry that is missing or of another type into a `UserError`."""
    try:
        yield
    except UserError:
        raise
    except (LookupError, TypeError, AttributeError, ArithmeticError, ValueError) as error:
        raise UserError(
            f"{files.folder}: a file lacks an entry or has one of another type ({type(error).__name__}: {error}); "
            f"repeat `mybert {files.stage}`"
        ) from error


def _read_object(path: Path) -> dict[str, Any]:
    return read_json_object(path, "repeat the command that wrote it") if path.is_file() else {}


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file of JSON lines. A last line without a line end may be half-written and is then left out."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                entry = parse_json(line)
            except ValueError as error:
                if not line.endswith(b"\n"):
                    return
                raise UserError(
                    f"{path}, line {number}: not JSON ({error}); repeat the command that wrote it"
                ) from error
            if isinstance(entry, dict):
                yield entry
