"""Masked language modelling and next-sentence prediction."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Sampler
from transformers import TrainerState, TrainingArguments

from modeling_mybert.operations_mybert import at_least_one
from mybert.common.quantities import counted, duration, with_unit
from mybert.pretraining.data.batching import FILLER, EpochSampler, ExampleDataset, HeldOutDataset
from mybert.pretraining.data.masking import IGNORED
from mybert.pretraining.data.token_budget import TokenBudget, TokenBudgetBatchSampler, example_lengths
from mybert.pretraining.evaluation import batch_sums, metrics_from_sums
from mybert.pretraining.pace import Pace
from mybert.pretraining.planning.phases import CorpusShape, Phase, flops_left, phase_at
from mybert.pretraining.samples import Samples, write_sample
from mybert.pretraining.sharding import shard
from mybert.pretraining.token_accuracy import TokenAccuracy
from mybert.training.epochs import innermost_sampler, steps_per_epoch
from mybert.training.muon import MuonAdamW
from mybert.training.nonfinite import LossSpikes
from mybert.training.objective import Objective
from mybert.training.run_progress import ClockProgress
from mybert.training.speed import measure_peak
from mybert.training.trainer import RunTrainer

logger = logging.getLogger(__name__)


class Pretraining(Objective):
    """Each loss is a mean over the whole optimizer step, and an evaluation sums over its batches.

    A loss is a sum over labelled tokens (or pairs) divided by their number in all accumulated batches and processes:
    accumulation and data parallelism give the gradient of one big batch. The mask of an example depends on its epoch
    and index only, so a resumed run reproduces it.

    Args:
        corpora: examples written by `mybert corpus`; a second corpus is read in the last `phase2_share` of the steps.
        max_tokens_per_batch: largest number of real tokens in a batch; None for `per_device_train_batch_size`
            sequences.
        muon: train with `MuonAdamW` instead of the optimizer of the arguments.
        pace: a schedule of length, batch size and masking, or a time budget; None for passes over the corpora.
        comparison: in a distillation, a `mybert.distillation.teacher.Comparison`: the teacher and its losses.
        peak_flops: floating point operations per second that a device could do (default: measured).

    Attributes:
        examples: those of all corpora.
        lengths: tokens of the examples of each corpus, (N,).
        phases: the arithmetic of the run's one or two phases.
    """

    remedy = (
        "nothing was saved after it. --resume continues from the last checkpoint, with --on-nonfinite skip it skips "
        "such steps; a lower --learning-rate needs a new run"
    )

    def __init__(
        self,
        *corpora: datasets.Dataset,
        phase2_share: float = 0.1,
        max_tokens_per_batch: int | None = None,
        muon: bool = False,
        pace: Pace | None = None,
        comparison: Any = None,
        peak_flops: float | None = None,
    ):
        self.phase2_share, self.pace, self.comparison, self._muon = phase2_share, pace, comparison, muon
        self._max_tokens, self._peak, self._is_peak_given = max_tokens_per_batch, peak_flops or 0.0, bool(peak_flops)
        self._first_length = len(corpora[0])
        self.lengths = [example_lengths(corpus) for corpus in corpora]
        self.examples = ExampleDataset(corpora[0] if len(corpora) == 1 else datasets.concatenate_datasets([*corpora]))
        further = comparison.names if comparison else ()
        own = ("mlm_loss", "nsp_loss")[: 1 + self.examples.has_pairs]
        self.loss_parts = (*own, *(f"{name}_loss" for name in further))
        self._pairs_in_step: Tensor | None = None
        self.token_accuracy: TokenAccuracy | None = None
        self._spikes = LossSpikes()

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
            args=arguments,
            train_dataset=self.examples,
            eval_dataset=None if held_out is None else HeldOutDataset(held_out, multiple),
            compute_metrics=self.comparison.metrics_from_sums if self.comparison else metrics_from_sums,
            **more,
        )

    def begin(self, trainer: RunTrainer) -> None:
        super().begin(trainer)
        self.args = trainer.args
        if self.pace:
            self.pace.begin(self)
        if self.comparison:
            self.comparison.teacher.to(self.args.device)

    @property
    def corpus_tokens(self) -> int:
        return sum(int(lengths.sum()) for lengths in self.lengths)

    # The course of the run

    def planned_steps(self) -> int | None:
        return self.pace.planned_steps() if self.pace else None

    def load(self, checkpoint: Path) -> None:
        if self.pace:
            self.pace.load(checkpoint)

    def states(self) -> dict[str, dict[str, Any]]:
        return self.pace.states() if self.pace else {}

    @property
    def clock(self) -> ClockProgress | None:
        """The clock of a time budget."""
        return self.pace.clock if self.pace else None

    def resumed_message(self, state: TrainerState, steps: int) -> str:
        if self.clock is None:
            return super().resumed_message(state, steps)
        return f"{state.global_step:,} steps are done, {self.clock.share(0):.0%} of the time for training is used"

    def scheduler(self, optimizer: torch.optim.Optimizer) -> LRScheduler | None:
        return self.pace.scheduler(optimizer) if self.pace and self.pace.clock else None

    @property
    def batch_size(self) -> int:
        """Sequences per device and forward pass, which --auto-find-batch-size may have reduced."""
        in_all = self.args.gradient_accumulation_steps * self.args.world_size
        return self.trainer.get_total_train_batch_size(self.args) // in_all

    @cached_property
    def phases(self) -> list[Phase]:
        if self.pace:
            return self.pace.phases
        loader = self.trainer.get_train_dataloader()
        steps = self.trainer.steps_with(loader)
        in_batch = [self.batch_size] * 2
        if self._max_tokens is not None:
            sampler = innermost_sampler(loader)
            in_batch = [len(budget.lengths) / budget.batches for budget in (sampler.first, sampler.second) if budget]
        first = round(steps * (1 - self.phase2_share)) if len(self.lengths) > 1 else steps
        masked = self.trainer.data_collator.masker.probability
        parts = zip(self.lengths, (first, steps - first), in_batch, strict=False)
        return [self.phase(lengths, part, sequences, masked) for lengths, part, sequences in parts]

    def phase(self, lengths: np.ndarray, steps: int, sequences: float, mlm_probability: float) -> Phase:
        """A phase on examples of these lengths, (N,); `sequences` are those of a forward pass of one device."""
        each_step = sequences * self.args.gradient_accumulation_steps * self.args.world_size
        shape = CorpusShape.of(lengths)
        costs = shape.costs(self.trainer.model.config, mlm_probability, self.examples.has_pairs)
        return Phase(shape, steps, each_step, sequences, costs)

    def current_phase(self) -> Phase:
        return self.pace.current_phase() if self.pace else phase_at(self.phases, self.trainer.state.global_step)

    # Examples

    def sampler(self) -> EpochSampler:
        multiple = 1 if self.args.dataloader_drop_last else self.args.world_size * self.batch_size
        second_length = len(self.examples) - self._first_length
        return EpochSampler(
            self._first_length, self.trainer.order_seed, second_length, multiple if self.args.world_size > 1 else 1
        )

    def batch_sampler(self) -> Sampler[Any] | None:
        if self.pace:
            return self.pace.sampler
        if self._max_tokens is None:
            return None
        by_length = self.args.train_sampling_strategy == "group_by_length"
        budgets = [
            TokenBudget(lengths, self._max_tokens, self.trainer.order_seed, self.args.world_size, by_length)
            for lengths in self.lengths
        ]
        return TokenBudgetBatchSampler(*budgets)

    def use_loader(self, loader: DataLoader[Any]) -> None:
        """Tells the sampler where the second corpus begins."""
        if len(self.lengths) > 1:
            first = round(self.trainer.steps_with(loader) * (1 - self.phase2_share))
            epochs, steps = divmod(first, steps_per_epoch(loader, self.args.gradient_accumulation_steps))
            batches = steps * self.args.gradient_accumulation_steps * self.args.world_size
            sampler = innermost_sampler(loader)
            if self._max_tokens is None:
                sampler.switch = epochs * self._first_length + batches * self.batch_size
            else:
                sampler.switch = epochs * len(sampler) + batches

    def name_examples(self, step: int) -> str:
        """The examples that all processes read in a step, counted from 0. All processes must call it."""
        if self.pace:
            return self.pace.name_examples(step)
        loader: Any = self.trainer.callback_handler.train_dataloader
        sampler = innermost_sampler(loader)
        now = sampler.epoch
        epoch, steps = divmod(step, steps_per_epoch(loader, self.args.gradient_accumulation_steps))
        sampler.set_epoch(epoch)
        if self._max_tokens is None:
            sampler.skip = steps * self.trainer.get_total_train_batch_size(self.args)
        first = steps * self.args.gradient_accumulation_steps
        batches = islice(loader.batch_sampler, first, first + self.args.gradient_accumulation_steps)
        keys = sorted(key for key in gather_object(list(chain.from_iterable(batches))) if key[0] != FILLER)
        sampler.set_epoch(now)
        named = []
        for corpus, first in (("corpus", 0), ("phase2_corpus", self._first_length)):
            read = [key for key in keys if (key[1] >= self._first_length) == (first > 0)]
            if read:
                numbers = ", ".join(str(index - first) for _, index in read)
                named.append(f"examples {numbers} in pass {read[0][0] + 1} over the {corpus}")
        return " and ".join(named)

    def describe_step(self, step: int) -> str:
        return f", computed from {self.name_examples(step)}"

    # Losses

    def count(self, batches: Sequence[Mapping[str, Any]]) -> None:
        """Counts the pairs of a step."""
        labels = [batch["next_sentence_label"] for batch in batches if "next_sentence_label" in batch]
        pairs = [(label != IGNORED).sum() for label in labels]
        self._pairs_in_step = self.trainer.over_processes(sum(pairs)) if pairs else None

    @property
    def _student(self) -> nn.Module:
        return self.trainer.accelerator.unwrap_model(self.trainer.model)

    def loss(
        self, compute: Callable[..., Any], inputs: dict[str, Any], with_outputs: bool, items: Tensor | None
    ) -> Any:
        """The loss of the pretraining heads; in a distillation, its weighted sum with those of the comparison.

        The teacher's means over the tokens of a batch are weighted by the batch's share of the labelled tokens of the
        step, so that accumulated batches give the mean of the step.
        """
        labels = inputs["labels"]
        if self.comparison:
            inputs = self.comparison.student_inputs(self._student, inputs)
        if self._pairs_in_step is not None:
            inputs = {**inputs, "num_pairs_in_batch": self._pairs_in_step}
        loss, outputs = compute(inputs, True)
        own = (outputs.mlm_loss, outputs.nsp_loss)[: 1 + self.examples.has_pairs]
        parts = [None if part is None else part * self.trainer.loss_scale for part in own]
        if self.comparison:
            found, _ = self.comparison.losses(self._student, inputs, outputs.prediction_logits, outputs.hidden_states)
            share = self.trainer.loss_scale * (labels != IGNORED).sum() / at_least_one(0 if items is None else items)
            found = {name: part * share for name, part in found.items()}
            loss, parts = self.comparison.total(loss, found), [*parts, *found.values()]
        if len(self.loss_parts) > 1:
            self.trainer.metrics.add_losses(parts)
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
        if self.comparison:
            hard = logs["mlm_loss"] + logs.get("nsp_loss", 0.0)
            logs["loss"] = self.comparison.total(hard, {name: logs[f"{name}_loss"] for name in self.comparison.names})
        flops = logs["tokens_per_second"] * self.flops_per_token()
        if flops:
            logs["seconds_left"] = round(flops_left(self.phases, self.trainer.state.global_step) / flops)
            rate = flops / self.args.world_size
            logs["mfu"] = round(rate / self._device_peak(rate), 4)
        if self.pace and self.pace.clock is not None:
            logs["seconds_left"] = round((1 - self.pace.share) * self.pace.clock.training_seconds)
        if self.trainer.nonfinite.skipped:
            logs["steps_skipped"] = len(self.trainer.nonfinite.skipped)
        return logs

    def watch_losses(self, losses: dict[int, float]) -> None:
        for step, median in self._spikes.find(losses, self.current_phase()):
            examples = self.name_examples(step)
            if self.trainer.is_world_process_zero():
                logger.warning("step %d: loss %.4g after %.4g, %s", step + 1, losses[step], median, examples)

    def flops_per_token(self) -> float:
        return self.current_phase().costs.flops_per_token

    def _device_peak(self, reached: float) -> float:
        """Peak floating point operations per second of the device, measured if it was not given.

        Args:
            reached: operations per second in training; a measured peak that is lower was measured under load.
        """
        if not self._peak:
            device, types = self.args.device, [torch.float32]
            if self.args.bf16 or self.args.fp16:
                half = torch.bfloat16 if self.args.bf16 else torch.float16
                types = [half, torch.float32] if device.type == "cpu" and self.args.bf16 else [half]  # may be emulated
            self._peak = max(measure_peak(device, dtype) for dtype in types)
        self._peak = self._peak if self._is_peak_given else max(self._peak, reached)
        return self._peak

    def report_speed(self, seconds: float, steps: int, first: int) -> None:
        """Prints the time of the run; steps of another phase are scaled by their number of operations."""
        if self.trainer.is_world_process_zero():
            print(self.time_message(seconds, steps, first), flush=True)

    def time_message(self, seconds: float, steps: int, first: int) -> str:
        phase = self.current_phase()
        measured = f"measured {counted(steps, 'step')}: {seconds:.3g} s per step, "
        measured += f"{phase.tokens_per_step / seconds:,.0f} tokens/s"
        if self.clock is not None:
            return measured
        rate = phase.flops_per_step / seconds
        which, start = ("in total", first) if self.trainer.dry_run else ("left", self.trainer.state.global_step)
        left = duration(flops_left(self.phases, start) / rate)
        return f"{measured}, {with_unit(rate, 'FLOP/s')}; {left} of training {which}, without evaluation"

    # Evaluation

    def begin_evaluation(self) -> None:
        self.token_accuracy = TokenAccuracy(self.trainer.model.config.vocab_size, self.args.device)

    def predict(
        self, compute: Callable[[], tuple[Any, ...]], model: nn.Module, inputs: dict[str, Any]
    ) -> tuple[Any, ...]:
        """No loss, the sums of the batch (1, 6), and a stand-in for labels, which Trainer needs to compute metrics.

        In a distillation the sums of the comparison follow.
        """
        labels = inputs["labels"]
        if self.comparison:
            inputs = self.comparison.student_inputs(self._student, inputs)
        with torch.no_grad(), self.trainer.compute_loss_context_manager():
            outputs = model(**inputs | {"sparse_logits": True})
            sums = self.sums_of(inputs, outputs)
            if self.comparison:
                others = self.comparison.evaluation_sums(self._student, labels, inputs, outputs)
                sums = torch.cat([sums, others.to(sums)], dim=1)
        return None, sums, sums.new_zeros(1)

    def sums_of(self, inputs: dict[str, Any], outputs: Any) -> Tensor:
        """(1, 6): see `batch_sums`."""
        labels, pairs = inputs["labels"].flatten()[inputs["masked_lm_positions"]], inputs.get("next_sentence_label")
        logits = outputs.prediction_logits.float()  # the CPU finds the largest of numbers in 16 bits slowly
        correct = logits.argmax(-1) == labels
        if self.token_accuracy is not None:
            self.token_accuracy.add(labels, correct)
        return batch_sums(logits, labels, correct, outputs.seq_relationship_logits, pairs)

    def token_counts(self) -> Tensor:
        """(2, V) how often each token was labelled, and predicted correctly, in the last evaluation."""
        if self.token_accuracy is None:  # a finished run was resumed
            self.begin_evaluation()
            self.trainer.evaluation_loop(self.trainer.get_eval_dataloader(), "evaluation")
        assert self.token_accuracy is not None
        return self.trainer.accelerator.reduce(self.token_accuracy.counts)

    @cached_property
    def _samples(self) -> Samples:
        return Samples(self.trainer.eval_dataset, self.trainer.processing_class)

    def after_evaluation(self, metrics: dict[str, float]) -> None:
        """Writes samples.jsonl. All processes ask the model, since its weights may be sharded."""
        trainer, file = self.trainer, self.trainer.history.path
        if trainer.has_best_model or trainer.processing_class is None or (file is None and self.args.world_size == 1):
            return
        sample = self._samples.ask(trainer.model, self.args.device)
        if file is not None:
            place = {"step": trainer.state.global_step, "tokens": trainer.state.num_input_tokens_seen}
            write_sample(self.args.output_dir, place | {"seconds": round(trainer.metrics.seconds, 3)} | sample)
