"""The Trainer base class of pretraining and fine-tuning: sealed checkpoints, exact resume, stopping, logs."""

import contextlib
import itertools
import json
import logging
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import (
    EarlyStoppingCallback,
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainerCallback,
    TrainerState,
    set_seed,
)
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from mybert.common.errors import UserError
from mybert.common.machine import threads
from mybert.common.quantities import counted
from mybert.training.epochs import SaveAfterEvaluation, SetSamplerEpoch
from mybert.training.history import History
from mybert.training.live_display import LiveDisplay
from mybert.training.loader_workers import ignore_signals_in_workers
from mybert.training.log_lines import log_in_lines
from mybert.training.metrics import Step, TrainingMetrics
from mybert.training.nonfinite import NonFiniteSteps
from mybert.training.reporters import name_as_in_log
from mybert.training.sealed_checkpoints import COPIES_IN_A_CHECKPOINT, save_sealed
from mybert.training.speed import StepTimer, measure_peak
from mybert.training.step_measures import StepMeasures
from mybert.training.stopping import Preempted, StopOnSignal

METRICS = "training_metrics.json"
"""File of a checkpoint with the clock, the steps since the last log, and the numbers of skipped steps."""


class RunTrainer(Trainer):
    """transformers' Trainer whose checkpoints are complete or absent, and whose resumed runs equal uninterrupted ones.

    Args:
        skip_nonfinite: skip steps whose gradient is not finite; otherwise the run stops there.
        dry_run: measure a few steps and stop; write nothing.
        peak_flops: floating point operations per second that a device could do (default: measured).
        kwargs: as in `transformers.Trainer`.

    Attributes:
        metrics: clock, tokens and losses for the log.
        stage: the temporary folder of the checkpoint that is being saved.
    """

    stage: Path | None = None

    loss_parts: ClassVar[tuple[str, ...]] = ("loss",)
    remedy: ClassVar[str] = "try a lower --learning-rate (and --overwrite)"

    def __init__(
        self,
        *args,
        stop: StopOnSignal | None = None,
        skip_nonfinite: bool = False,
        dry_run: bool = False,
        peak_flops: float | None = None,
        **kwargs,
    ):
        super().__init__(*args, **kwargs)
        if tied := getattr(self.model, "all_tied_weights_keys", None):
            self.model._keys_to_ignore_on_save = list(tied)  # Trainer would warn that a checkpoint holds them once
        if getattr(getattr(self.model, "config", None), "int8_outliers", None) is not None:
            raise UserError("int8 weights cannot be trained; train the checkpoint that this one was quantised from")
        if self.args.process_index > 0:  # otherwise dropout has the same pattern in every process
            set_seed((self.args.seed + self.args.process_index) % 2**32)
        self.args.include_num_input_tokens_seen = "no"  # counted here, without a device synchronisation in every step
        float16 = self.accelerator.scaler is not None
        self.metrics = TrainingMetrics(self.loss_parts, self.args.device, self.accelerator.gather)
        self.nonfinite = NonFiniteSteps(skip_nonfinite, float16, self.describe_step, self.remedy)
        self.history = History(writes=self.is_world_process_zero() and not dry_run)
        self.dry_run, self.peak_flops = dry_run, peak_flops
        self._measured_peak: float | None = None
        if dry_run:
            for reporter in (PrinterCallback, ProgressCallback):
                self.remove_callback(reporter)
        log_in_lines(self, LiveDisplay())
        name_as_in_log(self)
        timer = StepTimer(self.report_speed, stop=dry_run)
        start = _StartOfTraining(self.metrics, self.history)
        self.measures = StepMeasures()
        for callback in (
            SetSamplerEpoch(),
            start,
            timer,
            *([stop] if stop else []),
            SaveAfterEvaluation(),
            self.measures,
        ):
            self.add_callback(callback)

    def describe_step(self, step: int) -> str:
        """Names the data of a step, counted from 0, for messages."""
        return ""

    # Running

    def planned_steps(self) -> int:
        *_, steps = self.set_initial_training_values(self.args, self.get_train_dataloader())
        return steps

    def check_setup(self) -> None:
        """Builds the loader, the optimizer and the scheduler once, so that unusable arguments fail at the start."""
        self.get_train_dataloader()
        if not (self.is_fsdp_enabled or self.is_deepspeed_enabled):  # these wrap the model first
            self.create_optimizer_and_scheduler(num_training_steps=100)
            self.optimizer = self.lr_scheduler = None

    def resumed_message(self, state: TrainerState, steps: int) -> str:
        """How far the run to continue is."""
        done = f"{state.global_step:,} of {state.max_steps:,} planned steps are done"
        if state.max_steps == steps:
            return done
        return f"{done}; the plan is now {steps:,} steps, and learning rate and phases follow it from here on"

    def run(self, checkpoint: Path | None) -> bool:
        """Trains to the end, or loads the trained model if no step is left.

        Returns:
            Whether a step was left.

        Raises:
            Diverged: a gradient or loss is not finite, and such steps are not skipped.
            Preempted: a signal stopped the run after a checkpoint was saved.
        """
        if checkpoint is not None:
            state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
            steps = self.planned_steps()
            if self.is_world_process_zero():
                print(f"--resume: {self.resumed_message(state, steps)}")
            if state.global_step >= steps or _patience_is_spent(state):  # Trainer would train one more step or epoch
                self._load_finished(checkpoint, state)
                return False
        preempted = False
        try:
            self.train(resume_from_checkpoint=checkpoint and str(checkpoint))
        except Preempted:  # raised again below: this traceback keeps the loader's workers from ending
            preempted = True
        if preempted:
            raise Preempted
        self.nonfinite.settle()  # a last step that was neither saved nor logged
        return True

    def train(self, resume_from_checkpoint=None, **kwargs):
        saved = _saved_metrics(resume_from_checkpoint) if resume_from_checkpoint else {}
        self.metrics.load_state_dict(saved)
        self.nonfinite.skipped = list(saved.get("skipped", []))
        self._resume_threads(saved.get("threads"))
        with _without_comparison_of_arguments():
            return super().train(resume_from_checkpoint, **kwargs)

    def _load_finished(self, checkpoint: Path, state: TrainerState) -> None:
        best = checkpoint
        if self.args.load_best_model_at_end and state.best_global_step:
            best = checkpoint.with_name(f"{PREFIX_CHECKPOINT_DIR}-{state.best_global_step}")
        self._load_from_checkpoint(str(best))
        self.state = state
        self.metrics.load_state_dict(_saved_metrics(checkpoint))
        self.history.restart(self.args.output_dir, state.log_history)

    def get_train_dataloader(self) -> DataLoader:
        return ignore_signals_in_workers(super().get_train_dataloader())

    def get_eval_dataloader(self, eval_dataset=None) -> DataLoader:
        return ignore_signals_in_workers(super().get_eval_dataloader(eval_dataset))

    @property
    def order_seed(self) -> int:
        """The seed of the order of the examples."""
        return self.args.seed if self.args.data_seed is None else self.args.data_seed

    # Steps

    @property
    def loss_scale(self) -> int:
        """The factor by which Trainer multiplies a loss that was divided by a number of items of all processes."""
        return self.args.world_size if self.args.average_tokens_across_devices else 1

    def over_processes(self, count: Tensor) -> Tensor:
        """The sum of the counts () of all processes, on the device; of this one if each has a loss of its own."""
        count = count.to(self.args.device)
        return count if self.loss_scale == 1 else self.accelerator.gather(count.reshape(1)).sum()

    def get_batch_samples(self, epoch_iterator: Iterator, num_batches: int, device) -> tuple[list, Tensor | None]:
        """The batches of one optimizer step, and the number of their labels if the loss is divided by it."""
        batches = list(itertools.islice(epoch_iterator, num_batches))
        self.metrics.start_step(batches)
        divides = batches and (self.model_accepts_loss_kwargs or self.compute_loss_func is not None)
        return batches, self.over_processes(sum(map(label_count, batches))) if divides else None

    def training_step(self, model: nn.Module, inputs: dict, num_items_in_batch=None) -> Tensor:
        """Returns the loss for Trainer's own sum, in which one that is not finite would stay for ever."""
        loss = super().training_step(model, inputs, num_items_in_batch)
        if len(self.loss_parts) == 1:
            self.metrics.add_losses([loss])
        return loss.nan_to_num(0.0, 0.0, 0.0)

    def _get_grad_norm(self, model: nn.Module, grad_norm=None) -> Tensor | float:
        norm = super()._get_grad_norm(model, grad_norm)
        if self.nonfinite.check_gradient(self.state.global_step, norm, self.args.device):
            self.model_wrapped.zero_grad()  # the optimizer passes over parameters without a gradient
        return norm

    def report_speed(self, seconds: float, steps: int, first: int) -> None:
        """Called once with the mean of a step over `steps` measured ones and the steps done before this session."""
        self.seconds_per_step = seconds

    def device_peak(self, reached: float = 0.0) -> float:
        """Peak floating point operations per second of the device, measured if it was not given.

        Args:
            reached: operations per second in training; a measured peak that is lower was measured under load.
        """
        if self.peak_flops is not None:
            return self.peak_flops
        if self._measured_peak is None:
            types = [torch.bfloat16 if self.args.bf16 else torch.float16 if self.args.fp16 else torch.float32]
            if self.args.device.type == "cpu" and self.args.bf16:  # which may be emulated
                types.append(torch.float32)
            self._measured_peak = max(measure_peak(self.args.device, dtype) for dtype in types)
        self._measured_peak = max(self._measured_peak, reached)
        return self._measured_peak

    def flops_per_token(self) -> float:
        """Useful floating point operations of the coming steps for each real token; 0 leaves them to Trainer."""
        return 0.0

    def store_flos(self) -> None:
        """Moves tokens and operations into the state; Trainer calls it before every log and checkpoint."""
        tokens = self.metrics.take_tokens()
        if rate := self.flops_per_token():
            self.current_flos += int(tokens) * rate
        self.state.num_input_tokens_seen += int(self.accelerator.gather(tokens).sum())
        super().store_flos()

    def _resume_threads(self, number: int | None) -> None:
        """Continues with the number of threads of the checkpoint, if it has recorded one and the machine allows it."""
        if number is None or self.args.device.type != "cpu" or threads.resume(number):
            return
        if self.is_world_process_zero():
            now = torch.get_num_threads()
            print(f"the run has used {counted(number, 'thread')} so far, now {now}: sums are rounded differently")

    # Log

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Raises `Diverged` if a gradient or a loss since the last log was not finite and its step was not skipped."""
        if "loss" in logs:
            self.nonfinite.settle()
            logs = logs | self.training_logs()
        elif self._has_best_model:
            return
        times = {"training_seconds": round(self.metrics.seconds, 3)}
        if self.args.device.type == "cpu":
            times["threads"] = torch.get_num_threads()
            if threads.are_cores_lacking:
                times["free_cores"] = round(threads.free_cores, 2)
        super().log(logs | times | {"num_input_tokens_seen": self.state.num_input_tokens_seen}, start_time)
        self.history.append(self.state.log_history[-1])

    def training_logs(self) -> dict[str, float]:
        """The log entry for the steps since the last log. All processes must call it."""
        seconds = self.metrics.seconds_since_log
        logs = self.metrics.take_logs(self._skipped, self.state.num_input_tokens_seen) | self.measures.take()
        if self.args.device.type == "cpu":
            logs["optimizer_share"] = round(self.measures.take_optimizer_seconds() / max(seconds, 1e-9), 4)
        return logs

    def _skipped(self, steps: list[Step]) -> list[bool]:
        first = self.state.global_step - len(steps)
        finite = self.nonfinite.finite_losses({first + i: math.fsum(step.losses) for i, step in enumerate(steps)})
        self.watch_losses(finite)
        return [first + i not in finite for i in range(len(steps))]

    def watch_losses(self, losses: dict[int, float]) -> None:
        """Called with each step, counted from 0, and its finite loss."""

    # Checkpoints

    def count_parameters(self) -> int:
        """Parameters of the model as it is saved."""
        return sum(p.numel() for p in self.model.parameters())

    def checkpoint_bytes(self) -> int:
        """Approximate size of a checkpoint on disk."""
        return COPIES_IN_A_CHECKPOINT * self.count_parameters() * next(self.model.parameters()).element_size()

    def _get_output_dir(self, trial) -> str:
        return super()._get_output_dir(trial) if self.stage is None else str(self.stage)

    def _save_checkpoint(self, model: nn.Module, trial=None) -> None:
        with self.metrics.paused("save"):
            self.nonfinite.settle()  # raises before a checkpoint of a diverged step is written
            save_sealed(self, lambda: super(RunTrainer, self)._save_checkpoint(model, trial))

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Seeds a process without a saved state differently from every other process and step."""
        name = "rng_state.pth" if self.args.world_size == 1 else f"rng_state_{self.args.process_index}.pth"
        if checkpoint is None or (Path(checkpoint) / name).is_file():
            super()._load_rng_state(checkpoint)
        else:
            place = self.state.global_step * self.args.world_size + self.args.process_index
            set_seed((self.args.seed + place) % 2**32)

    def extra_states(self) -> dict[str, dict]:
        """Name and content of further JSON files of a checkpoint. All processes must call it."""
        return {
            METRICS: self.metrics.state_dict()
            | {"skipped": self.nonfinite.skipped, "threads": torch.get_num_threads()}
        }

    def evaluate(self, *args, **kwargs) -> dict[str, float]:
        if self.is_in_train:
            self.store_flos()  # the evaluation is logged with all tokens so far, also between two logs of training
        with self.metrics.paused("evaluate"):
            metrics = super().evaluate(*args, **kwargs)
            if not self._has_best_model:
                self.after_evaluation()
        return metrics

    @property
    def _has_best_model(self) -> bool:
        """After training, whether the model is the best one, whose evaluation is not that of the last step."""
        return not self.is_in_train and self.args.load_best_model_at_end

    def after_evaluation(self) -> None:
        """Called after each evaluation of a step by all processes; its time does not count as training."""


def label_count(batch: Mapping[str, Tensor]) -> Tensor:
    """The number of labels of a batch; -100 stands for none, in regression it is a number."""
    labels = batch["start_positions"] if "start_positions" in batch else batch["labels"]
    return torch.tensor(labels.numel()) if labels.is_floating_point() else (labels != -100).sum()


class _StartOfTraining(TrainerCallback):
    """Starts clock and history, also when training restarts with a smaller batch; measures which cores are free.

    Of a resumed run, finds the best checkpoint again, and logs, evaluates and saves as its arguments say.
    """

    def __init__(self, metrics: TrainingMetrics, history: History):
        self.metrics, self.history = metrics, history

    def on_train_begin(self, args, state, control, **kwargs):
        # the folder may have been moved since the path was stored
        best = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.best_global_step}"
        if best.is_dir():
            state.best_model_checkpoint = str(best)
        state.compute_steps(args, state.max_steps)  # Trainer would keep those of the checkpoint
        self.history.restart(args.output_dir, state.log_history)
        self.metrics.start()

    def on_step_end(self, args, state, control, **kwargs):
        threads.share()

    on_prediction_step = on_step_end


@contextlib.contextmanager
def _without_comparison_of_arguments() -> Iterator[None]:
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


def _saved_metrics(checkpoint: str | Path) -> dict:
    file = Path(checkpoint) / METRICS
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def _patience_is_spent(state: TrainerState) -> bool:
    stopping = state.stateful_callbacks.get(EarlyStoppingCallback.__name__)
    return (
        stopping is not None
        and stopping["attributes"]["early_stopping_patience_counter"] >= stopping["args"]["early_stopping_patience"]
    )
