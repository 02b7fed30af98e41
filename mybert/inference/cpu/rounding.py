"""Numbers of tokens rounded up, since oneDNN compiles a product for each new number of rows.

It does so in half precision and where `linear` uses it.
"""

import copy
import functools
from typing import Any

import torch
from torch import Tensor

from mybert.inference.cpu.onednn import uses_onednn
from mybert.inference.cpu.processor import HALF, is_plain_cpu


def round_up(layout: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """A `RaggedLayout` with padding tokens at the end, up to a round number of tokens; itself if it gains nothing."""
    if layout.mask is None or not is_plain_cpu(device):
        return layout
    missing = -layout.total % row_multiple(layout.total, device, dtype)
    if not missing:
        return layout
    padding = (~layout.mask).flatten().nonzero().squeeze(1)[:missing]
    rounded = copy.copy(layout)
    rounded.__class__ = _rounded(layout.__class__)
    rounded.real, rounded.made = layout, {}
    rounded.indices = torch.cat([layout.indices, padding])
    return rounded


def row_multiple(total: int, device: torch.device, dtype: torch.dtype) -> int:
    """The number that the `total` rows of a batch are rounded up to a multiple of."""
    half = dtype in HALF or torch.is_autocast_enabled("cpu")
    if not (half or uses_onednn(device, dtype)):
        return 1
    return next((multiple for multiple in (64, 32, 16) if total >= 8 * multiple), 1)


class _Rounded:
    """The real tokens of the layout `real`, then places of its padding. No real token attends to these."""

    real: Any
    total: int

    def to_batch(self, rows: Tensor) -> Tensor:
        return self.real.to_batch(rows[: self.real.total])

    def from_batch(self, batch: Tensor) -> Tensor:
        rows = self.real.from_batch(batch)  # values at padding may be NaN: use zeros instead
        return torch.cat([rows, rows.new_zeros(self.total - len(rows), *rows.shape[1:])])


@functools.cache
def _rounded(layout: type) -> type:
    return type(f"Rounded{layout.__name__}", (_Rounded, layout), {})
