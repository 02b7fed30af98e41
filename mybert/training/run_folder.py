"""The output folder of a training: checked before the run, locked during it."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from transformers import Trainer, TrainingArguments

from mybert.artifacts.manifest import read_manifest, write_manifest
from mybert.artifacts.run_fingerprint import RunFingerprint
from mybert.artifacts.staging import empty_folder, exclusive_lock, is_vacant, refuse_existing, report_full_disk
from mybert.common.errors import UserError
from mybert.training.arguments import bfloat16_is_faster, set_bf16
from mybert.training.log import start_trackers


class RunFolder:
    """
    Args:
        settings: those with `output`, `resume` and `overwrite`.
        stage: the command, such as `pretrain`.
        inputs: the inputs of the run, which must not be overwritten.

    Attributes:
        is_resumed: a run of this stage in the folder is continued; otherwise a new one starts.
        started: settings and arguments of the run to continue.
    """

    fingerprint: RunFingerprint

    def __init__(self, settings: Any, stage: str, inputs: Iterable[str | None]):
        self.path, self.stage, self.settings = Path(settings.output), stage, settings
        self.inputs = [name for name in inputs if name is not None]
        self.is_resumed = settings.resume and not is_vacant(self.path)
        self._manifest = read_manifest(self.path) if self.is_resumed else {}
        if self.is_resumed and self._manifest.get("stage") != stage:
            raise UserError(
                f"--resume: {self.path} has no run of `mybert {stage}` to continue; name the folder of one, or leave "
                "--resume out"
            )
        self.started: dict[str, Any] = self._manifest.get("choices", {})
        self.was_complete = self._manifest.get("complete") is True
        self._check_vacant()

    def keep_precision(self, arguments: TrainingArguments) -> None:
        """Lets a resumed run compute in the type that it was started with, also where another is faster."""
        started = self.started.get("bf16", arguments.bf16)
        if started == arguments.bf16 or arguments.fp16:
            return
        set_bf16(arguments, started)
        if arguments.process_index == 0:
            slow = started and not bfloat16_is_faster(arguments.device)
            print(
                f"--resume: training goes on in {'bfloat16' if started else 'float32'}, as it was started"
                + ("; a new run in float32 would be faster on this machine" if slow else "")
            )

    def check_same(self, settings: Any, *args: Any, **kwargs: Any) -> None:
        """Raises a UserError if the settings or inputs differ from those of the run to continue.

        Args:
            args, kwargs: as in `RunFingerprint.of`, after the settings.
        """
        self.settings, self.fingerprint = settings, RunFingerprint.of(settings, *args, **kwargs)
        if self.is_resumed:
            self.fingerprint.check_same(self._manifest)

    @contextlib.contextmanager
    def opened(self, trainer: Trainer | None = None, empty: Callable[[], None] | None = None) -> Iterator[None]:
        """Locks the folder, empties that of a new run, and writes a manifest that calls the run incomplete.

        Args:
            trainer: one whose trackers start in between: one without a login raises a UserError, and nothing is lost.
            empty: empties the folder (default: of everything but its manifest).
        """
        processes = PartialState()
        with exclusive_lock(self.path, processes.process_index), report_full_disk(self.path):
            self._check_vacant()
            if trainer is not None:
                start_trackers(trainer)
            processes.wait_for_everyone()  # all have seen the folder as it was
            if processes.is_main_process:
                if not self.is_resumed:
                    if self.settings.resume:
                        print(f"--resume: {self.path} has no run yet: a new one starts")
                    (empty or functools.partial(empty_folder, self.path))()
                self._write(counts={}, complete=False)
            processes.wait_for_everyone()
            yield
            processes.wait_for_everyone()

    def finish(self, *, counts: dict[str, Any], **facts: Any) -> None:
        """Writes the manifest of the finished run; see `write_manifest`."""
        self._write(counts=counts, complete=True, **facts)

    def _check_vacant(self) -> None:
        if not self.is_resumed:
            refuse_existing(self.path, overwrite=self.settings.overwrite, stage=self.stage, inputs=self.inputs)

    def _write(self, **facts: Any) -> None:
        settings = self.settings.of_training() if hasattr(self.settings, "of_training") else self.settings
        choices, inputs = self.fingerprint.choices, self.fingerprint.inputs
        facts["threads"] = torch.get_num_threads()  # log.jsonl has those of each part of the run
        write_manifest(self.path, self.stage, settings=settings, inputs=inputs, choices=choices, **facts)
