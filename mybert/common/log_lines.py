"""What Trainer logs, a line each time that people can read; transformers prints dictionaries of texts."""

from collections.abc import Mapping

from transformers import PrinterCallback, ProgressCallback, Trainer

from mybert.common.quantities import duration
from mybert.common.table import format_cell

_TITLES = {"learning_rate": "lr", "grad_norm": "gradient"}
_WRITTEN = {
    "num_input_tokens_seen": lambda tokens: f"{tokens:,} tokens",
    "tokens_per_second": lambda rate: f"{rate:,}/s",
    "train_tokens_per_second": lambda rate: f"{rate:,.0f}/s",
    "seconds_left": lambda seconds: f"{duration(seconds)} left",
    "mfu": lambda share: f"mfu {share:.0%}",
    "idle_share": lambda share: f"idle {share:.1%}",
    "train_runtime": lambda seconds: None,
    "training_seconds": lambda seconds: None,
    "total_flos": lambda flops: None,
    "epoch": lambda epochs: None,  # the step says it
}
_SPEEDS = ("_runtime", "_per_second", "_time")


def log_line(logs: Mapping[str, float], step: int, steps: int) -> str:
    """One log of Trainer's in a line.

    Args:
        logs: name → value, as `Trainer.log` is given them.
        step, steps: done, and planned.

    >>> log_line({"loss": 2.5, "learning_rate": 1e-4, "epoch": 0.5}, 1000, 2000)
    'step 1,000 of 2,000: loss 2.5, lr 0.0001'
    """
    if "train_loss" in logs:
        return f"{step:,} steps in {duration(logs['train_runtime'])}: mean loss {format_cell(logs['train_loss'])}"
    scored = any(name.startswith("eval_") for name in logs)
    if scored:
        logs = {name: value for name, value in logs.items() if name.startswith("eval_") and not name.endswith(_SPEEDS)}
        logs = {name.removeprefix("eval_"): value for name, value in logs.items()}
    cells = [
        _WRITTEN[name](value) if name in _WRITTEN else f"{_TITLES.get(name, name.replace('_', ' '))} {_number(value)}"
        for name, value in logs.items()
    ]
    title = f"step {step:,} of {steps:,}{', held out' if scored else ''}"
    return f"{title}: {', '.join(cell for cell in cells if cell)}"


def _number(value) -> str:
    return f"{value:.4g}" if isinstance(value, float) and abs(value) < 1e-3 else format_cell(value)


class _Lines(PrinterCallback):
    """Prints the lines of a training; what is evaluated after it stands in its tables."""

    def __init__(self):
        self.trains = False

    def on_train_begin(self, args, state, control, **kwargs):
        self.trains = True

    def on_train_end(self, args, state, control, **kwargs):
        self.trains = False

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero and self.trains and logs:
            print(log_line(logs, state.global_step, state.max_steps), flush=True)


class _LinesOverBar(ProgressCallback):
    """The same above a bar."""

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero and self.training_bar is not None and logs:
            self.training_bar.write(log_line(logs, state.global_step, state.max_steps))


def log_in_lines(trainer: Trainer) -> None:
    """Has `trainer` print lines in place of dictionaries, above its bar if it has one; a notebook keeps its table."""
    for callback, lines in ((PrinterCallback, _Lines), (ProgressCallback, _LinesOverBar)):
        if trainer.pop_callback(callback):
            trainer.add_callback(lines)
