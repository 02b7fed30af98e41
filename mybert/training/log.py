"""The log of a training: lines and bars on the terminal, log.jsonl, experiment trackers (--report-to)."""

import functools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from transformers import (
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from mybert.artifacts.manifest import HISTORY, json_line
from mybert.common.errors import UserError, cause
from mybert.common.metrics import metric_of, metric_title
from mybert.common.progress import bars_on
from mybert.common.quantities import counted, duration
from mybert.common.tables import format_cell, line_width

_TITLES = {"learning_rate": "lr", "grad_norm": "gradient norm"}
_FORMATS = {
    "tokens": lambda tokens: f"{tokens:,} tokens",
    "tokens_per_second": lambda rate: f"{rate:,} tokens/s",
    "seconds_left": lambda seconds: f"{duration(seconds)} left",
    "grad_norm": lambda norm: f"gradient norm {norm:.3g}",
    "mfu": lambda share: f"{100 * share:.2g}% of peak speed",
    "free_cores": lambda cores: f"other programs leave {cores:g} cores",
    "idle_share": lambda share: f"idle {100 * share:.2g}%",
}
_HIDDEN = {"train_runtime", "seconds", "total_flos", "epoch", "update_ratio", "gradient_noise", "threads"}
_HIDDEN |= {"optimizer_share"}
_HIDDEN |= {"teacher_mlm_loss", "teacher_mlm_accuracy", "mlm_tokens", "nsp_pairs"}  # the same in every evaluation
_DETAILS = {"grad_norm", "learning_rate", "tokens"}  # hidden where evaluations choose the best checkpoint
_SPEEDS = ("_runtime", "_per_second", "_time")
_FREE_CORES_CHANGED = 0.5  # a smaller change is not printed


class History:
    """Writes log.jsonl into the folder of a run, from `restart` on, if it `writes` at all."""

    def __init__(self, writes: bool):
        self._writes = writes
        self.path: Path | None = None

    def restart(self, folder: str, log_history: Sequence[Mapping[str, Any]]) -> None:
        """Writes all events so far; a resumed run repeats none that its checkpoint does not know."""
        if self._writes:
            self.path = Path(folder) / HISTORY
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text("".join(map(history_line, log_history)), encoding="utf-8", newline="\n")

    def append(self, event: Mapping[str, Any]) -> None:
        if self.path:
            with self.path.open("a", encoding="utf-8", newline="\n") as file:
                file.write(history_line(event))


def history_line(event: Mapping[str, Any]) -> str:
    """A line of JSON from an entry of `TrainerState.log_history`.

    It begins with `step`, `epoch`, `tokens` (real tokens so far) and `seconds` (of training, without evaluation and
    saving).
    """
    return json_line(dict.fromkeys(("step", "epoch", "tokens", "seconds")) | dict(event))


# Lines and bars


def print_lines(trainer: Trainer) -> None:
    """Makes `trainer` print lines, not dictionaries, and show bars on a terminal; a notebook keeps its table."""
    if trainer.pop_callback(ProgressCallback):
        trainer.add_callback(Display(Console(stderr=True, width=line_width(sys.stderr))))
    elif trainer.pop_callback(PrinterCallback):
        trainer.add_callback(Display())


class Display(TrainerCallback):
    """Prints lines during training only; the tables at the end show later evaluations.

    Args:
        console: where a bar for the training and one for an evaluation are shown; None for no bars.
    """

    def __init__(self, console: Console | None = None):
        self.console = console
        self.first: int | None = None  # steps done when training started; None outside of training
        self._progress: Progress | None = None
        self._evaluating: Any = None

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._held: dict[str, float] = {}  # of training, printed with the evaluation of the step if one follows
        self._free_cores = math.inf  # as last printed
        if not state.is_world_process_zero:
            return
        self.first = state.global_step
        if self.console is not None:
            self._progress = bars_on(self.console)
            self._training = self._progress.add_task("training", total=state.max_steps, unit="steps")
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
            self._evaluating = self._progress.add_task("evaluating", total=total, unit="batches")
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
        if self.first is None or not logs:
            return
        if self._progress is not None and "loss" in logs:
            self._progress.update(self._training, description=f"training, loss {format_cell(logs['loss'])}")
        best, names = args.metric_for_best_model, [name for name in logs if name.startswith("eval_")]
        if names:
            names = [name for name in names if best in (None, name) or name == "eval_loss"]
        else:
            self._print(args, state)
            names = [name for name in logs if best is None or name not in _DETAILS]
        self._held |= {name: logs[name] for name in names}
        if best is None or "loss" not in logs:
            self._print(args, state)

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._print(args, state)

    def _print(self, args: TrainingArguments, state: TrainerState) -> None:
        if self._held:
            if abs(self._held.get("free_cores", math.inf) - self._free_cores) < _FREE_CORES_CHANGED:
                del self._held["free_cores"]
            self._free_cores = self._held.get("free_cores", self._free_cores)
            # None for a time budget, whose estimate changes during the run
            planned = state.max_steps if args.max_steps in (-1, state.max_steps) else None
            print(log_line(self._held, state.global_step, planned, self.first or 0), flush=True)
            self._held = {}

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.first = None
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def log_line(logs: Mapping[str, float], step: int, steps: int | None, first: int = 0) -> str:
    """One log as a line.

    Args:
        logs: name → value, the argument of `Trainer.log`.
        step, steps: number of steps done, and planned; None if the clock ends the run.
        first: steps done when this session started.

    >>> log_line({"loss": 2.5, "learning_rate": 1e-4, "epoch": 0.5}, 1000, 2000)
    'step 1,000 of 2,000: loss 2.5, lr 0.0001'
    """
    if {"train_loss", "train_runtime"} <= logs.keys():
        resumed = f" of this session, to {step:,}," if first else ""
        time, loss = duration(logs["train_runtime"]), _number(logs["train_loss"])
        return f"{counted(step - first, 'step')}{resumed} in {time}: mean loss {loss}"
    line = f"step {step:,}" if steps is None else f"step {step:,} of {steps:,}"
    shown = [name for name in logs if name.removeprefix("eval_") not in _HIDDEN]
    training = [_cell(name, logs[name]) for name in shown if not name.startswith("eval_")]
    evaluated = [name for name in shown if name.startswith("eval_") and not name.endswith(_SPEEDS)]
    evaluation = [_cell(name.removeprefix("eval_"), logs[name]) for name in evaluated]
    for title, cells in ((": ", training), (", evaluation: ", evaluation)):
        line += title + ", ".join(cells) if cells else ""
    return line


def _cell(name: str, value: Any) -> str:
    if name in _FORMATS and isinstance(value, (int, float)) and math.isfinite(value):
        return _FORMATS[name](value)
    if metric_of(name).is_share:
        return f"{metric_title(name)} {metric_of(name).written(value)}"
    return f"{_TITLES.get(name) or metric_title(name)} {_number(value)}"


def _number(value: Any) -> str:
    """As in tables; very small and very large floats in scientific notation."""
    in_tables = not isinstance(value, float) or 1e-3 <= abs(value) < 1e6
    return format_cell(value) if in_tables else f"{value:.4g}"


# Experiment trackers


def settle_trackers(trainer: Trainer) -> None:
    """Makes trackers that cannot start raise a UserError, and leaves out values that are None."""
    for tracker in _trackers(trainer):
        tracker.on_train_begin = functools.partial(_explained, tracker.on_train_begin)
        tracker.on_log = functools.partial(_known, tracker.on_log)


def start_trackers(trainer: Trainer) -> None:
    """Starts the trackers that may need a login, before a run writes anything; training does not start them again."""
    given = {"model": trainer.model, "processing_class": trainer.processing_class}
    for tracker in _trackers(trainer):
        if hasattr(tracker, "setup"):
            tracker.on_train_begin(trainer.args, trainer.state, trainer.control, **given)


def _trackers(trainer: Trainer) -> list[Any]:
    kinds: Any = tuple(INTEGRATION_TO_CALLBACK.values())
    return [callback for callback in trainer.callback_handler.callbacks if isinstance(callback, kinds)]


def _explained(begin: Callable[..., Any], *arguments: Any, **kwargs: Any) -> Any:
    """Raises a UserError if a tracker cannot be used, for example without a login."""
    try:
        return begin(*arguments, **kwargs)
    except Exception as error:  # each tracker has its own types
        raise UserError(f"--report-to: {cause(error)}") from error


def _known(on_log: Callable[..., Any], *arguments: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> Any:
    logs = {name: value for name, value in (logs or {}).items() if value is not None}
    return on_log(*arguments, logs=logs, **kwargs)
