"""Fine-tuning of a task's head: frozen encoder, class weights, soft labels, the best evaluation."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor, nn
from transformers import PreTrainedConfig

from modeling_mybert.operations_mybert import at_least_one
from mybert.finetuning.soft_labels import OUTSIDE, SPANS, TEACHER_LOGITS, SoftLabels
from mybert.tasks.base import Task
from mybert.training.objective import Objective
from mybert.training.trainer import RunTrainer


class Finetuning(Objective):
    """
    Args:
        soft_labels: how the column of the teacher's logits is learned, if there is one.
        freeze_encoder: train pooler and head only; embeddings and layers keep their weights and have no dropout.
    """

    def __init__(self, soft_labels: SoftLabels | None = None, freeze_encoder: bool = False):
        self._soft_labels, self._freezes = soft_labels, freeze_encoder
        self._soft_items: Tensor | int = 0
        self._evaluated: tuple[int, dict[str, float]] | None = None  # step and metrics of the last evaluation
        self._frozen: list[nn.Module] = []

    def begin(self, trainer: RunTrainer) -> None:
        super().begin(trainer)
        model, trainer.args.remove_unused_columns = trainer.model, False  # Trainer would remove the teacher's logits
        read = {*inspect.signature(model.forward).parameters, TEACHER_LOGITS}
        for name in ("train_dataset", "eval_dataset"):
            if isinstance(rows := getattr(trainer, name), Dataset):
                setattr(trainer, name, rows.select_columns([column for column in rows.column_names if column in read]))
        if self._freezes:
            self._frozen = [model.base_model.embeddings, model.base_model.encoder]
        for part in self._frozen:
            part.requires_grad_(False)

    def loss(
        self, compute: Callable[..., Any], inputs: dict[str, Any], with_outputs: bool, items: Tensor | None
    ) -> Any:
        for part in self._frozen:
            part.eval()  # Trainer sets the whole model to training mode before every batch
        if TEACHER_LOGITS not in inputs:
            return compute(inputs, with_outputs)
        logits = inputs[TEACHER_LOGITS]
        inputs = {  # answer positions of unlabelled rows are ignored
            name: x.where(x >= 0, OUTSIDE) if name in SPANS else x for name, x in inputs.items() if x is not logits
        }
        loss, outputs = compute(inputs, True)
        assert self._soft_labels is not None  # its collator has added the logits
        soft = self._soft_labels.loss(outputs, logits) / self._soft_items * self.trainer.loss_scale
        share = self._soft_labels.share
        loss = share * soft + (1 - share) * loss
        return (loss, outputs) if with_outputs else loss

    def count(self, batches: Sequence[Mapping[str, Any]]) -> None:
        """Counts the soft targets of a step."""
        if self._soft_labels is not None:
            counts = [self._soft_labels.items(batch[TEACHER_LOGITS]) for batch in batches]
            items = torch.stack(counts).sum() if counts else torch.ones(())
            self._soft_items = at_least_one(self.trainer.over_processes(items.to(self.args.device)))

    def after_evaluation(self, metrics: dict[str, float]) -> None:
        trainer = self.trainer
        self._evaluated = trainer.state.global_step, metrics
        if trainer.is_in_train and trainer.args.metric_for_best_model is not None:
            self._mark_best(metrics)

    def final_metrics(self) -> dict[str, float]:
        """The metrics of the trained model; it is evaluated again if the last evaluation was of another one."""
        state = self.trainer.state
        kept = state.best_global_step if self.args.load_best_model_at_end else state.global_step
        if self._evaluated is None or not self._evaluated[0] == kept == state.global_step:
            return self.trainer.evaluate()
        return self._evaluated[1]

    def _mark_best(self, metrics: dict[str, float]) -> None:
        """Saves the best evaluation, which --save-steps may pass over; of equal scores that of the lowest loss is it.

        Few validation rows give the same score at many steps; Trainer would keep the first of them.
        """
        arguments, state = self.args, self.trainer.state
        value, sign = metrics[str(arguments.metric_for_best_model)], 1 if arguments.greater_is_better else -1
        is_best = sign * value > (-math.inf if state.best_metric is None else sign * state.best_metric)
        losses = {entry["step"]: entry["eval_loss"] for entry in state.log_history if "eval_loss" in entry}
        if value == state.best_metric and metrics["eval_loss"] < losses.get(state.best_global_step or 0, -math.inf):
            state.best_global_step, is_best = state.global_step, True
        self.trainer.control.should_save |= is_best and arguments.load_best_model_at_end


class WeightedLoss:
    """Cross-entropy in which every class has the same total weight.

    The weight of a class is (labels / classes / labels of the class). Its mean over the training rows is 1, so the
    loss is divided by the number of labels.
    """

    def __init__(self, features: Dataset, classes: int):
        labels = np.concatenate([np.ravel(label) for label in features["labels"][:]])
        counts = np.bincount(labels[labels >= 0], minlength=classes)
        self.weights = torch.tensor(counts.sum() / (classes * np.maximum(counts, 1)), dtype=torch.float32)

    def __call__(
        self, outputs: dict[str, Any], labels: Tensor, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        logits = outputs["logits"].flatten(0, -2).float()
        self.weights = self.weights.to(logits.device)
        total = nn.functional.cross_entropy(logits, labels.flatten(), weight=self.weights, reduction="sum")
        return total / at_least_one((labels != -100).sum() if num_items_in_batch is None else num_items_in_batch)


def tuned_scores(
    task: Task, features: Dataset, rows: Dataset, config: PreTrainedConfig, logits: Sequence[np.ndarray]
) -> dict[str, float]:
    """The metrics of the logits of each feature, with thresholds that are tuned and written into the `config`."""
    values = task.tuned(logits, features, rows)
    config.update(values)
    tuned = task.with_config(**values)
    return tuned.score(tuned.decode(logits, features, rows), tuned.references(rows))
