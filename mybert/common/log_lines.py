"""What Trainer logs, a line each time that people can read; transformers prints dictionaries of texts."""

import math
from collections.abc import Mapping

from transformers import PrinterCallback, ProgressCallback, Trainer

from mybert.common.quantities import duration
from mybert.common.tables import format_cell

_TITLES = {"learning_rate": "lr", "grad_norm": "gradient"}
_WRITTEN = {
    "num_input_tokens_seen": lambda tokens: f"{tokens:,} tokens",
    "tokens_per_second": lambda rate: f"{rate:,}/s",
    "train_tokens_per_second": lambda rate: f"{rate:,.0f}/s",
    "seconds_left": lambda seconds: f"{duration(seconds)} left",
    "mfu": lambda share: f"mfu {100 * share:.2g}%",
    "idle_share": lambda share: f"idle {100 * share:.2g}%",
}
_SILENT = {"train_runtime", "training_seconds", "total_flos", "epoch"}  # the step says it, or the end does
_SPEEDS = ("_runtime", "_per_second", "_time")


def log_line(logs: Mapping[str, float], step: int, steps: int, first: int = 0) -> str:
    """One log of Trainer's in a line.

    Args:
        logs: name → value, as `Trainer.log` is given them.
        step, steps: done, and planned.
        first: steps done when this session began.

    >>> log_line({"loss": 2.5, "learning_rate": 1e-4, "epoch": 0.5}, 1000, 2000)
    'step 1,000 of 2,000: loss 2.5, lr 0.0001'
    """
    if {"train_loss", "train_runtime"} <= logs.keys():
        resumed = f" of this session, to {step:,}," if first else ""
        time, loss = duration(logs["train_runtime"]), _number(logs["train_loss"])
        return f"{step - first:,} steps{resumed} in {time}: mean loss {loss}"
    scored = any(name.startswith("eval_") for name in logs)
    if scored:
        logs = {name: value for name, value in logs.items() if name.startswith("eval_") and not name.endswith(_SPEEDS)}
        logs = {name.removeprefix("eval_"): value for name, value in logs.items()}
    cells = [_cell(name, value) for name, value in logs.items() if name not in _SILENT]
    return f"step {step:,} of {steps:,}{', held out' if scored else ''}: {', '.join(cells)}"


def _cell(name: str, value) -> str:
    if name in _WRITTEN and isinstance(value, (int, float)) and math.isfinite(value):
        return _WRITTEN[name](value)
    return f"{_TITLES.get(name, name.replace('_', ' '))} {_number(value)}"


def _number(value) -> str:
    """As in tables, but for floats that are small, such as rates, or large, as losses of a run that diverges."""
    in_tables = not isinstance(value, float) or 1e-3 <= abs(value) < 1e6
    return format_cell(value) if in_tables else f"{value:.4g}"


class _Lines(PrinterCallback):
    """Prints the lines of a training; what is evaluated after it stands in its tables."""

    def __init__(self):
        self.first: int | None = None  # steps done when training began; None outside of one

    def on_train_begin(self, args, state, control, **kwargs):
        self.first = state.global_step

    def on_train_end(self, args, state, control, **kwargs):
        self.first = None

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero and self.first is not None and logs:
            print(log_line(logs, state.global_step, state.max_steps, self.first), flush=True)


class _LinesOverBar(ProgressCallback):
    """The same above a bar."""

    def on_train_begin(self, args, state, control, **kwargs):
        super().on_train_begin(args, state, control, **kwargs)
        self.first = state.global_step

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero and self.training_bar is not None and logs:
            self.training_bar.write(log_line(logs, state.global_step, state.max_steps, self.first))


def log_in_lines(trainer: Trainer) -> None:
    """Has `trainer` print lines in place of dictionaries, above its bar if it has one; a notebook keeps its table."""
    for callback, lines in ((PrinterCallback, _Lines), (ProgressCallback, _LinesOverBar)):
        if trainer.pop_callback(callback):
            trainer.add_callback(lines)
