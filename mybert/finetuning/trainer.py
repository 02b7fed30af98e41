"""transformers' Trainer where fine-tuning wants more: a frozen encoder, weighted classes, evaluation in order."""

import math
from collections.abc import Callable

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler, SequentialSampler
from transformers import EvalPrediction, PreTrainedConfig, Trainer
from transformers.trainer_pt_utils import LengthGroupedSampler

from modeling_mybert.losses_mybert import at_least_one
from mybert.common.errors import UserError
from mybert.common.preemption import keep_workers
from mybert.finetuning.interruptions import BestHere, ByLength, RightEpoch
from mybert.finetuning.subset_embedding import SubsetEmbedding, train_occurring_rows
from mybert.finetuning.tasks.base import Task


class Diverged(UserError):
    """The loss of a run is no number any more."""


class FinetuningTrainer(Trainer):
    """
    Args:
        freeze_encoder: embeddings and layers stay as they are, without dropout; pooler and head are trained.
        occurring_rows: train those rows of the word table that occur in `train_dataset`, where that comes to the same;
            the model is for this training, evaluation and saving alone then.
        kwargs: as in `transformers.Trainer`.
    """

    def __init__(self, *args, freeze_encoder: bool = False, occurring_rows: bool = False, **kwargs):
        super().__init__(*args, **kwargs)
        self.add_callback(RightEpoch())
        self.add_callback(BestHere())
        self._frozen = ()
        if freeze_encoder:
            self._frozen = (self.model.base_model.embeddings, self.model.base_model.encoder)
        for part in self._frozen:
            part.requires_grad_(False)
        self._rows: SubsetEmbedding | None = None
        given = self.optimizer or self.optimizer_cls_and_kwargs  # one that is made holds the table as it is
        if occurring_rows and not freeze_encoder and not given:
            self._rows = train_occurring_rows(self.model, self.train_dataset, self.args)

    def create_optimizer(self, *args, **kwargs) -> torch.optim.Optimizer:
        is_new = self.optimizer is None
        optimizer = super().create_optimizer(*args, **kwargs)
        if is_new and self._rows is not None:
            self._rows.follow(optimizer)
        return optimizer

    def compute_loss(self, model: nn.Module, inputs: dict, return_outputs: bool = False, num_items_in_batch=None):
        for part in self._frozen:
            part.eval()  # Trainer puts the whole model into training mode before every batch
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    def _get_num_items_in_batch(self, batch_samples: list, device: torch.device) -> Tensor | int | None:
        spans = [{"labels": batch["start_positions"]} for batch in batch_samples if "start_positions" in batch]
        return super()._get_num_items_in_batch(spans or batch_samples, device)  # which counts `labels` alone

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """
        Raises:
            Diverged: the loss since the last log is no number.
        """
        loss = logs.get("loss", logs.get("train_loss", 0.0))
        if not math.isfinite(float(loss)):
            raise Diverged(
                f"step {self.state.global_step}: the loss is {loss}; try a lower --learning-rate (and --overwrite)"
            )
        super().log(logs, start_time)

    def _determine_best_metric(self, metrics: dict[str, float], trial=None) -> bool:
        best = super()._determine_best_metric(metrics, trial)
        if best and self.args.load_best_model_at_end:
            self.control.should_save = True  # or the best would be lost where --save-steps passes evaluations over
        return best

    def get_train_dataloader(self) -> DataLoader:
        return keep_workers(super().get_train_dataloader())

    def get_eval_dataloader(self, eval_dataset: Dataset | None = None) -> DataLoader:
        return keep_workers(super().get_eval_dataloader(eval_dataset))

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> Sampler:
        sampler = super()._get_train_sampler(train_dataset)
        if not isinstance(sampler, LengthGroupedSampler):
            return sampler
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        return ByLength(sampler.batch_size, lengths=sampler.lengths, seed=seed)

    def _get_eval_sampler(self, eval_dataset: Dataset) -> SequentialSampler:
        return SequentialSampler(eval_dataset)  # also where training groups by length: predictions are matched to rows


class WeightedLoss:
    """Cross-entropy in which every class weighs as much as every other.

    A class weighs (labels / classes / its labels), so that weights average 1 over the training rows and the loss may
    be divided by the number of labels.
    """

    def __init__(self, features: Dataset, classes: int):
        labels = np.concatenate([np.ravel(label) for label in features["labels"]])
        counts = np.bincount(labels[labels >= 0], minlength=classes)
        self.weights = torch.tensor(counts.sum() / (classes * np.maximum(counts, 1)), dtype=torch.float32)

    def __call__(self, outputs: dict, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        logits = outputs["logits"].flatten(0, -2).float()
        self.weights = self.weights.to(logits.device)  # copied there once
        total = nn.functional.cross_entropy(logits, labels.flatten(), weight=self.weights, reduction="sum")
        return total / at_least_one((labels != -100).sum() if num_items_in_batch is None else num_items_in_batch)


def metrics_function(
    task: Task, features: Dataset, rows: Dataset, config: PreTrainedConfig
) -> Callable[[EvalPrediction], dict[str, float]]:
    """The `compute_metrics` of Trainer: tunes thresholds, writes them into the model's `config`, and scores."""

    def compute(evaluation: EvalPrediction) -> dict[str, float]:
        logits = evaluation.predictions
        logits = list(np.stack(logits, -1) if isinstance(logits, tuple) else logits)
        tuned = task.tuned(logits, features, rows)
        for name in task.tuned_values:
            setattr(config, name, getattr(tuned.config, name, None))
        return tuned.score(tuned.decode(logits, features, rows), tuned.references(rows))

    return compute
