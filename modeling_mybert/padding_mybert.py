"""Conversion of a batch between padded and packed form.

Shape letters of this package:
    B batch, S padded sequence length, N sequences in a batch or pack, L longest sequence, T tokens in the ragged
    layout, K tokens that `tokens_to_keep` names, R tokens that the last layer computes (these and the first of each
    sequence), H hidden size, A heads, D head size, V vocabulary, C classes or choices.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from .operations_mybert import can_read_without_sync


@dataclass
class RaggedLayout:
    """The real tokens of a padded or packed batch, stored one after the other.

    Attributes:
        grid: (N, L). Attention by a mask computes one row for each sequence.
        indices: (T,) place of each token in the flattened grid; None when T = N·L and nothing is missing.
        cu_seq_lens: (N + 1,) int32, where each sequence starts.
        mask: bool (N, 1, 1, L), the keys that attention may see on the grid; None: all.
        packed: the batch has the form (1, T), not that of the grid.
        made: what attention makes once a batch.
    """

    grid: tuple[int, int]
    indices: Tensor | None
    cu_seq_lens: Tensor
    mask: Tensor | None = None
    packed: bool = False
    made: dict[Any, Any] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """T."""
        return self.grid[0] * self.grid[1] if self.indices is None else self.indices.numel()

    @property
    def positions(self) -> Tensor:
        """(T,) BERT's default `position_ids`: the column of each token in the grid."""
        length = self.grid[1]
        if self.indices is not None:
            return self.indices % length
        return torch.arange(length, device=self.cu_seq_lens.device).repeat(self.grid[0])

    def to_grid(self, rows: Tensor) -> Tensor:
        """(T, …) → (N, L, …), zeros where there is no token."""
        if self.indices is None:
            return rows.unflatten(0, self.grid)
        flat = rows.new_zeros(self.grid[0] * self.grid[1], *rows.shape[1:])
        return flat.index_copy(0, self.indices, rows).unflatten(0, self.grid)

    def from_grid(self, grid: Tensor) -> Tensor:
        """(N, L, …) → (T, …)."""
        flat = grid.flatten(0, 1)
        return flat if self.indices is None else flat.index_select(0, self.indices)

    def to_batch(self, rows: Tensor) -> Tensor:
        """(T, …) → (1, T, …) for a packed batch, else (B, S, …) with zeros at padding."""
        return rows[None] if self.packed else self.to_grid(rows)

    def from_batch(self, batch: Tensor) -> Tensor:
        """(1, T, …), (B, S, …) or (1, S, …) for all sequences → (T, …)."""
        return batch.flatten(0, 1) if self.packed else self.from_grid(batch.expand(*self.grid, *batch.shape[2:]))

    def first_tokens(self, rows: Tensor) -> Tensor:
        """(T, …) → (N, …), each sequence's first token."""
        return rows[self.cu_seq_lens[:-1]]

    def rows_of(self, places: Tensor) -> tuple[Tensor, Tensor | None]:
        """(K,) places in the flattened batch → the row of each, and which of them are padding; None: none."""
        if self.packed or self.indices is None or self.mask is None:
            return places, None
        rows = places.new_zeros(self.grid[0] * self.grid[1])
        rows[self.indices] = torch.arange(self.total, device=rows.device)
        return rows[places], ~self.mask.flatten()[places]

    def block_mask(self) -> BlockMask:
        """The mask of flex attention over the T tokens, built once a batch (T·T bytes meanwhile)."""
        if "block mask" not in self.made:
            sequence = _sequence_of_each_token(self.cu_seq_lens, self.total)

            def same_sequence(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
                return sequence[query] == sequence[key]

            size = (self.total, self.total)
            self.made["block mask"] = create_block_mask(same_sequence, None, None, *size, device=sequence.device)
        return self.made["block mask"]


@dataclass
class DenseLayout:
    """A padded batch whose padding is computed like any token; its tensors keep the form (B, S, …).

    Tracing and export need it because the number of real tokens depends on data, module hooks because they expect
    this form, and 4-D masks because they may let tokens see padding.

    Attributes:
        grid: (B, S).
        mask: what attention may see, bool or additive, broadcastable to (B, A, S, S); None: everything.
        real: bool (B, S), the real tokens; None: all.
    """

    grid: tuple[int, int]
    mask: Tensor | None
    real: Tensor | None
    device: torch.device

    def to_grid(self, batch: Tensor) -> Tensor:
        """(B, S, …), unchanged."""
        return batch

    from_grid = to_grid

    def to_batch(self, batch: Tensor) -> Tensor:
        """(B, S, …) with zeros at padding."""
        if self.real is None:
            return batch
        return batch.masked_fill(~self.real.view(*self.real.shape, *[1] * (batch.dim() - 2)), 0)

    def from_batch(self, batch: Tensor) -> Tensor:
        """(B, S, …) or (1, S, …) → (B, S, …)."""
        return batch.expand(*self.grid, *batch.shape[2:])

    def first_tokens(self, batch: Tensor) -> Tensor:
        """(B, S, …) → (B, …), each sequence's first real token."""
        if self.real is None:
            return batch[:, 0]
        return batch[torch.arange(self.grid[0], device=self.device), self.real.int().argmax(1)]

    @property
    def positions(self) -> Tensor:
        """(1, S) BERT's default `position_ids`: the column of each token."""
        return torch.arange(self.grid[1], device=self.device)[None]


Layout = RaggedLayout | DenseLayout
AnyLayout = Layout | Tensor | None


def batch_layout(layout: AnyLayout, batch: Tensor) -> Layout:
    """`layout`; of a module that is called by itself, that of its (B, S, …) batch and a mask for attention."""
    if layout is None or isinstance(layout, Tensor):
        return DenseLayout((batch.shape[0], batch.shape[1]), layout, None, batch.device)
    return layout


def padded_layout(
    grid: tuple[int, int], attention_mask: Tensor | None, device: torch.device, dense: bool = False
) -> Layout:
    """The layout of a padded (B, S) batch. Finding its real tokens waits for the device once.

    Args:
        attention_mask: (B, S), nonzero for real tokens; or 4-D, which attention gets as it is; None: all are real.
        dense: compute padding as well. Tracing and export always do.

    Raises:
        ValueError: the mask has another shape, or one of its rows has no real token (not checked in compiled graphs).
    """
    dense = dense or torch.jit.is_tracing() or torch.compiler.is_exporting()  # type: ignore[attr-defined]
    if attention_mask is not None and attention_mask.dim() == 4:
        # as in two dimensions, an integer says whether a token is seen; it is no score to add
        mask = attention_mask if attention_mask.is_floating_point() else attention_mask.bool()
        return DenseLayout(grid, mask, None, device)
    if attention_mask is None:
        return DenseLayout(grid, None, None, device) if dense else _full_layout(grid, device)
    if attention_mask.shape != torch.Size(grid):
        raise ValueError(f"attention_mask has shape {tuple(attention_mask.shape)}, expected {tuple(grid)}")
    real = attention_mask.bool()
    if dense:
        return DenseLayout(grid, real[:, None, None, :], real, device)
    indices = real.flatten().nonzero().squeeze(1)
    if indices.numel() == real.numel():
        return _full_layout(grid, device)
    lengths = real.sum(1)
    if can_read_without_sync(lengths, training=False) and not lengths.all():  # `nonzero` has already synchronised
        raise ValueError(f"attention_mask has no real token in row {int(lengths.argmin())}; leave empty rows out")
    cu_seq_lens = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return RaggedLayout(grid, indices, cu_seq_lens, real[:, None, None, :])


def packed_layout(cu_seq_lens: Tensor, max_length: int | None, total: int) -> RaggedLayout:
    """The layout of a packed batch: `N` sequences one after the other, each a row of the attention grid.

    Args:
        cu_seq_lens: (N + 1,) where each sequence starts, and `total` at the end.
        max_length: the longest sequence; None: read it from `cu_seq_lens`.

    Raises:
        ValueError: the boundaries do not run from 0 to `total` in steps of 1 to `max_length` (checked on the CPU only,
            and not in compiled graphs).
    """
    cu_seq_lens = cu_seq_lens.to(torch.int32)
    lengths = cu_seq_lens.diff()
    max_length = int(lengths.max() if max_length is None else max_length)
    if can_read_without_sync(cu_seq_lens, training=True) and (
        cu_seq_lens[0] != 0 or cu_seq_lens[-1] != total or lengths.min() < 1 or lengths.max() > max_length
    ):
        raise ValueError(
            f"cu_seq_lens_q must rise from 0 to the {total} tokens of input_ids in steps of 1 to "
            f"max_length_q={max_length}, got {cu_seq_lens.tolist()}"
        )
    grid = (cu_seq_lens.numel() - 1, max_length)
    # Attention without a mask has faster kernels; a compiled graph would be compiled once for each case.
    if not torch.compiler.is_compiling() and grid[0] * grid[1] == total:
        return RaggedLayout(grid, None, cu_seq_lens, packed=True)
    indices = places_in_grid(cu_seq_lens, max_length, total)
    mask = torch.arange(max_length, device=cu_seq_lens.device) < lengths[:, None]
    return RaggedLayout(grid, indices, cu_seq_lens, mask[:, None, None, :], packed=True)


def _full_layout(grid: tuple[int, int], device: torch.device) -> RaggedLayout:
    """A padded batch without padding."""
    starts = torch.arange(0, grid[0] * grid[1] + 1, grid[1], device=device, dtype=torch.int32)
    return RaggedLayout(grid, None, starts)


def places_in_grid(cu_seq_lens: Tensor, longest: int, total: int) -> Tensor:
    """(total,) the place of each token in a flattened grid with `longest` columns."""
    sequence = _sequence_of_each_token(cu_seq_lens, total)
    return sequence * longest + torch.arange(total, device=cu_seq_lens.device) - cu_seq_lens[sequence]


def _sequence_of_each_token(cu_seq_lens: Tensor, total: int) -> Tensor:
    """(total,) the number of each token's sequence."""
    token = torch.arange(total, device=cu_seq_lens.device)
    return torch.searchsorted(cu_seq_lens, token, right=True, out_int32=True).long() - 1
