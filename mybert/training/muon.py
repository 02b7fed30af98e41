"""Muon for the matrices of the encoder and AdamW for everything else, as one optimizer."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainingArguments
from transformers.utils import logging

from mybert.training.arguments import bfloat16_is_faster

logger = logging.get_logger(__name__)

_MOMENTUM, _ITERATIONS = 0.95, 5
_A, _B, _C = 3.4445, -4.775, 2.0315
"""Coefficients of the iteration X ← A X + B (X Xᵀ) X + C (X Xᵀ)² X (Jordan et al. 2024)."""
_WIDE = 2
"""How many times as wide as high a matrix is for which the products of its Gram matrix alone are fewer operations."""
_STACKED = 1 << 20  # weights of matrices that are multiplied together; larger ones gain nothing


class Muon(torch.optim.Optimizer):
    """`torch.optim.Muon` with `adjust_lr_fn="match_rms_adamw"`, in a data type that the device multiplies fast.

    torch's iterates in bfloat16, which a processor without instructions for it emulates at a sixtieth of the speed.
    Here the type is a value of the parameter groups, so a resumed run keeps it. Matrices of one shape are multiplied
    together.
    """

    def __init__(self, params: Iterable[Tensor], lr: float, weight_decay: float, dtype: torch.dtype):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "dtype": str(dtype).removeprefix("torch.")})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # no closure is used
        for group in self.param_groups:
            dtype = getattr(torch, group["dtype"])
            for parameters in _stacks([p for p in group["params"] if p.grad is not None]):
                updates = torch.stack([self._momentum(p).to(dtype) for p in parameters])
                rate = group["lr"] * 0.2 * math.sqrt(max(parameters[0].shape))
                for p, update in zip(parameters, orthogonalise(updates), strict=True):
                    p.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-rate)

    def _momentum(self, p: Tensor) -> Tensor:
        """Nesterov's momentum of a parameter, after this step's gradient."""
        state = self.state[p]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(p)
        gradient = p.grad
        assert gradient is not None  # `step` passes over the others
        buffer = state["momentum_buffer"].lerp_(gradient, 1 - _MOMENTUM)
        return gradient.lerp(buffer, _MOMENTUM)


def _stacks(parameters: list[Tensor]) -> Iterator[list[Tensor]]:
    """Groups parameters of one shape, of at most `_STACKED` weights together."""
    by_shape = defaultdict(list)
    for parameter in parameters:
        by_shape[parameter.shape].append(parameter)
    for shape, alike in by_shape.items():
        count = max(1, _STACKED // shape.numel())
        yield from (alike[first : first + count] for first in range(0, len(alike), count))


def orthogonalise(matrices: Tensor) -> Tensor:
    """Five Newton-Schulz iterations towards the nearest orthogonal matrix of each matrix, (N, I, O) → (N, I, O).

    All iterates are polynomials in the Gram matrix G = X Xᵀ times X. In float32, those of a wide matrix are computed
    from G, which takes half of the operations. In bfloat16, G is too inexact for that.
    """
    if matrices.shape[-2] > matrices.shape[-1]:
        return orthogonalise(matrices.mT).mT
    x = matrices / torch.linalg.matrix_norm(matrices, keepdim=True).clamp(min=1e-7)
    is_wide = x.shape[-1] >= _WIDE * x.shape[-2]
    return (_by_gram_matrix if is_wide and x.dtype != torch.bfloat16 else _iterated)(x)


def _iterated(x: Tensor) -> Tensor:
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=_B, alpha=_C), x, beta=_A)
    return x


def _by_gram_matrix(x: Tensor) -> Tensor:
    gram = factors = x @ x.mT
    for number in range(_ITERATIONS):
        factor = torch.baddbmm(gram, gram, gram, beta=_B, alpha=_C)
        factor.diagonal(dim1=-2, dim2=-1).add_(_A)
        factors = factor @ factors if number else factor
        if number < _ITERATIONS - 1:
            gram = factor @ (factor @ gram)  # all of them commute
    return factors @ x


def matrix_flops(high: int, wide: int) -> int:
    """Operations of `orthogonalise` in float32 for a matrix of which `high` is the smaller side."""
    square, product = 2 * high**3, 2 * high**2 * wide
    if wide < _WIDE * high:
        return _ITERATIONS * (square + 2 * product)
    return 2 * product + (4 * _ITERATIONS - 3) * square


class MuonAdamW(torch.optim.Optimizer):
    """`Muon` and `torch.optim.AdamW` with one list of parameter groups and one state.

    Muon replaces the momentum of a weight matrix by the nearest orthogonal matrix (Jordan et al. 2024). Its updates
    are scaled to the root mean square of AdamW's (Liu et al. 2025, "Muon is Scalable for LLM Training", section 2.2),
    so that both use the same learning rate.

    Args:
        parts: optimizers of different parameters.
    """

    def __init__(self, *parts: torch.optim.Optimizer):
        groups = [group for part in parts for group in part.param_groups]
        super().__init__(groups, {"lr": parts[0].defaults["lr"]})  # which some schedules of transformers read
        self.parts = parts
        self._share()

    @classmethod
    def of(cls, model: nn.Module, decayed: Collection[str], arguments: TrainingArguments) -> "MuonAdamW":
        """Muon trains the matrices of the layers of a MyBERT; `decayed` names the parameters with weight decay."""
        matrices: list[Tensor] = []
        tables: list[Tensor] = []
        rest: list[Tensor] = []
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                is_matrix = parameter.ndim == 2 and ".encoder." in name
                (matrices if is_matrix else tables if name in decayed else rest).append(parameter)
        dtype = torch.bfloat16 if bfloat16_is_faster(arguments.device) else torch.float32
        muon = Muon(matrices, arguments.learning_rate, arguments.weight_decay, dtype)
        adamw = torch.optim.AdamW(
            list[dict[str, Any]]([{"params": tables}, {"params": rest, "weight_decay": 0.0}]),
            arguments.learning_rate,
            betas=(arguments.adam_beta1, arguments.adam_beta2),
            eps=arguments.adam_epsilon,
            weight_decay=arguments.weight_decay,
            fused=True,
        )
        return cls(muon, adamw)

    def _share(self) -> None:
        """Lets the parts use this optimizer's groups, whose rates a scheduler changes, and its state."""
        groups = iter(self.param_groups)
        for part in self.parts:
            part.param_groups = [next(groups) for _ in part.param_groups]
            part.state = self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Also loads the data type of Muon's products, so that a resumed run computes as it did before."""
        chosen = self.param_groups[0]["dtype"]
        super().load_state_dict(state_dict)
        started = self.param_groups[0]["dtype"]
        if started != chosen:
            logger.warning("Muon goes on in %s, as the run was started; here, %s is faster", started, chosen)
        self._share()

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # no closure is used
        for part in self.parts:
            part.step()
