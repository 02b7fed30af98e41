"""What a training continues from: the clock and the log of its checkpoint, its best model, its patience."""

import contextlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers import EarlyStoppingCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from mybert.common.machine import threads
from mybert.training.log import History
from mybert.training.metrics import TrainingMetrics

METRICS = "training_metrics.json"
"""File of a checkpoint with the clock, the steps since the last log, and the numbers of skipped steps."""


class StartOfTraining(TrainerCallback):
    """Starts clock and history, also when training restarts with a smaller batch; measures which cores are free.

    Of a resumed run, finds the best checkpoint again, and logs, evaluates and saves as its arguments say.
    """

    def __init__(self, metrics: TrainingMetrics, history: History):
        self.metrics, self.history = metrics, history

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        # the folder may have been moved since the path was stored
        folder = str(args.output_dir)
        best = Path(folder) / f"{PREFIX_CHECKPOINT_DIR}-{state.best_global_step}"
        if best.is_dir():
            state.best_model_checkpoint = str(best)
        state.compute_steps(args, state.max_steps)  # Trainer would keep those of the checkpoint
        self.history.restart(folder, state.log_history)
        self.metrics.start()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        threads.share()

    on_prediction_step = on_step_end


@contextlib.contextmanager
def without_comparison_of_arguments() -> Iterator[None]:
    """Hides transformers' warning of arguments that differ from those of the checkpoint.

    It takes a share of the steps and its number of steps as different. `RunFingerprint` compares what must not change.
    """

    def is_another(record: logging.LogRecord) -> bool:
        return "(from trainer_state.json)" not in record.getMessage()

    loggers = [logging.getLogger(f"transformers.{name}") for name in ("trainer", "trainer_utils")]  # by version
    for logger in loggers:
        logger.addFilter(is_another)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_another)


def saved_metrics(checkpoint: str | Path) -> dict[str, Any]:
    """The content of `METRICS` in a checkpoint."""
    return json.loads((Path(checkpoint) / METRICS).read_text(encoding="utf-8"))


def patience_is_spent(state: TrainerState) -> bool:
    """Whether a run has ended because its evaluations have not improved (--patience)."""
    callbacks: Any = state.stateful_callbacks  # a dictionary in a state that is saved
    stopping = callbacks.get(EarlyStoppingCallback.__name__)
    return (
        stopping is not None
        and stopping["attributes"]["early_stopping_patience_counter"] >= stopping["args"]["early_stopping_patience"]
    )
