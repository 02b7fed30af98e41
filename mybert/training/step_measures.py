"""Measures of single steps: how far a step moves the weights, and how much of its gradient is noise."""

import time

import torch
from torch import Tensor, nn
from transformers import TrainerCallback

_SAMPLED = 4  # weight matrices


class StepMeasures(TrainerCallback):
    """Measures the steps that are logged, on a sample of the weight matrices of the encoder's layers.

    Attributes:
        every: steps between two measures (default: `logging_steps`), if it is not known which steps are logged.
    """

    def __init__(self):
        self.every: int | None = None
        self._weights: list[Tensor] = []
        self._gradients: list[Tensor] = []
        self._found: dict[str, Tensor] = {}
        self._started = self._optimizer_seconds = 0.0

    def take(self) -> dict[str, float]:
        """The measures of the last measured step; those that could not be taken are absent.

        `update_ratio`: the median of ‖change‖ / ‖weights‖ over the matrices.

        `gradient_noise`: 1 - the cosine of the gradients of this step and the one before. With the gradient G over all
        data and the covariance Σ of the gradients of examples it estimates noise / (|G|² + noise), where noise is
        tr(Σ) / batch size. `noise / (1 - noise)` is the simple noise scale in batches (McCandlish et al. 2018,
        equation 2.9). Above 1 the two steps point against each other.
        """
        found, self._found = self._found, {}
        return {name: round(value.item(), 8) for name, value in found.items()}

    def take_optimizer_seconds(self) -> float:
        """Time of the optimizer steps since the last call; on the CPU, which computes them at once."""
        found, self._optimizer_seconds = self._optimizer_seconds, 0.0
        return found

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        step, every = state.global_step + 1, self.every or max(int(state.logging_steps), 1)
        is_logged, is_before = step % every == 0, (step + 1) % every == 0
        sample = _sample(model) if is_logged or is_before else []
        gradients = [gradient for _, gradient in sample]
        if any(gradient is None for gradient in gradients):  # of a skipped step
            gradients = []
        if is_logged:
            self._weights = [weights.clone() for weights, _ in sample]
            if gradients and self._gradients:
                self._found["gradient_noise"] = 1 - _cosine(list(zip(gradients, self._gradients, strict=True)))
        self._gradients = [gradient.clone() for gradient in gradients] if is_before else []
        self._started = time.perf_counter()

    def on_optimizer_step(self, args, state, control, model=None, **kwargs):
        self._optimizer_seconds += time.perf_counter() - self._started
        if self._weights:
            pairs = zip(_sample(model), self._weights, strict=True)
            ratios = [(now - before).norm() / before.norm().clamp(min=1e-12) for (now, _), before in pairs]
            self._found["update_ratio"], self._weights = torch.stack(ratios).median(), []


def _cosine(pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Of all matrices as one vector."""
    products = torch.stack([torch.stack([(a * b).sum(), (a * a).sum(), (b * b).sum()]) for a, b in pairs])
    product, first, second = products.sum(0)
    return product / (first.sqrt() * second.sqrt()).clamp(min=1e-30)  # before the product, for its range


def _sample(model: nn.Module) -> list[tuple[Tensor, Tensor | None]]:
    """Trained weight matrices at even distances, with their gradients; of sharded ones the part of this process."""
    found = [
        (weights.detach(), weights.grad)
        for name, weights in model.named_parameters()
        if weights.ndim == 2 and weights.requires_grad and ".layer" in name and weights.numel()
    ]
    found = [tuple(x.to_local() if hasattr(x, "to_local") else x for x in pair) for pair in found]
    return found[:: max(1, len(found) // _SAMPLED)][:_SAMPLED]
