"""transformers' Trainer for masked language modelling and next-sentence prediction."""

import math
import time

import datasets
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback

from mybert.pretraining.batching import EpochSampler, EvaluationSampler, ExampleDataset
from mybert.pretraining.metrics import batch_sums, metrics_from_sums
from mybert.pretraining.token_budget import TokenBudget, TokenBudgetBatchSampler, example_lengths


class MyBertTrainer(Trainer):
    """Trainer that reads examples by key, weighs both losses rightly and evaluates by sums.

    Each loss is a sum over labelled tokens (over pairs) divided by their number in the whole optimizer step, all
    accumulated batches and processes together: accumulation and data parallelism give the gradient of one big batch.
    The epoch and place of an example decide its mask, so that resuming reproduces it.

    Args:
        train_dataset, eval_dataset: corpora as `mybert corpus` leaves them.
        phase2_dataset: a second corpus that is read in the last `phase2_share` of the steps.
        max_tokens_per_batch: most real tokens of a batch; None for `per_device_train_batch_size` sequences.
        flops_per_token: useful floating point operations of a training step for each real token, for the log.
        kwargs: as in `transformers.Trainer`; `data_collator` is a `PretrainingCollator`.
    """

    def __init__(
        self,
        *args,
        train_dataset: datasets.Dataset,
        eval_dataset: datasets.Dataset | None = None,
        phase2_dataset: datasets.Dataset | None = None,
        phase2_share: float = 0.1,
        max_tokens_per_batch: int | None = None,
        flops_per_token: float = 0.0,
        **kwargs,
    ):
        self._first_length = len(train_dataset)
        self._second_length = 0 if phase2_dataset is None else len(phase2_dataset)
        self.phase2_share, self.flops_per_token = phase2_share, flops_per_token
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
        self.args.remove_unused_columns = False  # examples arrive in one piece; there are no columns to take away
        self.args.include_num_input_tokens_seen = "no"  # counted here, without a device synchronisation at every step
        self.args.batch_eval_metrics = False  # batches leave sums behind already
        self._pairs_in_step: Tensor | int | None = None
        self._tokens: Tensor | int = 0  # of this process, not yet counted in the state
        self._losses = torch.zeros(2, device=self.args.device)  # mlm, nsp; summed since the last log
        self._steps, self._started, self._logged_at, self._tokens_logged = 0, time.perf_counter(), 0.0, 0
        self.add_callback(_Bookkeeping(self))

    # Examples

    @property
    def _order_seed(self) -> int:
        return self.args.seed if self.args.data_seed is None else self.args.data_seed

    def _get_train_sampler(self, train_dataset=None) -> EpochSampler:
        self.sampler = EpochSampler(self._first_length, self._order_seed, self._second_length)
        return self.sampler

    def get_train_dataloader(self) -> DataLoader:
        loader = super().get_train_dataloader() if self._max_tokens is None else self._token_budget_loader()
        if self._second_length:
            *_, max_steps = self.set_initial_training_values(self.args, loader)
            epochs, steps = divmod(round(max_steps * (1 - self.phase2_share)), self.steps_per_epoch(loader))
            batches = steps * self.args.gradient_accumulation_steps * self.args.world_size
            size = self.args.train_batch_size if self._max_tokens is None else 1
            self.sampler.switch = epochs * len(self.sampler) + batches * size
        return loader

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
            return [self.args.train_batch_size] * 2
        return [len(cuts.lengths) / cuts.batches for cuts in (self.sampler.first, self.sampler.second) if cuts]

    def steps_per_epoch(self, loader: DataLoader) -> int:
        return math.ceil(len(loader) / self.args.gradient_accumulation_steps)

    def _get_eval_sampler(self, eval_dataset) -> EvaluationSampler:
        whole_batches = self.args.world_size > 1 or self.args.dataloader_drop_last
        return EvaluationSampler(
            len(eval_dataset), self.args.world_size * self.args.eval_batch_size if whole_batches else 1
        )

    # Losses

    def get_batch_samples(self, epoch_iterator, num_batches: int, device) -> tuple[list, Tensor | int | None]:
        """The batches of one optimizer step and their labelled tokens; their pairs and real tokens are noted."""
        batches, num_items_in_batch = super().get_batch_samples(epoch_iterator, num_batches, device)
        pairs = [batch["next_sentence_label"].numel() for batch in batches if "next_sentence_label" in batch]
        self._pairs_in_step = self._over_processes(sum(pairs)) if pairs else None
        for batch in batches:
            mask = batch.get("attention_mask")
            self._tokens += batch["input_ids"].numel() if mask is None else mask.sum()
        self._steps += 1
        return batches, num_items_in_batch

    def _over_processes(self, count: int) -> Tensor | int:
        if self.args.world_size == 1 or not self.args.average_tokens_across_devices:
            return count
        return self.accelerator.gather(torch.tensor([count], device=self.args.device)).sum()

    def compute_loss(self, model: nn.Module, inputs: dict, return_outputs=False, num_items_in_batch=None):
        if self._pairs_in_step is not None:
            inputs = {**inputs, "num_pairs_in_batch": self._pairs_in_step}
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        scale = self.args.world_size if self.args.average_tokens_across_devices else 1  # what Trainer did to `loss`
        for i, part in enumerate((outputs.mlm_loss, outputs.nsp_loss)):
            if part is not None:
                self._losses[i] += part.detach() * scale
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds `mlm_loss`, `nsp_loss`, tokens seen and tokens per second to the log of training."""
        if "loss" in logs:
            mlm_loss, nsp_loss = self.accelerator.reduce(self._losses / self._steps, "mean").tolist()
            logs["mlm_loss"] = mlm_loss
            if self._pairs_in_step is not None:
                logs["nsp_loss"] = nsp_loss
            tokens, seconds = self.state.num_input_tokens_seen, self.training_seconds
            logs["num_input_tokens_seen"] = tokens
            logs["tokens_per_second"] = round((tokens - self._tokens_logged) / (seconds - self._logged_at))
            logs["training_seconds"] = round(seconds, 3)
            self.start_window()
        super().log(logs, start_time)

    @property
    def training_seconds(self) -> float:
        """Wall time of training, evaluation left out, of all sessions up to the last checkpoint and of this one."""
        return time.perf_counter() - self._started

    def start_clock(self) -> None:
        before = [log["training_seconds"] for log in self.state.log_history if "training_seconds" in log]
        self._started = time.perf_counter() - max(before, default=0.0)

    def leave_out(self, seconds: float) -> None:
        """Time that was not spent on training."""
        self._started += seconds

    def start_window(self) -> None:
        """Means and rates of the next log count from here."""
        self._losses.zero_()
        self._steps, self._logged_at = 0, self.training_seconds
        self._tokens_logged = self.state.num_input_tokens_seen

    def count_tokens(self) -> None:
        """Moves the tokens of all processes into the state, where checkpoints keep them."""
        tokens = torch.as_tensor(self._tokens, device=self.args.device).reshape(1)
        self.current_flos += int(tokens) * self.flops_per_token
        self.state.num_input_tokens_seen += int(self.accelerator.gather(tokens).sum())
        self._tokens = 0

    def floating_point_ops(self, inputs: dict) -> int:
        """Nothing: useful operations are counted with the tokens, in `count_tokens`."""
        return 0

    def _issue_warnings_after_load(self, load_result) -> None:
        """Tied weights are saved once; that they miss their second name in a checkpoint is nothing to warn of."""
        tied = self.model.all_tied_weights_keys
        load_result.missing_keys[:] = [name for name in load_result.missing_keys if name not in tied]
        super()._issue_warnings_after_load(load_result)

    # Evaluation

    def prediction_step(self, model: nn.Module, inputs: dict, prediction_loss_only: bool, ignore_keys=None):
        """
        Returns:
            No loss, the sums of the batch (1, 6), and a stand-in for labels, without which nothing is summed up.
        """
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            outputs = model(**inputs, sparse_logits=True)
        pairs = inputs.get("next_sentence_label")
        sums = batch_sums(outputs.prediction_logits, inputs["labels"], outputs.seq_relationship_logits, pairs)
        return None, sums, sums.new_zeros(1)

    def evaluation_loop(self, *args, **kwargs):
        self.gather_function = self.accelerator.gather  # the default drops rows that it takes for repeated examples
        return super().evaluation_loop(*args, **kwargs)


class _Bookkeeping(TrainerCallback):
    """Tells the sampler its epoch, and counts tokens when somebody is going to look."""

    def __init__(self, trainer: MyBertTrainer):
        self.trainer = trainer

    def on_train_begin(self, args, state, control, **kwargs):
        self.trainer.start_clock()
        self.trainer.start_window()

    def on_epoch_begin(self, args, state, control, train_dataloader=None, **kwargs):
        # Trainer and accelerate pass the epoch on too, but neither reaches through the loader of a resumed epoch.
        self.trainer.sampler.set_epoch(state.global_step // self.trainer.steps_per_epoch(train_dataloader))

    def on_step_end(self, args, state, control, **kwargs):
        if control.should_log or control.should_save or control.should_training_stop:
            self.trainer.count_tokens()

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        self.trainer.leave_out(sum(value for name, value in metrics.items() if name.endswith("_runtime")))

    def on_epoch_end(self, args, state, control, **kwargs):
        if control.should_log or control.should_save:
            self.trainer.count_tokens()
