"""Pretraining whose loss also compares the model with a teacher."""

from collections.abc import Callable
from typing import Any

import datasets
import numpy as np
import torch
from torch import Tensor, nn

from modeling_mybert.operations_mybert import at_least_one
from mybert.distillation.teacher import Comparison
from mybert.pretraining.data.masking import IGNORED
from mybert.pretraining.evaluation import label_sums
from mybert.pretraining.objective import Pretraining
from mybert.training.trainer import RunTrainer


class Distillation(Pretraining):
    """The weighted sum of the losses of pretraining and of a `Comparison`.

    Args:
        corpus, options: as in `Pretraining`.
    """

    def __init__(self, comparison: Comparison, corpus: datasets.Dataset, **options: Any):
        super().__init__(corpus, **options)
        self.comparison, self._own_parts = comparison, self.loss_parts
        self.loss_parts = (*self.loss_parts, *(f"{name}_loss" for name in comparison.names))

    def begin(self, trainer: RunTrainer) -> None:
        super().begin(trainer)
        self.comparison.teacher.to(self.args.device)
        if trainer.is_world_process_zero():
            print(self.comparison.description(trainer.model))

    @property
    def _student(self) -> Any:
        return self.trainer.accelerator.unwrap_model(self.trainer.model)

    def loss(
        self, compute: Callable[..., Any], inputs: dict[str, Any], with_outputs: bool, items: Tensor | None
    ) -> Any:
        """The teacher's means over the tokens of a batch are weighted by the batch's share of the labelled tokens of
        the step, so that accumulated batches give the mean of the step.
        """
        labels = inputs["labels"]
        inputs = self.comparison.student_inputs(self._student, inputs)
        loss, outputs = super().loss(compute, inputs, True, items)
        losses, _ = self.comparison.losses(self._student, inputs, outputs.prediction_logits, outputs.hidden_states)
        share = self.trainer.loss_scale * (labels != IGNORED).sum() / at_least_one(0 if items is None else items)
        losses = {name: part * share for name, part in losses.items()}
        self.trainer.metrics.add_losses([*(None for _ in self._own_parts), *losses.values()])
        loss = self.comparison.total(loss, losses)
        return (loss, outputs) if with_outputs else loss

    def logs(self, logs: dict[str, float]) -> dict[str, float]:
        hard = sum(logs[name] for name in self._own_parts)
        logs["loss"] = self.comparison.total(hard, {name: logs[f"{name}_loss"] for name in self.comparison.names})
        return super().logs(logs)

    def evaluate_batch(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Tensor, Any]:
        """Sums of pretraining (6) and of the teacher (3), of each loss (n), and their counts (n).

        A loss is summed over the tokens that it averages: the labelled ones, or all. The teacher has sums if the
        losses need its predictions; it reads the same masked tokens.
        """
        labels = inputs["labels"]
        inputs = self.comparison.student_inputs(self._student, inputs)
        sums, outputs = super().evaluate_batch(model, inputs)
        losses, expected = self.comparison.losses(
            self._student, inputs, outputs.prediction_logits, outputs.hidden_states
        )
        tokens = inputs["input_ids"].numel()
        one = torch.ones((), device=labels.device)
        counts = torch.stack([one * ((labels != IGNORED).sum() if name == "soft" else tokens) for name in losses])
        of_teacher = torch.zeros(3, device=labels.device)
        if expected is not None:
            of_teacher = label_sums(expected, inputs["labels"].flatten()[inputs["masked_lm_positions"]])
        others = torch.cat([of_teacher, torch.stack([*losses.values()]) * counts, counts])
        return torch.cat([sums, others.to(sums)[None]], dim=1), outputs

    def metrics_from(self, sums: np.ndarray) -> dict[str, float]:
        names = self.comparison.names
        rows = sums.astype(np.float64).reshape(-1, 9 + 2 * len(names))
        metrics = super().metrics_from(rows[:, :6])
        of_teacher = super().metrics_from(np.pad(rows[:, 6:9], ((0, 0), (0, 3))))
        sums, counts = np.split(rows[:, 9:].sum(0), 2)
        losses = dict(zip(names, (sums / np.maximum(counts, 1)).tolist(), strict=True))
        metrics["loss"] = self.comparison.total(metrics["loss"], losses)
        teacher = {f"teacher_{name}": of_teacher[name] for name in ("mlm_loss", "mlm_accuracy") if name in of_teacher}
        return metrics | {f"{name}_loss": loss for name, loss in losses.items()} | teacher
