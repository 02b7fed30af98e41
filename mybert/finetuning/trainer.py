"""transformers' Trainer where fine-tuning wants more: a frozen encoder, weighted classes, evaluation in order."""

import math
from collections.abc import Callable

import numpy as np
import torch
from accelerate.utils import reduce
from datasets import Dataset
from torch import Tensor, nn
from torch.utils.data import SequentialSampler
from transformers import EvalPrediction, Trainer, TrainerCallback

from modeling_mybert.backbone_mybert import at_least_one
from mybert.common.errors import UserError
from mybert.common.preemption import Preempted
from mybert.finetuning.task import Task


class FinetuningTrainer(Trainer):
    """
    Args:
        freeze_encoder: embeddings and layers stay as they are, without dropout; pooler and head are trained.
        kwargs: as in `transformers.Trainer`.
    """

    def __init__(self, *args, freeze_encoder: bool = False, **kwargs):
        super().__init__(*args, **kwargs)
        base = self.model.base_model
        self._frozen = (base.embeddings, base.encoder) if freeze_encoder else ()
        for part in self._frozen:
            part.requires_grad_(False)

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
            UserError: the loss since the last log is no number.
        """
        loss = logs.get("loss", logs.get("train_loss", 0.0))
        if not math.isfinite(float(loss)):
            raise UserError(
                f"step {self.state.global_step}: the loss is {loss}; try a lower --learning-rate (and --overwrite)"
            )
        super().log(logs, start_time)

    def _get_eval_sampler(self, eval_dataset: Dataset) -> SequentialSampler:
        return SequentialSampler(eval_dataset)  # also where training groups by length: predictions are matched to rows


class StopWhenAsked(TrainerCallback):
    """Saves after the step in which any process was asked to stop, and ends them all by `Preempted`."""

    def __init__(self):
        self._asked = self._stops = False

    def ask(self) -> None:
        self._asked = True

    def on_step_end(self, args, state, control, **kwargs):
        asked = self._asked
        if args.world_size > 1:
            asked = bool(reduce(torch.tensor(float(asked), device=args.device), "sum"))
        if asked:
            self._stops = control.should_training_stop = True

    def on_epoch_end(self, args, state, control, **kwargs):
        if self._stops:
            control.should_save = True
            control.should_evaluate &= float(state.epoch).is_integer()  # else the epoch ends after --resume

    def on_save(self, args, state, control, **kwargs):
        if self._stops:
            if state.is_world_process_zero:
                done = f"step {state.global_step} of {state.max_steps}"
                print(f"stopped by SIGTERM after {done}; `mybert finetune … --resume` goes on there", flush=True)
            raise Preempted  # now: where Trainer ends, it deletes the checkpoint if another one is the best


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


def metrics_function(task: Task, features: Dataset, rows: Dataset) -> Callable[[EvalPrediction], dict[str, float]]:
    """What Trainer calls after each evaluation on `features`: the task's scores, whatever it tunes tuned first."""

    def compute(evaluation: EvalPrediction) -> dict[str, float]:
        logits = evaluation.predictions
        logits = list(np.stack(logits, -1) if isinstance(logits, tuple) else logits)
        task.tune(logits, features, rows)
        return task.score(task.decode(logits, features, rows), task.references(rows))

    return compute
