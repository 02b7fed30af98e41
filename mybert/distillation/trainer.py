"""The Trainer of distillation: pretraining with additional losses from a teacher."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import EvalPrediction

from modeling_mybert.operations_mybert import at_least_one
from mybert.distillation.teacher import Comparison
from mybert.pretraining.data.masking import IGNORED
from mybert.pretraining.evaluation import label_sums, metrics_from_sums
from mybert.pretraining.scheduled_trainer import ScheduledTrainer
from mybert.pretraining.trainer import MyBertTrainer


class DistillationTrainer(MyBertTrainer):
    """Adds the weighted distillation losses to the pretraining losses.

    The teacher's means over the tokens of a batch are weighted by the batch's share of the labelled tokens of the
    step, so that accumulated batches give the mean of the step.
    """

    def __init__(self, *args, comparison: Comparison, **kwargs):
        self._comparison = comparison
        self.further_parts = tuple(f"{name}_loss" for name in comparison.names)
        super().__init__(*args, **kwargs)
        self.compute_metrics = self._metrics_from_sums
        comparison.teacher.to(self.args.device)

    def compute_loss(self, model: nn.Module, inputs: dict, return_outputs=False, num_items_in_batch=None):
        share = self._share(inputs["labels"], num_items_in_batch)
        inputs = self._inputs(inputs)
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        parts = {name: part * share for name, part in self._losses(inputs, outputs)[0].items()}
        self.metrics.add_losses([None] * (len(self.loss_parts) - len(parts)) + list(parts.values()))
        weights = self._comparison.weights
        hard = loss * weights["hard"] if "hard" in weights else 0.0  # no zero gradients, which weight decay follows
        loss = hard + sum(weights[name] * part for name, part in parts.items())
        return (loss, outputs) if return_outputs else loss

    def _inputs(self, inputs: dict) -> dict[str, Any]:
        """The arguments of the student: unmasked, without labels, if no loss uses masked tokens."""
        inputs = {**inputs, "sparse_logits": True}
        inputs["output_hidden_states"] = self._comparison.student_states(self._student) or False
        if not self._comparison.reads_masked:
            labels = inputs["labels"]
            inputs["input_ids"] = torch.where(labels == IGNORED, inputs["input_ids"], labels)
            inputs["labels"] = torch.full_like(labels, IGNORED)
            inputs["masked_lm_positions"] = inputs["masked_lm_positions"][:0]
            inputs.pop("next_sentence_label", None)
        return inputs

    @property
    def _student(self) -> nn.Module:
        return self.accelerator.unwrap_model(self.model)

    def _losses(self, inputs: dict, outputs: Any) -> tuple[dict[str, Tensor], Tensor | None]:
        return self._comparison.losses(self._student, inputs, outputs.prediction_logits, outputs.hidden_states)

    def _share(self, labels: Tensor, num_items_in_batch: Tensor | int | None) -> Tensor | float:
        """The weight of a batch in its step, scaled over processes as Trainer scales the loss."""
        if num_items_in_batch is None:
            return 1.0
        return self.loss_scale * (labels != IGNORED).sum() / at_least_one(num_items_in_batch)

    def training_logs(self) -> dict[str, float]:
        logs = super().training_logs()
        hard = self._comparison.weights.get("hard", 0.0)
        weights = {"mlm": hard, "nsp": hard} | self._comparison.weights
        logs["loss"] = sum(weights[part.removesuffix("_loss")] * logs[part] for part in self.loss_parts)
        return logs

    def prediction_step(self, model: nn.Module, inputs: dict, prediction_loss_only: bool, ignore_keys=None):
        """The sums of the evaluation for student and teacher, then of each distillation loss, then their counts.

        A loss is summed over the tokens that it averages: the labelled ones, or all. The teacher has sums if the
        losses need its predictions; it reads the same masked tokens.
        """
        counts = {"soft": (inputs["labels"] != IGNORED).sum()}
        tokens = inputs["attention_mask"].sum() if "attention_mask" in inputs else inputs["input_ids"].numel()
        inputs = self._inputs(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            outputs = model(**inputs)
            losses, expected = self._losses(inputs, outputs)
        sums, of_teacher = self.sums_of(inputs, outputs), torch.zeros(3)
        if expected is not None:
            of_teacher = label_sums(expected, inputs["labels"].flatten()[inputs["masked_lm_positions"]])
        counts = torch.stack([sums.new_ones(()) * counts.get(name, tokens) for name in losses])
        others = torch.cat([of_teacher.to(sums), torch.stack([*losses.values()]).to(sums) * counts, counts])[None]
        return None, torch.cat([sums, others], dim=1), sums.new_zeros(1)

    def _metrics_from_sums(self, prediction: EvalPrediction) -> dict[str, float]:
        rows = np.asarray(prediction.predictions, dtype=np.float64).reshape(-1, 9 + 2 * len(self.further_parts))
        metrics = metrics_from_sums(EvalPrediction(rows[:, :6], None))
        of_teacher = metrics_from_sums(EvalPrediction(np.pad(rows[:, 6:9], ((0, 0), (0, 3))), None))
        sums, counts = np.split(rows[:, 9:].sum(0), 2)
        losses = dict(zip(self.further_parts, (sums / np.maximum(counts, 1)).tolist(), strict=True))
        weights = self._comparison.weights
        metrics["loss"] = weights.get("hard", 0.0) * metrics["loss"] + sum(
            weights[name.removesuffix("_loss")] * loss for name, loss in losses.items()
        )
        teacher = {f"teacher_{name}": of_teacher[name] for name in ("mlm_loss", "mlm_accuracy") if name in of_teacher}
        return metrics | losses | teacher


class ScheduledDistillationTrainer(DistillationTrainer, ScheduledTrainer):
    """Distillation with a schedule of length, batch size and masking."""
