"""transformers' Trainer for fine-tuning: frozen encoder, class weights, evaluation in row order."""

import inspect
import math
from collections.abc import Callable

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor, nn
from torch.utils.data import Sampler, SequentialSampler
from transformers import EvalPrediction, PreTrainedConfig
from transformers.trainer_pt_utils import LengthGroupedSampler

from modeling_mybert.operations_mybert import at_least_one
from mybert.finetuning.soft_labels import TEACHER_LOGITS, SoftLabels, outside_positions
from mybert.finetuning.subset_embedding import SubsetEmbedding, train_occurring_rows
from mybert.finetuning.tasks.base import Task
from mybert.training.trainer import RunTrainer


class FinetuningTrainer(RunTrainer):
    """
    Args:
        soft_labels: how the column of the teacher's logits is learned, if there is one.
        freeze_encoder: train pooler and head only; embeddings and layers keep their weights and have no dropout.
        occurring_rows: train only the rows of the word embedding that occur in `train_dataset`, if that gives the same
            weights. The model must not be used elsewhere then.
        kwargs: as in `RunTrainer`.
    """

    def __init__(
        self,
        *args,
        freeze_encoder: bool = False,
        occurring_rows: bool = False,
        soft_labels: SoftLabels | None = None,
        **kwargs,
    ):
        self._soft_labels = soft_labels
        self._soft_items: Tensor | int = 0
        self._evaluated: tuple[int, dict[str, float]] | None = None  # step and metrics of the last evaluation
        super().__init__(*args, **kwargs)
        self.args.remove_unused_columns = False  # Trainer would remove the teacher's logits
        read = {*inspect.signature(self.model.forward).parameters, TEACHER_LOGITS}
        for name in ("train_dataset", "eval_dataset"):
            if isinstance(rows := getattr(self, name), Dataset):
                setattr(self, name, rows.select_columns([column for column in rows.column_names if column in read]))
        self._frozen = (self.model.base_model.embeddings, self.model.base_model.encoder) if freeze_encoder else ()
        for part in self._frozen:
            part.requires_grad_(False)
        self._subset: SubsetEmbedding | None = None
        given = self.optimizer or self.optimizer_cls_and_kwargs  # a given optimizer holds the whole embedding
        if occurring_rows and not freeze_encoder and not given:
            self._subset = train_occurring_rows(self.model, self.train_dataset, self.args)

    def count_parameters(self) -> int:
        return super().count_parameters() + (self._subset.untrained if self._subset is not None else 0)

    def create_optimizer(self, *args, **kwargs) -> torch.optim.Optimizer:
        is_new = self.optimizer is None
        optimizer = super().create_optimizer(*args, **kwargs)
        if is_new and self._subset is not None:
            self._subset.follow(optimizer)
        return optimizer

    def compute_loss(self, model: nn.Module, inputs: dict, return_outputs: bool = False, num_items_in_batch=None):
        for part in self._frozen:
            part.eval()  # Trainer sets the whole model to training mode before every batch
        if TEACHER_LOGITS not in inputs:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        inputs = outside_positions(inputs)
        logits = inputs.pop(TEACHER_LOGITS)
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        soft = self._soft_labels.loss(outputs, logits) / self._soft_items * self.loss_scale
        share = self._soft_labels.share
        loss = share * soft + (1 - share) * loss
        return (loss, outputs) if return_outputs else loss

    def get_batch_samples(self, *args, **kwargs) -> tuple[list, Tensor | int | None]:
        """The batches of one optimizer step and the number of their labels; their soft targets are counted too."""
        batches, num_items_in_batch = super().get_batch_samples(*args, **kwargs)
        if self._soft_labels is not None:
            counts = [self._soft_labels.items(batch[TEACHER_LOGITS]) for batch in batches]
            items = torch.stack(counts).sum() if counts else torch.ones(())
            self._soft_items = at_least_one(self.over_processes(items.to(self.args.device)))
        return batches, num_items_in_batch

    def evaluate(self, *args, **kwargs) -> dict[str, float]:
        metrics = super().evaluate(*args, **kwargs)
        self._evaluated = self.state.global_step, metrics
        if self.is_in_train and self.args.metric_for_best_model is not None:
            self._mark_best(metrics)
        return metrics

    def final_metrics(self) -> dict[str, float]:
        """The metrics of the trained model; it is evaluated again if the last evaluation was of another one."""
        kept = self.state.best_global_step if self.args.load_best_model_at_end else self.state.global_step
        if self._evaluated is None or not self._evaluated[0] == kept == self.state.global_step:
            self.evaluate()
        return self._evaluated[1]

    def _mark_best(self, metrics: dict[str, float]) -> None:
        """Saves the best evaluation, which --save-steps may pass over; of equal scores that of the lowest loss is it.

        Few validation rows give the same score at many steps; Trainer would keep the first of them.
        """
        state, value = self.state, metrics[self.args.metric_for_best_model]
        sign = 1 if self.args.greater_is_better else -1
        is_best = sign * value > (-math.inf if state.best_metric is None else sign * state.best_metric)
        losses = {entry["step"]: entry["eval_loss"] for entry in state.log_history if "eval_loss" in entry}
        if value == state.best_metric and metrics["eval_loss"] < losses.get(state.best_global_step, -math.inf):
            state.best_global_step, is_best = state.global_step, True
        self.control.should_save |= is_best and self.args.load_best_model_at_end

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> Sampler:
        sampler = super()._get_train_sampler(train_dataset)
        if not isinstance(sampler, LengthGroupedSampler):
            return sampler
        return EpochLengthSampler(sampler.batch_size, lengths=sampler.lengths, seed=self.order_seed)

    def _get_eval_sampler(self, eval_dataset: Dataset) -> SequentialSampler:
        return SequentialSampler(eval_dataset)  # predictions are matched to rows, also with group_by_length


class EpochLengthSampler(LengthGroupedSampler):
    """Groups by length in an order that depends on seed and epoch only, so that a resumed epoch continues it."""

    def __init__(self, *args, seed: int, **kwargs):
        super().__init__(*args, generator=torch.Generator(), **kwargs)
        self.seed = seed

    def set_epoch(self, epoch: int) -> None:
        self.generator.manual_seed(self.seed + epoch)


class WeightedLoss:
    """Cross-entropy in which every class has the same total weight.

    The weight of a class is (labels / classes / labels of the class). Its mean over the training rows is 1, so the
    loss is divided by the number of labels.
    """

    def __init__(self, features: Dataset, classes: int):
        labels = np.concatenate([np.ravel(label) for label in features["labels"][:]])
        counts = np.bincount(labels[labels >= 0], minlength=classes)
        self.weights = torch.tensor(counts.sum() / (classes * np.maximum(counts, 1)), dtype=torch.float32)

    def __call__(self, outputs: dict, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        logits = outputs["logits"].flatten(0, -2).float()
        self.weights = self.weights.to(logits.device)
        total = nn.functional.cross_entropy(logits, labels.flatten(), weight=self.weights, reduction="sum")
        return total / at_least_one((labels != -100).sum() if num_items_in_batch is None else num_items_in_batch)


def metrics_function(
    task: Task, features: Dataset, rows: Dataset, config: PreTrainedConfig
) -> Callable[[EvalPrediction], dict[str, float]]:
    """The `compute_metrics` of Trainer: tunes thresholds, writes them into the model's `config`, and scores.

    Its attribute `errors` has the error of each row in the last evaluation.
    """

    def compute(evaluation: EvalPrediction) -> dict[str, float]:
        logits = evaluation.predictions
        logits = list(np.stack(logits, -1) if isinstance(logits, tuple) else logits)
        values = task.tuned(logits, features, rows)
        config.update(values)
        tuned = task.with_config(**values)
        predictions, references = tuned.decode(logits, features, rows), tuned.references(rows)
        compute.errors = tuned.errors(predictions, references)
        return tuned.score(predictions, references)

    return compute
