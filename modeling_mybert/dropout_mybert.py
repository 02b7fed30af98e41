"""Dropout that costs little on the CPU, where PyTorch draws one number after the other for it.

There a 64-bit number of the same generator decides on four values at once, so that the mask costs about a quarter.
"""

import torch
from torch import Tensor, nn

_STEPS = 1 << 16  # a decision is made by 16 bits


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """`torch.nn.functional.dropout`: each value is zero with probability `p`, else divided by `1 - p`.

    On the CPU `p` is rounded to a multiple of 2**-16, and values are scaled by what it is rounded to, so that the
    expectation stays exact. Elsewhere, and in compiled graphs, which fuse it with its neighbours, it is PyTorch's own.
    """
    if not training or p == 0:
        return x
    dropped = round(p * _STEPS)
    if dropped == _STEPS or x.device.type != "cpu" or torch.compiler.is_compiling() or torch.jit.is_tracing():
        return nn.functional.dropout(x, p, training)
    bits = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    keep = bits[: x.numel()].view(x.shape).to(x.dtype if x.dtype.itemsize > 2 else torch.float32)
    keep = keep.ge_(dropped - _STEPS // 2).mul_(_STEPS / (_STEPS - dropped))
    return x * keep.to(x.dtype)


class MyBertDropout(nn.Dropout):
    """`torch.nn.Dropout` by the function above."""

    def forward(self, x: Tensor) -> Tensor:
        """(…) → (…)."""
        return dropout(x, self.p, self.training)
