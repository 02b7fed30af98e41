"""transformers' Trainer for masked language modelling and next-sentence prediction."""

import math
from itertools import chain, islice

import datasets
import torch
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import TrainerCallback, set_seed

from mybert.common.preemption import keep_workers
from mybert.pretraining.checkpointing import CheckpointingTrainer
from mybert.pretraining.data.batching import FILLER, EpochSampler, EvaluationSampler, ExampleDataset
from mybert.pretraining.data.masking import IGNORED
from mybert.pretraining.data.token_budget import TokenBudget, TokenBudgetBatchSampler, example_lengths
from mybert.pretraining.fsdp import shard
from mybert.pretraining.guard import Guard
from mybert.pretraining.meter import Meter
from mybert.pretraining.metrics import batch_sums, metrics_from_sums
from mybert.pretraining.planning.run_plan import Plan


class MyBertTrainer(CheckpointingTrainer):
    """Trainer that reads examples by key, weighs both losses rightly, evaluates by sums and watches itself.

    Each loss is a sum over labelled tokens (over pairs) divided by their number in the whole optimizer step, all
    accumulated batches and processes together: accumulation and data parallelism give the gradient of one big batch.
    The epoch and place of an example decide its mask, so that resuming reproduces it.

    Args:
        train_dataset, eval_dataset: corpora as `mybert corpus` leaves them.
        phase2_dataset: a second corpus that is read in the last `phase2_share` of the steps.
        max_tokens_per_batch: most real tokens of a batch; None for `per_device_train_batch_size` sequences.
        skip_nonfinite: leave out a step whose gradient is not finite; otherwise the run stops there.
        kwargs: as in `transformers.Trainer`; `data_collator` is a `PretrainingCollator`.

    Attributes:
        plans: the phases, in order; with them the log counts operations and says when the run is going to end.
        peak_flops: floating point operations a second that a device could do; with it the log has the share of them
            that was useful.
        meter: keeps the clock, and what the log says.
    """

    def __init__(
        self,
        *args,
        train_dataset: datasets.Dataset,
        eval_dataset: datasets.Dataset | None = None,
        phase2_dataset: datasets.Dataset | None = None,
        phase2_share: float = 0.1,
        max_tokens_per_batch: int | None = None,
        skip_nonfinite: bool = False,
        **kwargs,
    ):
        self._first_length = len(train_dataset)
        self._second_length = 0 if phase2_dataset is None else len(phase2_dataset)
        self.phase2_share = phase2_share
        self.plans: list[Plan] = []
        self.peak_flops: float | None = None
        self._lengths = self._max_tokens = None
        if max_tokens_per_batch is not None:
            self._max_tokens = max_tokens_per_batch
            self._lengths = [
                example_lengths(corpus) for corpus in (train_dataset, phase2_dataset) if corpus is not None
            ]
        if phase2_dataset is not None:
            train_dataset = datasets.concatenate_datasets([train_dataset, phase2_dataset])
        super().__init__(
            *args,
            train_dataset=ExampleDataset(train_dataset),
            eval_dataset=None if eval_dataset is None else ExampleDataset(eval_dataset),
            compute_metrics=metrics_from_sums,
            **kwargs,
        )
        if self.args.process_index > 0:  # or dropout would hit the same places in all of them
            set_seed((self.args.seed + self.args.process_index) % 2**32)
        self.args.remove_unused_columns = False  # examples arrive in one piece; there are no columns to take away
        self.args.include_num_input_tokens_seen = "no"  # counted here, without a device synchronisation at every step
        self.args.batch_eval_metrics = False  # batches leave sums behind already
        self._pairs_in_step: Tensor | None = None
        self.meter = Meter(self)
        self.guard = Guard(self, skip_nonfinite)
        self.add_callback(_Bookkeeping(self))

    # Examples

    @property
    def _order_seed(self) -> int:
        return self.args.seed if self.args.data_seed is None else self.args.data_seed

    def _get_train_sampler(self, train_dataset=None) -> EpochSampler:
        multiple = 1 if self.args.dataloader_drop_last else self.args.world_size * self._train_batch_size
        self.sampler = EpochSampler(
            self._first_length, self._order_seed, self._second_length, multiple if self.args.world_size > 1 else 1
        )
        return self.sampler

    def get_train_dataloader(self) -> DataLoader:
        loader = super().get_train_dataloader() if self._max_tokens is None else self._token_budget_loader()
        keep_workers(loader)
        if self._second_length:
            *_, max_steps = self.set_initial_training_values(self.args, loader)
            epochs, steps = divmod(round(max_steps * (1 - self.phase2_share)), self.steps_per_epoch(loader))
            batches = steps * self.args.gradient_accumulation_steps * self.args.world_size
            if self._max_tokens is None:
                self.sampler.switch = epochs * self._first_length + batches * self._train_batch_size
            else:
                self.sampler.switch = epochs * len(self.sampler) + batches
        return loader

    def get_eval_dataloader(self, eval_dataset=None) -> DataLoader:
        return keep_workers(super().get_eval_dataloader(eval_dataset))

    def _token_budget_loader(self) -> DataLoader:
        by_length = self.args.train_sampling_strategy == "group_by_length"
        cuts = [
            TokenBudget(lengths, self._max_tokens, self._order_seed, self.args.world_size, by_length)
            for lengths in self._lengths
        ]
        self.sampler = TokenBudgetBatchSampler(*cuts)
        loader = DataLoader(
            self.train_dataset,
            batch_sampler=self.sampler,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
            persistent_workers=self.args.dataloader_persistent_workers,
            prefetch_factor=self.args.dataloader_prefetch_factor,
        )
        return self.accelerator.prepare(loader)

    @property
    def sequences_per_batch(self) -> list[float]:
        """Of each corpus, in one forward pass of one process; a mean under a token budget."""
        if self._max_tokens is None:
            return [self._train_batch_size] * 2
        return [len(cuts.lengths) / cuts.batches for cuts in (self.sampler.first, self.sampler.second) if cuts]

    def steps_per_epoch(self, loader: DataLoader) -> int:
        return math.ceil(len(loader) / self.args.gradient_accumulation_steps)

    def start_epoch(self, step: int, loader: DataLoader) -> None:
        """Leads the sampler to the optimizer step number `step`, counted from 0."""
        epoch, steps = divmod(step, self.steps_per_epoch(loader))
        self.sampler.set_epoch(epoch)
        if self._max_tokens is None:
            self.sampler.skip = steps * self.get_total_train_batch_size(self.args)

    def name_examples(self, step: int) -> str:
        """What the optimizer step number `step`, counted from 0, reads, over all processes; they all must ask."""
        loader, now = self.callback_handler.train_dataloader, self.sampler.epoch
        self.start_epoch(step, loader)
        first = step % self.steps_per_epoch(loader) * self.args.gradient_accumulation_steps
        batches = islice(loader.batch_sampler, first, first + self.args.gradient_accumulation_steps)
        keys = sorted(key for key in gather_object(list(chain.from_iterable(batches))) if key[0] != FILLER)
        self.sampler.set_epoch(now)
        named = []
        for corpus, first in (("corpus", 0), ("phase2_corpus", self._first_length)):
            read = [key for key in keys if (key[1] >= self._first_length) == (first > 0)]
            if read:
                numbers = ", ".join(str(index - first) for _, index in read)
                named.append(f"examples {numbers} in pass {read[0][0] + 1} over the {corpus}")
        return " and ".join(named)

    def _get_eval_sampler(self, eval_dataset) -> EvaluationSampler:
        whole_batches = self.args.world_size > 1 or self.args.dataloader_drop_last
        return EvaluationSampler(
            len(eval_dataset), self.args.world_size * self.args.eval_batch_size if whole_batches else 1
        )

    # Losses

    def get_batch_samples(self, epoch_iterator, num_batches: int, device) -> tuple[list, Tensor | int | None]:
        """The batches of one optimizer step and their labelled tokens; their pairs and real tokens are noted."""
        batches, num_items_in_batch = super().get_batch_samples(epoch_iterator, num_batches, device)
        labels = [batch["next_sentence_label"] for batch in batches if "next_sentence_label" in batch]
        pairs = [(label != IGNORED).sum() for label in labels]
        self._pairs_in_step = self._over_processes(sum(pairs)) if pairs else None
        self.meter.start_step(batches)
        return batches, num_items_in_batch

    def _over_processes(self, count: Tensor) -> Tensor:
        if self.args.world_size == 1 or not self.args.average_tokens_across_devices:
            return count
        return self.accelerator.gather(count.to(self.args.device).reshape(1)).sum()

    def compute_loss(self, model: nn.Module, inputs: dict, return_outputs=False, num_items_in_batch=None):
        if self._pairs_in_step is not None:
            inputs = {**inputs, "num_pairs_in_batch": self._pairs_in_step}
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        scale = self.args.world_size if self.args.average_tokens_across_devices else 1  # what Trainer did to `loss`
        self.meter.add_losses((outputs.mlm_loss, outputs.nsp_loss), scale)
        return (loss, outputs) if return_outputs else loss

    def training_step(self, model: nn.Module, inputs: dict, num_items_in_batch=None) -> Tensor:
        """The loss for Trainer's own sum, which a single one that is not finite would spoil for ever."""
        return super().training_step(model, inputs, num_items_in_batch).nan_to_num(0.0, 0.0, 0.0)

    def _get_grad_norm(self, model: nn.Module, grad_norm=None) -> Tensor | float:
        norm = super()._get_grad_norm(model, grad_norm)
        self.guard.see(norm)
        return norm

    def _save_checkpoint(self, model: nn.Module, trial=None) -> None:
        self.guard.settle()
        super()._save_checkpoint(model, trial)

    def create_optimizer(self, *args, **kwargs) -> torch.optim.Optimizer:
        if self.is_fsdp_enabled and self.accelerator.state.fsdp_plugin.fsdp_version == 2:
            shard(self.model, self.accelerator.state.fsdp_plugin)
        return super().create_optimizer(*args, **kwargs)

    # The log

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds to the log of training what the meter has read of it.

        Raises:
            UserError: a gradient or a loss was not finite, and such steps are not left out.
        """
        if "loss" in logs:
            self.guard.settle()
            logs |= self.meter.entries()
            self.meter.start_window()
        super().log(logs, start_time)

    def floating_point_ops(self, inputs: dict) -> int:
        """Nothing: useful operations are counted with the tokens, by the meter."""
        return 0

    # Evaluation

    def prediction_step(self, model: nn.Module, inputs: dict, prediction_loss_only: bool, ignore_keys=None):
        """
        Returns:
            No loss, the sums of the batch (1, 6), and a stand-in for labels, without which nothing is summed up.
        """
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            outputs = model(**inputs, sparse_logits=True)
        tokens, pairs = inputs["labels"].flatten()[inputs["masked_lm_positions"]], inputs.get("next_sentence_label")
        sums = batch_sums(outputs.prediction_logits, tokens, outputs.seq_relationship_logits, pairs)
        return None, sums, sums.new_zeros(1)

    def evaluation_loop(self, *args, **kwargs):
        self.gather_function = self.accelerator.gather  # the default drops rows that it takes for repeated examples
        return super().evaluation_loop(*args, **kwargs)


class _Bookkeeping(TrainerCallback):
    """Tells the sampler its epoch, and counts tokens when somebody is going to look."""

    def __init__(self, trainer: MyBertTrainer):
        self.trainer = trainer

    def on_train_begin(self, args, state, control, **kwargs):
        self.trainer.meter.start_clock()
        self.trainer.meter.start_window()

    def on_epoch_begin(self, args, state, control, train_dataloader=None, **kwargs):
        # Trainer and accelerate pass the epoch on too, but neither reaches through the loader of a resumed epoch.
        self.trainer.start_epoch(state.global_step, train_dataloader)

    def on_step_end(self, args, state, control, **kwargs):
        if self.trainer.guard.must_stop:
            args.save_only_model = False  # or there were nothing to go on with
            control.should_log = control.should_save = control.should_training_stop = True
        if control.should_log or control.should_save or control.should_training_stop:
            self.trainer.meter.count_tokens()

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        self.trainer.meter.leave_out(sum(value for name, value in metrics.items() if name.endswith("_runtime")))

    def on_epoch_end(self, args, state, control, **kwargs):
        if control.should_log or control.should_save:
            self.trainer.meter.count_tokens()
