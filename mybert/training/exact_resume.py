"""Exact resume: the clock and the log of a checkpoint, the place in an epoch, the best model, the patience.

`RunFolder` compares the run with that in the folder, `sealed_checkpoints` finds the last undamaged checkpoint, and
`RunTrainer.run` continues from it.
"""

import contextlib
import json
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers import EarlyStoppingCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, IntervalStrategy

from mybert.training.log import History
from mybert.training.metrics import TrainingMetrics

METRICS = "training_metrics.json"
"""File of a checkpoint with the clock, the steps since the last log, and the numbers of skipped steps."""


class ExactResume(TrainerCallback):
    """Lets a resumed run continue as if it had not been interrupted.

    Its samplers continue at the example, and its clock, history and best checkpoint are those of its checkpoint. The
    checkpoint of the last step of an epoch is saved after the evaluation of that epoch; Trainer saves it before, so
    that a run resumed from it would skip the evaluation and differ from then on.
    """

    def __init__(self, metrics: TrainingMetrics, history: History):
        self.metrics, self.history = metrics, history
        self._postponed = False  # whether a checkpoint waits for the evaluation

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Starts clock and history, also when training restarts with a smaller batch."""
        folder = str(args.output_dir)
        best = Path(folder) / f"{PREFIX_CHECKPOINT_DIR}-{state.best_global_step}"
        if best.is_dir():  # the folder may have been moved since the path was stored
            state.best_model_checkpoint = str(best)
        state.compute_steps(args, state.max_steps)  # Trainer would log, evaluate and save as the checkpoint says
        self.history.restart(folder, state.log_history)
        self.metrics.start()

    def on_epoch_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        train_dataloader: Any = None,
        **kwargs: Any,
    ) -> None:
        """Sets the epoch of the innermost sampler, which Trainer and accelerate do not reach in all loaders.

        A sampler with an attribute `skip` also gets how many of its examples or batches of this epoch have been read.
        """
        batches = train_dataloader
        while getattr(batches, "batch_sampler", None) is not None:
            batches = batches.batch_sampler
        # of examples, unless batches are not made of single examples
        sampler: Any = batches if hasattr(batches, "set_epoch") else getattr(batches, "sampler", batches)
        per_epoch = math.ceil(len(train_dataloader) / args.gradient_accumulation_steps)
        epoch, steps = divmod(state.global_step, per_epoch)
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        if hasattr(sampler, "skip"):
            batch_size = getattr(batches, "batch_size", 1)
            sampler.skip = steps * args.gradient_accumulation_steps * args.world_size * batch_size

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        ends_epoch = float(state.epoch).is_integer()
        if control.should_save and ends_epoch and args.eval_strategy == IntervalStrategy.EPOCH:
            control.should_save, self._postponed = False, True

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        control.should_save |= self._postponed
        self._postponed = False


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
