"""The Trainer of all trainings: sealed checkpoints, exact resume, stopping, logs."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerState, set_seed
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, TrainOutput

from mybert.common.errors import UserError
from mybert.common.machine import threads
from mybert.common.quantities import counted
from mybert.training.exact_resume import (
    METRICS,
    ExactResume,
    patience_is_spent,
    saved_metrics,
    without_comparison_of_arguments,
)
from mybert.training.loader_workers import ignore_signals_in_workers
from mybert.training.log import History, print_lines, settle_trackers
from mybert.training.metrics import TrainingMetrics
from mybert.training.nonfinite import NonFiniteSteps
from mybert.training.objective import Course, Objective
from mybert.training.sealed_checkpoints import COPIES_IN_A_CHECKPOINT, save_sealed
from mybert.training.speed import StepMeasures, StepTimer
from mybert.training.stopping import Preempted, StopOnSignal
from mybert.training.words_dimensions import KeepWords


class RunTrainer(Trainer):
    """transformers' Trainer whose checkpoints are complete or absent, and whose resumed runs equal uninterrupted ones.

    Args:
        objective: loss and evaluation (default: those of Trainer).
        course: steps, learning rate and order of the examples (default: those of Trainer).
        skip_nonfinite: skip steps whose gradient is not finite; otherwise the run stops there.
        dry_run: measure a few steps and stop; write nothing.
        kwargs: as in `transformers.Trainer`.

    Attributes:
        metrics: clock, tokens and losses for the log.
        partial_folder: the temporary folder of the checkpoint that is being saved.
    """

    partial_folder: Path | None = None
    # transformers' types allow None, and data of every kind
    model: Any
    train_dataset: Any
    eval_dataset: Any
    data_collator: Any
    processing_class: Any
    compute_metrics: Any
    args: Any

    def __init__(
        self,
        *args: Any,
        objective: Objective | None = None,
        course: Course | None = None,
        stop: StopOnSignal | None = None,
        skip_nonfinite: bool = False,
        dry_run: bool = False,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        # Any: each kind of training has methods of its own
        self.objective: Any = objective or Objective()
        self.course: Any = course or Course()
        if tied := getattr(self.model, "all_tied_weights_keys", None):
            self.model._keys_to_ignore_on_save = list(tied)  # Trainer would warn that a checkpoint holds them once
        if getattr(getattr(self.model, "config", None), "int8_outliers", None) is not None:  # of the Hub
            raise UserError("int8 weights cannot be trained; train the checkpoint that this one was quantised from")
        if self.args.process_index > 0:  # otherwise dropout has the same pattern in every process
            set_seed((self.args.seed + self.args.process_index) % 2**32)
        # otherwise each process takes its batches from an order of its own
        self.accelerator.dataloader_config.data_seed = self.order_seed
        self.args.include_num_input_tokens_seen = "no"  # counted here, without a device synchronisation in every step
        float16 = self.accelerator.scaler is not None
        self.metrics = TrainingMetrics(self.objective.loss_parts, self.args.device, self.accelerator.gather)
        self.nonfinite = NonFiniteSteps(skip_nonfinite, float16, self.objective.remedy)
        self.history = History(writes=self.is_world_process_zero() and not dry_run)
        self.dry_run = dry_run
        if dry_run:
            for reporter in (PrinterCallback, ProgressCallback):
                self.remove_callback(reporter)
        print_lines(self)
        settle_trackers(self)
        self.measures = StepMeasures()
        timer = StepTimer(lambda: self.metrics.seconds, self.report_speed, stop=dry_run)
        for callback in (ExactResume(self.metrics, self.history), timer, *([stop] if stop else []), self.measures):
            self.add_callback(callback)
        self.add_callback(KeepWords(self.model))
        self.course.begin(self)
        self.objective.begin(self)

    # Running

    def planned_steps(self) -> int:
        return self.course.planned_steps() or self.steps_with(self.get_train_dataloader())

    def steps_with(self, loader: DataLoader[Any]) -> int:
        """The number of steps of the run with a loader."""
        *_, steps = self.set_initial_training_values(self.args, loader)
        return steps

    def check_setup(self) -> None:
        """Builds the loader, the optimizer and the scheduler once, so that unusable arguments fail at the start."""
        self.get_train_dataloader()
        if not (self.is_fsdp_enabled or self.is_deepspeed_enabled):  # these wrap the model first
            self.create_optimizer_and_scheduler(num_training_steps=100)
            self.optimizer = self.lr_scheduler = None

    def run(self, checkpoint: Path | None, before: Callable[[], None] | None = None) -> bool:
        """Trains to the end, or loads the trained model if no step is left.

        Args:
            checkpoint: the one to continue from; None for a new run.
            before: called before the training; the model is still the start model.

        Returns:
            Whether a step was left.

        Raises:
            Diverged: a gradient or loss is not finite, and such steps are not skipped.
            Preempted: a signal stopped the run after a checkpoint was saved.
        """
        if checkpoint is not None:
            state = self.state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
            self.course.load(checkpoint)
            steps = self.planned_steps()
            if self.is_world_process_zero():
                print(f"--resume: {self.course.resumed_message(state, steps)}", flush=True)
        if before is not None:
            before()
        if checkpoint is not None and (state.global_step >= steps or patience_is_spent(state)):
            self._load_finished(checkpoint, state)  # Trainer would train one more step or epoch
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

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> TrainOutput:
        saved = saved_metrics(resume_from_checkpoint) if resume_from_checkpoint else {}
        self.metrics.load_state_dict(saved)
        self.nonfinite.skipped = list(saved.get("skipped", []))
        self._resume_threads(saved.get("threads"))
        with without_comparison_of_arguments():
            return super().train(resume_from_checkpoint, *args, **kwargs)

    def _load_finished(self, checkpoint: Path, state: TrainerState) -> None:
        best = checkpoint
        if self.args.load_best_model_at_end and state.best_global_step:
            best = checkpoint.with_name(f"{PREFIX_CHECKPOINT_DIR}-{state.best_global_step}")
        self._load_from_checkpoint(str(best))
        self.metrics.load_state_dict(saved_metrics(checkpoint))
        self.history.restart(self.args.output_dir, state.log_history)

    # Batches

    def get_train_dataloader(self) -> DataLoader[Any]:
        batches = self.course.batch_sampler()
        return ignore_signals_in_workers(
            super().get_train_dataloader() if batches is None else self._batched_loader(batches)
        )

    def _batched_loader(self, batches: Sampler[Any]) -> DataLoader[Any]:
        loader = DataLoader(
            self.train_dataset,
            batch_sampler=batches,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
            persistent_workers=self.args.dataloader_persistent_workers,
            prefetch_factor=self.args.dataloader_prefetch_factor,
        )
        return self.accelerator.prepare(loader)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        return ignore_signals_in_workers(super().get_eval_dataloader(eval_dataset))

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[Any] | None:
        sampler = self.course.sampler()
        return super()._get_train_sampler(train_dataset) if sampler is None else sampler

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

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: Any
    ) -> tuple[list[Any], Tensor | None]:
        """The batches of one optimizer step, and the number of their labels if the loss is divided by it."""
        batches = list(itertools.islice(epoch_iterator, num_batches))
        self.metrics.start_step(batches)
        self.objective.count(batches)
        divides = batches and (self.model_accepts_loss_kwargs or self.compute_loss_func is not None)
        return batches, self.over_processes(
            sum(map(label_count, batches), torch.zeros((), dtype=torch.long))
        ) if divides else None

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Returns the loss for Trainer's own sum, in which one that is not finite would stay for ever."""
        loss = super().training_step(model, inputs, num_items_in_batch)
        if len(self.objective.loss_parts) == 1:
            self.metrics.add_losses([loss])
        return loss.nan_to_num(0.0, 0.0, 0.0)

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        compute = functools.partial(super().compute_loss, model, num_items_in_batch=num_items_in_batch)
        return self.objective.loss(compute, inputs, return_outputs, num_items_in_batch)

    def create_optimizer(self, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        return self.objective.optimizer(functools.partial(super().create_optimizer, *args, **kwargs))

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """`num_decay_steps` below 1 is a share of all steps, as of `warmup_steps`."""
        own = self.course.scheduler(self.optimizer if optimizer is None else optimizer)
        if own is not None:
            self.lr_scheduler = own
            return own
        given = self.args.lr_scheduler_kwargs
        if 0 < (given or {}).get("num_decay_steps", 1) < 1:
            share = {"num_decay_steps": round(given["num_decay_steps"] * num_training_steps)}
            self.args.lr_scheduler_kwargs = given | share
        try:
            return super().create_scheduler(num_training_steps, optimizer)
        except TypeError as error:
            raise UserError(f"--lr-scheduler-kwargs: {error}") from error
        finally:
            self.args.lr_scheduler_kwargs = given

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Tensor | float:
        norm = super()._get_grad_norm(model, grad_norm)
        if self.nonfinite.check_gradient(self.state.global_step, norm, self.args.device):
            self.model_wrapped.zero_grad()  # the optimizer passes over parameters without a gradient
        return norm

    def report_speed(self, seconds: float, steps: int, first: int) -> None:
        """Called once with the mean of a step over `steps` measured ones and the steps done before this session."""
        self.seconds_per_step = seconds
        self.objective.report_speed(seconds, steps, first)

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Nothing if `store_flos` counts useful operations by real tokens."""
        return 0 if self.objective.flops_per_token() else super().floating_point_ops(inputs)

    def store_flos(self) -> None:
        """Moves tokens and operations into the state; Trainer calls it before every log and checkpoint."""
        tokens = self.metrics.take_tokens()
        if rate := self.objective.flops_per_token():
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
            logs = logs | self.objective.logs(self.training_logs())
        elif self.has_best_model:
            return
        times = {"seconds": round(self.metrics.seconds, 3)}
        if self.args.device.type == "cpu":
            times["threads"] = torch.get_num_threads()
            if threads.are_cores_lacking:
                times["free_cores"] = round(threads.free_cores, 2)
        super().log(logs | times | {"tokens": self.state.num_input_tokens_seen}, start_time)
        self.history.append(self.state.log_history[-1])

    def training_logs(self) -> dict[str, float]:
        """The log entry for the steps since the last log. All processes must call it."""
        seconds, steps = self.metrics.seconds - self.metrics.logged_seconds, self.metrics.read_steps()
        losses = [math.fsum(step.losses) for step in steps]
        skipped = self.nonfinite.check_losses(self.state.global_step - len(steps), losses)
        logs = self.metrics.take_logs(skipped, self.state.num_input_tokens_seen) | self.measures.take()
        if self.args.device.type == "cpu":
            logs["optimizer_share"] = round(self.measures.take_optimizer_seconds() / max(seconds, 1e-9), 4)
        return logs

    # Checkpoints

    def checkpoint_bytes(self) -> int:
        """Approximate size of a checkpoint on disk."""
        return COPIES_IN_A_CHECKPOINT * sum(weight.nbytes for weight in self.model.parameters())

    def _get_output_dir(self, trial: Any) -> str:
        return super()._get_output_dir(trial) if self.partial_folder is None else str(self.partial_folder)

    def _save_checkpoint(self, model: nn.Module, trial: Any = None) -> None:
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

    def extra_states(self) -> dict[str, dict[str, Any]]:
        """Name and content of further JSON files of a checkpoint. All processes must call it."""
        own = {"skipped": self.nonfinite.skipped, "threads": torch.get_num_threads()}
        return {METRICS: self.metrics.state_dict() | own} | self.course.states()

    # Evaluation

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        if self.is_in_train:
            self.store_flos()  # the evaluation is logged with all tokens so far, also between two logs of training
        self.objective.begin_evaluation()
        with self.metrics.paused("evaluate"):
            metrics = super().evaluate(*args, **kwargs)
            self.objective.after_evaluation(metrics)
        return metrics

    def prediction_step(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        compute = functools.partial(super().prediction_step, model, inputs, *args, **kwargs)
        return self.objective.predict(compute, model, inputs)

    @property
    def has_best_model(self) -> bool:
        """After training, whether the model is the best one, whose evaluation is not that of the last step."""
        return not self.is_in_train and self.args.load_best_model_at_end


def label_count(batch: Mapping[str, Tensor]) -> Tensor:
    """The number of labels of a batch; -100 stands for none, in regression it is a number."""
    labels = batch["start_positions"] if "start_positions" in batch else batch["labels"]
    return torch.tensor(labels.numel()) if labels.is_floating_point() else (labels != -100).sum()
