"""transformers' Trainer for masked language modelling and next-sentence prediction."""

import logging
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar

import datasets
import numpy as np
import torch
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler
from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME

from modeling_mybert.operations_mybert import at_least_one
from modeling_mybert.pretraining_heads_mybert import MyBertForPreTrainingOutput
from mybert.common.quantities import counted, duration, with_unit
from mybert.pretraining.data.batching import FILLER, EpochSampler, ExampleDataset, Key, evaluation_keys
from mybert.pretraining.data.masking import IGNORED
from mybert.pretraining.data.token_budget import TokenBudget, TokenBudgetBatchSampler, example_lengths
from mybert.pretraining.evaluation import batch_sums, metrics_from_sums
from mybert.pretraining.loss_spikes import LossSpikes
from mybert.pretraining.pace import Pace
from mybert.pretraining.planning.phases import CorpusShape, Phase, flops_left, phase_at
from mybert.pretraining.samples import Samples, write_sample
from mybert.pretraining.sharding import shard
from mybert.pretraining.token_accuracy import TokenAccuracy
from mybert.training.epochs import innermost_sampler, steps_per_epoch
from mybert.training.loader_workers import ignore_signals_in_workers
from mybert.training.muon import MuonAdamW
from mybert.training.run_progress import ClockProgress
from mybert.training.trainer import RunTrainer

logger = logging.getLogger(__name__)


class MyBertTrainer(RunTrainer):
    """Trains on keyed examples; each loss is a mean over the whole optimizer step, and evaluation sums over batches.

    A loss is a sum over labelled tokens (or pairs) divided by their number in all accumulated batches and processes:
    accumulation and data parallelism give the gradient of one big batch. The mask of an example depends on its epoch
    and index only, so a resumed run reproduces it.

    Args:
        train_dataset, eval_dataset: examples written by `mybert corpus`.
        phase2_dataset: a second corpus, read in the last `phase2_share` of the steps.
        max_tokens_per_batch: largest number of real tokens in a batch; None for `per_device_train_batch_size`
            sequences.
        muon: train with `MuonAdamW` instead of the optimizer of the arguments.
        pace: a schedule of length, batch size and masking, or a time budget; None for passes over the corpora.
        comparison: in a distillation, a `mybert.distillation.teacher.Comparison`: the teacher and its losses.
        kwargs: as in `RunTrainer`; `data_collator` is a `PretrainingCollator`.

    Attributes:
        corpus_tokens: tokens of the training examples.
        phases: the arithmetic of the run's one or two phases.
    """

    loss_parts: ClassVar[tuple[str, ...]] = ("mlm_loss", "nsp_loss")
    remedy: ClassVar[str] = (
        "nothing was saved after it. --resume continues from the last checkpoint, with --on-nonfinite skip it skips "
        "such steps; a lower --learning-rate needs a new run"
    )

    def __init__(
        self,
        *args,
        train_dataset: datasets.Dataset,
        eval_dataset: datasets.Dataset | None = None,
        phase2_dataset: datasets.Dataset | None = None,
        phase2_share: float = 0.1,
        max_tokens_per_batch: int | None = None,
        muon: bool = False,
        pace: Pace | None = None,
        comparison: Any = None,
        **kwargs,
    ):
        self.pace, self.comparison = pace, comparison
        self._corpora = [corpus for corpus in (train_dataset, phase2_dataset) if corpus is not None]
        self._first_length = len(train_dataset)
        self.phase2_share = phase2_share
        self._max_tokens = max_tokens_per_batch
        self._muon = muon
        self._lengths = [example_lengths(corpus) for corpus in self._corpora]
        train = ExampleDataset(
            train_dataset if phase2_dataset is None else datasets.concatenate_datasets(self._corpora)
        )
        further = comparison.names if comparison else ()
        self.loss_parts = (*self.loss_parts[: 1 + train.has_pairs], *(f"{name}_loss" for name in further))
        super().__init__(
            *args,
            train_dataset=train,
            eval_dataset=None if eval_dataset is None else ExampleDataset(eval_dataset),
            compute_metrics=comparison.metrics_from_sums if comparison else metrics_from_sums,
            **kwargs,
        )
        self.args.remove_unused_columns = False  # the dataset returns batches, not columns
        self.args.batch_eval_metrics = False  # batches are reduced to sums already
        self._pairs_in_step: Tensor | None = None
        self.token_accuracy: TokenAccuracy | None = None
        self._spikes = LossSpikes()
        if pace:
            pace.begin(self, train_dataset, self._lengths[0])
        if comparison:
            comparison.teacher.to(self.args.device)

    @property
    def corpus_tokens(self) -> int:
        return sum(int(lengths.sum()) for lengths in self._lengths)

    @property
    def batch_size(self) -> int:
        """Sequences per device and forward pass, which --auto-find-batch-size may have reduced."""
        in_all = self.args.gradient_accumulation_steps * self.args.world_size
        return self.get_total_train_batch_size(self.args) // in_all

    # The course of the run

    def planned_steps(self) -> int:
        return self.pace.planned_steps() if self.pace else super().planned_steps()

    def run(self, checkpoint: Path | None) -> bool:
        if self.pace and checkpoint is not None:
            self.state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
            self.pace.load(checkpoint)
        trained = super().run(checkpoint)
        if self.clock is not None:
            self.args.max_steps = self.state.global_step  # it was only a bound
        return trained

    @property
    def clock(self) -> ClockProgress | None:
        """The clock of a time budget."""
        return self.pace and self.pace.clock

    def resumed_message(self, state: TrainerState, steps: int) -> str:
        if self.clock is None:
            return super().resumed_message(state, steps)
        return f"{state.global_step:,} steps are done, {self.clock.share(0):.0%} of the time for training is used"

    def extra_states(self) -> dict[str, dict]:
        return super().extra_states() | (self.pace.states() if self.pace else {})

    @cached_property
    def phases(self) -> list[Phase]:
        if self.pace:
            return self.pace.phases
        loader = self.get_train_dataloader()
        *_, steps = self.set_initial_training_values(self.args, loader)
        in_batch = [self.batch_size] * 2
        if self._max_tokens is not None:
            sampler = innermost_sampler(loader)
            in_batch = [len(budget.lengths) / budget.batches for budget in (sampler.first, sampler.second) if budget]
        first = round(steps * (1 - self.phase2_share)) if len(self._corpora) > 1 else steps
        masked = self.data_collator.masker.probability
        parts = zip(self._lengths, (first, steps - first), in_batch, strict=False)
        return [self.phase(lengths, part, sequences, masked) for lengths, part, sequences in parts]

    def phase(self, lengths: np.ndarray, steps: int, sequences: float, mlm_probability: float) -> Phase:
        """A phase on examples of these lengths, (N,); `sequences` are those of a forward pass of one device."""
        each_step = sequences * self.args.gradient_accumulation_steps * self.args.world_size
        shape = CorpusShape.of(lengths)
        costs = shape.costs(self.model.config, mlm_probability, self.train_dataset.has_pairs)
        return Phase(shape, steps, each_step, sequences, costs)

    def current_phase(self) -> Phase:
        return self.pace.current_phase() if self.pace else phase_at(self.phases, self.state.global_step)

    def create_scheduler(self, num_training_steps: int, optimizer=None) -> torch.optim.lr_scheduler.LRScheduler:
        """`num_decay_steps` below 1 is a share of all steps, as of `warmup_steps`."""
        if self.clock is not None:
            self.lr_scheduler = self.pace.scheduler(self.optimizer if optimizer is None else optimizer)
            return self.lr_scheduler
        given = self.args.lr_scheduler_kwargs
        if 0 < (given or {}).get("num_decay_steps", 1) < 1:
            share = {"num_decay_steps": round(given["num_decay_steps"] * num_training_steps)}
            self.args.lr_scheduler_kwargs = given | share
        try:
            return super().create_scheduler(num_training_steps, optimizer)
        finally:
            self.args.lr_scheduler_kwargs = given

    # Examples

    def _get_train_sampler(self, train_dataset=None) -> EpochSampler:
        multiple = 1 if self.args.dataloader_drop_last else self.args.world_size * self.batch_size
        second_length = len(self.train_dataset) - self._first_length
        return EpochSampler(
            self._first_length, self.order_seed, second_length, multiple if self.args.world_size > 1 else 1
        )

    def get_train_dataloader(self) -> DataLoader:
        if self.pace:
            return self.batched_loader(self.pace.sampler)
        loader = super().get_train_dataloader() if self._max_tokens is None else self._token_budget_loader()
        if len(self._corpora) > 1:
            *_, max_steps = self.set_initial_training_values(self.args, loader)
            first = round(max_steps * (1 - self.phase2_share))
            epochs, steps = divmod(first, steps_per_epoch(loader, self.args.gradient_accumulation_steps))
            batches = steps * self.args.gradient_accumulation_steps * self.args.world_size
            sampler = innermost_sampler(loader)
            if self._max_tokens is None:
                sampler.switch = epochs * self._first_length + batches * self.batch_size
            else:
                sampler.switch = epochs * len(sampler) + batches
        return loader

    def _token_budget_loader(self) -> DataLoader:
        by_length = self.args.train_sampling_strategy == "group_by_length"
        budgets = [
            TokenBudget(lengths, self._max_tokens, self.order_seed, self.args.world_size, by_length)
            for lengths in self._lengths
        ]
        return self.batched_loader(TokenBudgetBatchSampler(*budgets))

    def batched_loader(self, batches: Sampler) -> DataLoader:
        """The training data in the batches of a batch sampler."""
        loader = DataLoader(
            self.train_dataset,
            batch_sampler=batches,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
            persistent_workers=self.args.dataloader_persistent_workers,
            prefetch_factor=self.args.dataloader_prefetch_factor,
        )
        return ignore_signals_in_workers(self.accelerator.prepare(loader))

    def name_examples(self, step: int) -> str:
        """The examples that all processes read in a step, counted from 0. All processes must call it."""
        if self.pace:
            return self.pace.name_examples(step)
        loader = self.callback_handler.train_dataloader
        sampler = innermost_sampler(loader)
        now = sampler.epoch
        epoch, steps = divmod(step, steps_per_epoch(loader, self.args.gradient_accumulation_steps))
        sampler.set_epoch(epoch)
        if self._max_tokens is None:
            sampler.skip = steps * self.get_total_train_batch_size(self.args)
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

    def _get_eval_sampler(self, eval_dataset) -> list[Key]:
        whole_batches = self.args.world_size > 1 or self.args.dataloader_drop_last
        return evaluation_keys(
            len(eval_dataset), self.args.world_size * self.args.eval_batch_size if whole_batches else 1
        )

    # Losses

    def get_batch_samples(self, *args, **kwargs) -> tuple[list, Tensor | int | None]:
        """The batches of one optimizer step and the number of their labelled tokens; their pairs are counted too."""
        batches, num_items_in_batch = super().get_batch_samples(*args, **kwargs)
        labels = [batch["next_sentence_label"] for batch in batches if "next_sentence_label" in batch]
        pairs = [(label != IGNORED).sum() for label in labels]
        self._pairs_in_step = self.over_processes(sum(pairs)) if pairs else None
        return batches, num_items_in_batch

    @property
    def _student(self) -> nn.Module:
        return self.accelerator.unwrap_model(self.model)

    def compute_loss(self, model: nn.Module, inputs: dict, return_outputs=False, num_items_in_batch=None):
        """The loss of the pretraining heads; in a distillation, its weighted sum with those of the comparison.

        The teacher's means over the tokens of a batch are weighted by the batch's share of the labelled tokens of the
        step, so that accumulated batches give the mean of the step.
        """
        labels = inputs["labels"]
        if self.comparison:
            inputs = self.comparison.student_inputs(self._student, inputs)
        if self._pairs_in_step is not None:
            inputs = {**inputs, "num_pairs_in_batch": self._pairs_in_step}
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        parts = (outputs.mlm_loss, outputs.nsp_loss)[: 1 + self.train_dataset.has_pairs]
        parts = [None if part is None else part * self.loss_scale for part in parts]
        if self.comparison:
            found, _ = self.comparison.losses(self._student, inputs, outputs.prediction_logits, outputs.hidden_states)
            share = self.loss_scale * (labels != IGNORED).sum() / at_least_one(num_items_in_batch)
            found = {name: part * share for name, part in found.items()}
            loss, parts = self.comparison.total(loss, found), [*parts, *found.values()]
        if len(self.loss_parts) > 1:
            self.metrics.add_losses(parts)
        return (loss, outputs) if return_outputs else loss

    def create_optimizer(self, *args, **kwargs) -> torch.optim.Optimizer:
        if self.is_fsdp_enabled and self.accelerator.state.fsdp_plugin.fsdp_version == 2:
            shard(self.model, self.accelerator.state.fsdp_plugin)
        if self._muon and self.optimizer is None:
            self.optimizer = MuonAdamW.of(self.model, self.get_decay_parameter_names(self.model), self.args)
        return super().create_optimizer(*args, **kwargs)

    # Log

    def training_logs(self) -> dict[str, float]:
        logs = super().training_logs()
        logs.setdefault("mlm_loss", logs["loss"])
        if self.comparison:
            hard = logs["mlm_loss"] + logs.get("nsp_loss", 0.0)
            logs["loss"] = self.comparison.total(hard, {name: logs[f"{name}_loss"] for name in self.comparison.names})
        flops = logs["tokens_per_second"] * self.flops_per_token()
        if flops:
            logs["seconds_left"] = round(flops_left(self.phases, self.state.global_step) / flops)
            rate = flops / self.args.world_size
            logs["mfu"] = round(rate / self.device_peak(rate), 4)
        if self.clock is not None:
            logs["seconds_left"] = round((1 - self.pace.share) * self.clock.training_seconds)
        if self.nonfinite.skipped:
            logs["steps_skipped"] = len(self.nonfinite.skipped)
        return logs

    def watch_losses(self, losses: dict[int, float]) -> None:
        for step, median in self._spikes.find(losses, self.current_phase()):
            examples = self.name_examples(step)
            if self.is_world_process_zero():
                logger.warning("step %d: loss %.4g after %.4g, %s", step + 1, losses[step], median, examples)

    def flops_per_token(self) -> float:
        return self.current_phase().costs.flops_per_token

    def report_speed(self, seconds: float, steps: int, first: int) -> None:
        """Prints the time of the run; steps of another phase are scaled by their number of operations."""
        if self.is_world_process_zero():
            print(self.time_message(seconds, steps, first), flush=True)
        super().report_speed(seconds, steps, first)

    def time_message(self, seconds: float, steps: int, first: int) -> str:
        phase = self.current_phase()
        measured = f"measured {counted(steps, 'step')}: {seconds:.3g} s per step, "
        measured += f"{phase.tokens_per_step / seconds:,.0f} tokens/s"
        if self.clock is not None:
            return measured
        rate = phase.flops_per_step / seconds
        which, start = ("in total", first) if self.dry_run else ("left", self.state.global_step)
        left = duration(flops_left(self.phases, start) / rate)
        return f"{measured}, {with_unit(rate, 'FLOP/s')}; {left} of training {which}, without evaluation"

    def floating_point_ops(self, inputs: dict) -> int:
        """Nothing; `store_flos` counts useful operations by real tokens."""
        return 0

    # Evaluation

    def prediction_step(self, model: nn.Module, inputs: dict, prediction_loss_only: bool, ignore_keys=None):
        """No loss, the sums of the batch (1, 6), and a stand-in for labels, which Trainer needs to compute metrics.

        In a distillation the sums of the comparison follow.
        """
        labels = inputs["labels"]
        if self.comparison:
            inputs = self.comparison.student_inputs(self._student, inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            outputs = model(**inputs | {"sparse_logits": True})
            sums = self.sums_of(inputs, outputs)
            if self.comparison:
                others = self.comparison.evaluation_sums(self._student, labels, inputs, outputs)
                sums = torch.cat([sums, others.to(sums)], dim=1)
        return None, sums, sums.new_zeros(1)

    def sums_of(self, inputs: dict, outputs: MyBertForPreTrainingOutput) -> Tensor:
        """(1, 6): see `batch_sums`."""
        labels, pairs = inputs["labels"].flatten()[inputs["masked_lm_positions"]], inputs.get("next_sentence_label")
        logits = outputs.prediction_logits.float()  # the CPU finds the largest of numbers in 16 bits slowly
        correct = logits.argmax(-1) == labels
        if self.token_accuracy is not None:
            self.token_accuracy.add(labels, correct)
        return batch_sums(logits, labels, correct, outputs.seq_relationship_logits, pairs)

    def evaluation_loop(self, *args, **kwargs):
        self.gather_function = self.accelerator.gather  # the default drops rows that it takes for repeated examples
        return super().evaluation_loop(*args, **kwargs)

    def evaluate(self, *args, **kwargs) -> dict[str, float]:
        self.token_accuracy = TokenAccuracy(self.model.config.vocab_size, self.args.device)
        return super().evaluate(*args, **kwargs)

    def token_counts(self) -> Tensor:
        """(2, V) how often each token was labelled, and predicted correctly, in the last evaluation."""
        if self.token_accuracy is None:  # a finished run was resumed
            self.token_accuracy = TokenAccuracy(self.model.config.vocab_size, self.args.device)
            self.evaluation_loop(self.get_eval_dataloader(), "evaluation")
        return self.accelerator.reduce(self.token_accuracy.counts)

    @cached_property
    def _samples(self) -> Samples:
        return Samples(self.eval_dataset, self.processing_class)

    def after_evaluation(self) -> None:
        """Writes samples.jsonl. All processes ask the model, since its weights may be sharded."""
        if self.processing_class is None or (self.history.path is None and self.args.world_size == 1):
            return
        sample = self._samples.ask(self.model, self.args.device)
        if self.history.path is not None:
            place = {"step": self.state.global_step, "tokens": self.state.num_input_tokens_seen}
            write_sample(self.args.output_dir, place | {"seconds": round(self.metrics.seconds, 3)} | sample)
