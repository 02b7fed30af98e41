"""Masked language modelling and next-sentence prediction."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import datasets
import numpy as np
import torch
from torch import Tensor, nn
from transformers import TrainingArguments

from mybert.common.quantities import counted, duration, with_unit
from mybert.pretraining.courses import EpochCourse, ScheduledCourse
from mybert.pretraining.data.batching import ExampleDataset, HeldOutDataset, example_lengths
from mybert.pretraining.data.masking import IGNORED
from mybert.pretraining.evaluation import batch_sums, metrics_of
from mybert.pretraining.planning.flops_and_memory import CorpusShape, Phase, flops_left
from mybert.pretraining.samples import Samples, write_sample
from mybert.pretraining.sharding import shard
from mybert.training.muon import MuonAdamW
from mybert.training.objective import Objective
from mybert.training.speed import measure_training_peak
from mybert.training.trainer import RunTrainer


class Pretraining(Objective):
    """Each loss is a mean over the whole optimizer step, and an evaluation sums over its batches.

    A loss is a sum over labelled tokens (or pairs) divided by their number in all accumulated batches and processes:
    accumulation and data parallelism give the gradient of one big batch. The mask of an example depends on its epoch
    and index only, so a resumed run reproduces it.

    Args:
        corpus: examples written by `mybert corpus`.
        course: passes over the corpus, or a schedule of length, batch size and masking, which may end by a clock.
        muon: train with `MuonAdamW` instead of the optimizer of the arguments.
        peak_flops: floating point operations per second that a device could do (default: measured).

    Attributes:
        lengths: tokens of the examples, (N,).
    """

    remedy = (
        "nothing was saved after it. --resume continues from the last checkpoint, with --on-nonfinite skip it skips "
        "such steps; a lower --learning-rate needs a new run"
    )

    def __init__(
        self,
        corpus: datasets.Dataset,
        course: EpochCourse | ScheduledCourse | None = None,
        muon: bool = False,
        peak_flops: float | None = None,
    ):
        self.course, self._muon = course or EpochCourse(), muon
        self._peak, self._measures_peak = peak_flops or 0.0, not peak_flops
        self.lengths, self.examples = example_lengths(corpus), ExampleDataset(corpus)
        self.loss_parts = ("mlm_loss", "nsp_loss")[: 1 + self.examples.has_pairs]
        self._pairs_in_step: Tensor | None = None
        self._token_counts: Tensor | None = None

    def trainer_of(
        self, arguments: TrainingArguments, held_out: datasets.Dataset | None = None, **more: Any
    ) -> RunTrainer:
        """A trainer with this objective; `more` as in `RunTrainer`, with a `PretrainingCollator`."""
        arguments.remove_unused_columns = False  # the dataset returns batches, not columns
        arguments.batch_eval_metrics = False  # batches are reduced to sums already
        whole_batches = arguments.world_size > 1 or arguments.dataloader_drop_last
        multiple = arguments.world_size * arguments.eval_batch_size if whole_batches else 1
        return RunTrainer(
            objective=self,
            course=self.course,
            args=arguments,
            train_dataset=self.examples,
            eval_dataset=None if held_out is None else HeldOutDataset(held_out, multiple),
            compute_metrics=lambda evaluation: self.metrics_from(np.asarray(evaluation.predictions)),
            **more,
        )

    def phase(self, lengths: np.ndarray, steps: int, sequences: float, mlm_probability: float) -> Phase:
        """A phase on examples of these lengths, (N,); `sequences` are those of a forward pass of one device."""
        each_step = sequences * self.course.batches_per_step
        shape = CorpusShape.of(lengths)
        costs = shape.costs(self.trainer.model.config, mlm_probability, self.examples.has_pairs)
        return Phase(shape, steps, each_step, sequences, costs)

    # Losses

    def count(self, batches: Sequence[Mapping[str, Any]]) -> None:
        """Counts the pairs of a step."""
        labels = [batch["next_sentence_label"] for batch in batches if "next_sentence_label" in batch]
        pairs = [(label != IGNORED).sum() for label in labels]
        self._pairs_in_step = self.trainer.over_processes(sum(pairs)) if pairs else None

    def loss(
        self, compute: Callable[..., Any], inputs: dict[str, Any], with_outputs: bool, items: Tensor | None
    ) -> Any:
        if self._pairs_in_step is not None:
            inputs = {**inputs, "num_pairs_in_batch": self._pairs_in_step}
        loss, outputs = compute(inputs, True)
        if len(self.loss_parts) > 1:
            own = (outputs.mlm_loss, outputs.nsp_loss)[: 1 + self.examples.has_pairs]
            self.trainer.metrics.add_losses([None if part is None else part * self.trainer.loss_scale for part in own])
        return (loss, outputs) if with_outputs else loss

    def optimizer(self, create: Callable[[], torch.optim.Optimizer]) -> torch.optim.Optimizer:
        trainer = self.trainer
        if trainer.is_fsdp_enabled and trainer.accelerator.state.fsdp_plugin.fsdp_version == 2:
            shard(trainer.model, trainer.accelerator.state.fsdp_plugin)
        if self._muon and trainer.optimizer is None:
            decayed = trainer.get_decay_parameter_names(trainer.model)
            trainer.optimizer = MuonAdamW.of(trainer.model, decayed, self.args)
        return create()

    # Log

    def logs(self, logs: dict[str, float]) -> dict[str, float]:
        logs.setdefault("mlm_loss", logs["loss"])
        flops = logs["tokens_per_second"] * self.flops_per_token()
        if flops:
            logs["seconds_left"] = round(flops_left(self.course.phases, self.trainer.state.global_step) / flops)
            rate = flops / self.args.world_size
            if self._measures_peak:  # under load it may be lower than the rate of the training
                self._peak = max(self._peak or measure_training_peak(self.args), rate)
            logs["mfu"] = round(rate / self._peak, 4)
        if (clock := self.course.clock) is not None:
            logs["seconds_left"] = round((1 - clock.done) * clock.training_seconds)
        if self.trainer.nonfinite.skipped:
            logs["steps_skipped"] = len(self.trainer.nonfinite.skipped)
        return logs

    def flops_per_token(self) -> float:
        return self.course.current_phase().costs.flops_per_token

    def report_speed(self, seconds: float, steps: int, first: int) -> None:
        """Prints the time of the run; steps of another phase are scaled by their number of operations."""
        if self.trainer.is_world_process_zero():
            print(self.time_message(seconds, steps, first), flush=True)

    def time_message(self, seconds: float, steps: int, first: int) -> str:
        phase = self.course.current_phase()
        measured = f"measured {counted(steps, 'step')}: {seconds:.3g} s per step, "
        measured += f"{phase.tokens_per_step / seconds:,.0f} tokens/s"
        if self.course.clock is not None:
            return measured
        rate = phase.flops_per_step / seconds
        which, start = ("in total", first) if self.trainer.dry_run else ("left", self.trainer.state.global_step)
        left = duration(flops_left(self.course.phases, start) / rate)
        return f"{measured}, {with_unit(rate, 'FLOP/s')}; {left} of training {which}, without evaluation"

    # Evaluation

    def begin_evaluation(self) -> None:
        self._token_counts = torch.zeros(2, self.trainer.model.config.vocab_size, device=self.args.device)

    def predict(
        self, compute: Callable[[], tuple[Any, ...]], model: nn.Module, inputs: dict[str, Any]
    ) -> tuple[Any, ...]:
        """No loss, the sums of the batch, and a stand-in for labels, which Trainer needs to compute metrics."""
        with torch.no_grad(), self.trainer.compute_loss_context_manager():
            sums, _ = self.evaluate_batch(model, inputs)
        return None, sums, sums.new_zeros(1)

    def evaluate_batch(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Tensor, Any]:
        """The sums of a batch for `metrics_from`, (1, n), and the outputs of the model."""
        outputs = model(**inputs | {"sparse_logits": True})
        return batch_sums(inputs, outputs, self._token_counts), outputs

    def metrics_from(self, sums: np.ndarray) -> dict[str, float]:
        """The metrics of an evaluation from the sums of its batches."""
        return metrics_of(sums)

    def token_counts(self) -> Tensor:
        """(2, V) how often each token was labelled, and predicted correctly, in the last evaluation."""
        if self._token_counts is None:  # a finished run was resumed
            self.begin_evaluation()
            self.trainer.evaluation_loop(self.trainer.get_eval_dataloader(), "evaluation")
        return self.trainer.accelerator.reduce(self._token_counts)

    @cached_property
    def _samples(self) -> Samples:
        return Samples(self.trainer.eval_dataset, self.trainer.processing_class)

    def after_evaluation(self, metrics: dict[str, float]) -> None:
        """Writes samples.jsonl. All processes ask the model, since its weights may be sharded."""
        trainer, file = self.trainer, self.trainer.history.path
        if trainer.has_best_model or trainer.processing_class is None or (file is None and self.args.world_size == 1):
            return
        if not math.isfinite(metrics["eval_loss"]):  # it would predict nothing
            return
        sample = self._samples.ask(trainer.model, self.args.device)
        if file is not None:
            place = {"step": trainer.state.global_step, "tokens": trainer.state.num_input_tokens_seen}
            write_sample(self.args.output_dir, place | {"seconds": round(trainer.metrics.seconds, 3)} | sample)
