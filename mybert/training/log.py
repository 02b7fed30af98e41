"""The log of a training: log.jsonl, readable lines, and experiment trackers (--report-to)."""

import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import (
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK, is_wandb_available

from mybert.artifacts.manifest import HISTORY, json_line
from mybert.common.errors import UserError, cause
from mybert.common.metrics import metric_title
from mybert.common.quantities import counted, duration
from mybert.common.tables import format_cell

_TITLES = {"learning_rate": "lr", "grad_norm": "gradient norm"}
_FORMATS = {
    "tokens": lambda tokens: f"{tokens:,} tokens",
    "tokens_per_second": lambda rate: f"{rate:,}/s",
    "seconds_left": lambda seconds: f"{duration(seconds)} left",
    "grad_norm": lambda norm: f"gradient norm {norm:.3g}",
    "mfu": lambda share: f"{100 * share:.2g}% of peak speed",
    "free_cores": lambda cores: f"other programs leave {cores:g} cores",
    "idle_share": lambda share: f"idle {100 * share:.2g}%",
}
_HIDDEN = {"train_runtime", "seconds", "total_flos", "epoch", "update_ratio", "gradient_noise", "threads"}
_HIDDEN |= {"optimizer_share"}
_HIDDEN |= {"teacher_mlm_loss", "teacher_mlm_accuracy", "mlm_tokens", "nsp_pairs"}  # the same in every evaluation
_SPEEDS = ("_runtime", "_per_second", "_time")


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


# Lines


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
    is_evaluation = any(name.startswith("eval_") for name in logs)
    if is_evaluation:
        logs = {name: value for name, value in logs.items() if name.startswith("eval_") and not name.endswith(_SPEEDS)}
        logs = {name.removeprefix("eval_"): value for name, value in logs.items()}
    cells = [_cell(name, value) for name, value in logs.items() if name not in _HIDDEN]
    planned = "" if steps is None else f" of {steps:,}"
    return f"step {step:,}{planned}{', evaluation' if is_evaluation else ''}: {', '.join(cells)}"


def _cell(name: str, value: Any) -> str:
    if name in _FORMATS and isinstance(value, (int, float)) and math.isfinite(value):
        return _FORMATS[name](value)
    return f"{_TITLES.get(name) or metric_title(name)} {_number(value)}"


def _number(value: Any) -> str:
    """As in tables; very small and very large floats in scientific notation."""
    in_tables = not isinstance(value, float) or 1e-3 <= abs(value) < 1e6
    return format_cell(value) if in_tables else f"{value:.4g}"


class _Lines(TrainerCallback):
    """Prints lines during training only; the tables at the end show later evaluations."""

    def __init__(self) -> None:
        self.first: int | None = None  # steps done when training started; None outside of training

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.first = state.global_step

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.first = None

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        if state.is_world_process_zero and self.first is not None and logs:
            # None for a time budget, whose estimate changes during the run
            planned = state.max_steps if args.max_steps in (-1, state.max_steps) else None
            print(log_line(logs, state.global_step, planned, self.first), flush=True)


def log_in_lines(trainer: Trainer, display: TrainerCallback) -> None:
    """Makes `trainer` print lines, not dictionaries, and shows `display` on a terminal; a notebook keeps its table."""
    if trainer.pop_callback(ProgressCallback):
        trainer.add_callback(display)
        trainer.add_callback(_Lines)
    elif trainer.pop_callback(PrinterCallback):
        trainer.add_callback(_Lines)


# Experiment trackers


def check_login(names: Sequence[str]) -> None:
    """Raises a UserError if a tracker has no login."""
    if "wandb" in names and is_wandb_available() and not _has_wandb_login():
        raise UserError(
            "--report-to wandb: there is no login; use `wandb login` or WANDB_API_KEY, or WANDB_MODE=offline to log "
            "into files"
        )


def _has_wandb_login() -> bool:
    """Whether wandb has an API key, or needs none. Nothing is sent."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    if os.environ.get("WANDB_MODE", "online") not in ("online", "shared"):
        return True
    import wandb  # after the checks of the environment: its import takes seconds

    return bool(wandb.login(prompt=False, verify=False))


def settle_trackers(trainer: Trainer) -> None:
    """Makes trackers that cannot start raise a UserError, and leaves out values that are None."""
    trackers: Any = tuple(INTEGRATION_TO_CALLBACK.values())
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, trackers):
            callback.on_train_begin = functools.partial(_explained, callback.on_train_begin)
            callback.on_log = functools.partial(_known, callback.on_log)


def _explained(begin: Callable[..., Any], *arguments: Any, **kwargs: Any) -> Any:
    """Raises a UserError if a tracker cannot be used, for example without a login."""
    try:
        return begin(*arguments, **kwargs)
    except Exception as error:  # each tracker has its own types
        raise UserError(f"--report-to: {cause(error)}") from error


def _known(on_log: Callable[..., Any], *arguments: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> Any:
    logs = {name: value for name, value in (logs or {}).items() if value is not None}
    return on_log(*arguments, logs=logs, **kwargs)
