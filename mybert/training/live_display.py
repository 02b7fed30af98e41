"""Live display of a training on a terminal: progress, losses, speed and time left, below the log lines."""

import itertools
import math
import sys
from typing import Any

from rich.console import Console
from rich.progress import Progress
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from mybert.common.progress import bars_on, sparkline
from mybert.common.tables import format_cell
from mybert.common.terminal import line_width

_OTHER_COLUMNS = 66
"""Width of the columns other than the details, with large numbers."""


class LiveDisplay(TrainerCallback):
    """Shows one bar for the training and one for an evaluation (default: on standard error)."""

    def __init__(self, console: Console | None = None):
        self.console = console or Console(stderr=True, width=line_width(sys.stderr))
        self._progress: Progress | None = None
        self._evaluating: Any = None

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if not state.is_world_process_zero:
            return
        self._losses: list[float] = []
        self._details: dict[str, str] = {}
        self._progress = bars_on(self.console)
        self._training = self._progress.add_task("training", total=state.max_steps, unit="steps", details="")
        self._progress.update(self._training, completed=state.global_step)
        self._progress.start()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self._progress is not None:
            self._progress.update(self._training, completed=state.global_step, total=state.max_steps)

    def on_prediction_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        eval_dataloader: Any = None,
        **kwargs: Any,
    ) -> None:
        if self._progress is None:
            return
        if self._evaluating is None:
            total = len(eval_dataloader) if hasattr(eval_dataloader, "__len__") else None
            self._evaluating = self._progress.add_task("evaluating", total=total, unit="batches", details="")
        self._progress.advance(self._evaluating)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self._progress is not None and self._evaluating is not None:
            self._progress.remove_task(self._evaluating)
            self._evaluating = None

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        if self._progress is None or not logs:
            return
        loss = logs.get("loss")
        if isinstance(loss, float) and math.isfinite(loss):
            self._losses.append(loss)
        for name, title in (("loss", "loss"), ("eval_loss", "held-out"), ("tokens_per_second", "tokens/s")):
            if name in logs:
                self._details[title] = f"{title} {format_cell(logs[name])}"
        details = "  ".join(self._fitting([*self._details.values(), sparkline(self._losses)]))
        self._progress.update(self._training, details=details)

    def _fitting(self, details: list[str]) -> list[str]:
        """As many details as fit on one line."""
        free = self.console.width - _OTHER_COLUMNS
        lengths = itertools.accumulate(len(part) + 2 for part in details)
        return [part for part, length in zip(details, lengths, strict=True) if length <= free]

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
