"""The faster operations of this package, chosen by the device of their first tensor."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from mybert.inference import cuda
from mybert.inference.cpu import attention, onednn
from mybert.inference.cpu.attention import attend_rows
from mybert.inference.cpu.elementwise import cross_entropy, dropout, softmax
from mybert.inference.cpu.int8 import use_int8
from mybert.inference.cpu.onednn import round_up

__all__ = [
    "attend",
    "attend_rows",
    "cross_entropy",
    "dropout",
    "linear",
    "linears",
    "round_up",
    "softmax",
    "use_int8",
]


def linear(module: nn.Module, x: Tensor) -> Tensor:
    """`module(x)` for an `nn.Linear` or its replacement, (…, in_features) → (…, out_features)."""
    return cuda.linear(module, x) if x.is_cuda else onednn.linear(module, x)


def linears(modules: Sequence[nn.Module], x: Tensor) -> Sequence[Tensor]:
    """`module(x)` of each: (…, in_features) → (…, out_features)."""
    return cuda.linears(modules, x) if x.is_cuda else [onednn.linear(module, x) for module in modules]


def attend(module: Any, query: Tensor, *inputs: Any) -> Tensor | None:
    """(T, A, D) three times, ragged layout, dropout → (T, A, D); None: PyTorch computes the whole grid."""
    return (cuda if query.is_cuda else attention).attend(module, query, *inputs)
