"""Padded (batch, sequence) ↔ ragged (total_tokens): where the real tokens of a batch stand.

The shape letters of this package:
    B batch, S padded sequence length, N sequences in a batch or pack, L longest sequence of the attention grid,
    T tokens in all, H hidden size, A heads, D head size, V vocabulary.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from .input_checks_mybert import may_read

_MULTIPLES, _WORTH_FILLING = (64, 32, 16), 8  # T is made a multiple of the first that is an eighth of it or less


@dataclass
class RaggedLayout:
    """The places of `T` tokens in a grid of `N` sequences by `L` positions: all real ones, and `fill` more.

    Attributes:
        grid: (N, L).
        indices: (T,) the place of each token in the flattened grid; None when the grid has no gap, so that T = N·L.
        mask: what attention may see on the grid: None for everything, bool (N, 1, 1, L) over keys, or a caller's own
            4-D mask, bool or additive.
        cu_seq_lens: (N + 1,) int32, where each sequence starts in the ragged order, and T - fill at the end.
        first: (N,) the row of each sequence's first token in the ragged order.
        packed: the batch's own form is (1, T), not the grid.
        real: bool (N, L), where every position of the grid is computed but some are padding; else None.
        fill: how many of the T tokens, the last ones, stand at places of padding: they make T a round number and are
            seen by no other.
    """

    grid: tuple[int, int]
    indices: Tensor | None
    mask: Tensor | None
    cu_seq_lens: Tensor
    first: Tensor
    packed: bool = False
    real: Tensor | None = None
    fill: int = 0
    _block_mask: BlockMask | None = None

    def to_grid(self, ragged: Tensor) -> Tensor:
        """(T, …) → (N, L, …), zeros where there is no token."""
        if self.indices is None:
            return ragged.unflatten(0, self.grid)
        flat = ragged.new_zeros(self.grid[0] * self.grid[1], *ragged.shape[1:])
        return flat.index_copy(0, self.indices[: len(ragged)], ragged).unflatten(0, self.grid)

    def from_grid(self, padded: Tensor) -> Tensor:
        """(N, L, …) → (T, …)."""
        flat = padded.flatten(0, 1)
        return flat if self.indices is None else flat.index_select(0, self.indices)

    def to_batch(self, ragged: Tensor) -> Tensor:
        """(T, …) → (1, T, …) for a packed batch, else (B, S, …) with zeros at padding."""
        ragged = ragged[: self.total - self.fill]
        if self.packed:
            return ragged[None]
        batch = self.to_grid(ragged)
        if self.real is None:
            return batch
        return batch.masked_fill(~self.real.view(*self.real.shape, *[1] * (batch.dim() - 2)), 0)

    def from_batch(self, batch: Tensor) -> Tensor:
        """The batch's own form → (T, …); one row of it serves all sequences."""
        tokens = batch.flatten(0, 1) if self.packed else self.from_grid(batch.expand(*self.grid, *batch.shape[2:]))
        if not self.fill:
            return tokens
        real = tokens[: self.total - self.fill]  # what stands at padding is not to be trusted: it may be NaN
        return torch.cat([real, real.new_zeros(self.fill, *real.shape[1:])])

    @property
    def is_ragged(self) -> bool:
        """Whether `cu_seq_lens` alone says what attention may see: there is no mask beyond that of missing tokens."""
        return self.mask is None or self.indices is not None

    @property
    def total(self) -> int:
        """T."""
        return self.grid[0] * self.grid[1] if self.indices is None else self.indices.numel()

    def block_mask(self) -> BlockMask:
        """What flex attention may see among the T tokens, built once a batch (T·T bytes while it is)."""
        if self._block_mask is None:
            sequence = _sequences(self.cu_seq_lens, self.total)

            def same_sequence(batch, head, query, key):
                return sequence[query] == sequence[key]

            size = (self.total, self.total)
            self._block_mask = create_block_mask(same_sequence, None, None, *size, device=sequence.device)
        return self._block_mask

    def keep(self, tokens: Tensor | None) -> "KeptTokens":
        """Of (K,) places in the flattened batch, and of each sequence's first token; None: of the latter alone."""
        first = self.first.long()
        if tokens is None:
            each = torch.arange(self.grid[0] + 1, device=first.device, dtype=torch.int32)
            return KeptTokens((self.grid[0], 1), None, None, each, each[:-1], rows=first, asked=first[:0])
        rows, padding = tokens, None
        if self.indices is not None and not self.packed:
            real = self.indices[: self.total - self.fill]
            rows = torch.searchsorted(real, tokens).clamp(max=len(real) - 1)
            padding = self.indices[rows] != tokens
        rows, order = torch.cat([first, rows]).sort()
        cu_seq_lens = torch.searchsorted(rows, self.cu_seq_lens.long(), out_int32=True)
        kept = KeptTokens(self.grid, None, None, cu_seq_lens, cu_seq_lens[:-1], rows=rows, padding=padding)
        kept.asked = order.argsort()[self.grid[0] :]
        if may_read(cu_seq_lens, training=True):
            kept.grid = self.grid[0], int(cu_seq_lens.diff().max())
            gaps = kept.grid[0] * kept.grid[1] != rows.numel()
            kept.indices = _indices(cu_seq_lens, kept.grid[1], rows.numel()) if gaps else None
        else:
            kept.indices = rows if self.indices is None else self.indices[rows]
            there = torch.zeros(self.grid[0] * self.grid[1], device=rows.device)
            kept.weights = 1 / there.index_add(0, kept.indices, torch.ones_like(rows, dtype=there.dtype))[kept.indices]
        return kept

    @cached_property
    def lengths(self) -> list[int]:
        """The N sequences' lengths; read once a batch, which elsewhere than on the CPU costs a synchronisation."""
        return [end - start for start, end in pairwise(self.cu_seq_lens.tolist())]

    @property
    def positions(self) -> Tensor:
        """(T,) each token's column in the grid, BERT's default `position_ids`."""
        length = self.grid[1]
        if self.indices is not None:
            return self.indices % length
        return torch.arange(length, device=self.cu_seq_lens.device).repeat(self.grid[0])


@dataclass
class KeptTokens(RaggedLayout):
    """The tokens that the last layer computes where no others are read, each sequence's first among them.

    They are the queries of its attention; keys and values come from all tokens, whose layout has the mask. On the CPU
    the grid of queries is as narrow as the longest of their sequences. Elsewhere their numbers cannot be read without
    waiting for the device, so the grid is that of all tokens and each query stands where its token does.

    Attributes:
        rows: (R,) which of the batch's tokens they are, in ragged order.
        asked: (K,) which of these were asked for, in that order.
        padding: bool (K,), which of those are padding; None: none.
        weights: (R,) one divided by how many of `rows` share a place of the grid; None: none do.
    """

    rows: Tensor | None = None
    asked: Tensor | None = None
    padding: Tensor | None = None
    weights: Tensor | None = None

    def to_grid(self, ragged: Tensor) -> Tensor:
        """(R, …) → (N, L, …); copies of one token are averaged there: each gets its share of the gradient."""
        if self.weights is None:
            return super().to_grid(ragged)
        flat = ragged.new_zeros(self.grid[0] * self.grid[1], *ragged.shape[1:])
        weights = self.weights.to(ragged.dtype).view(-1, *[1] * (ragged.dim() - 1))
        return flat.index_add(0, self.indices, ragged * weights).unflatten(0, self.grid)

    def to_batch(self, ragged: Tensor) -> Tensor:
        """(R, …) → (K, …), what was asked for, with zeros at padding."""
        asked = ragged.index_select(0, self.asked)
        return asked if self.padding is None else asked.masked_fill(self.padding[:, None], 0)


def padded_layout(
    grid: tuple[int, int], attention_mask: Tensor | None, device: torch.device, fill_up: bool = False
) -> RaggedLayout:
    """The layout of a usual (B, S) batch, its real tokens found by one data-dependent step.

    Args:
        grid: (B, S).
        attention_mask: (B, S), nonzero where a token is real, on either side; or None: all are. A 4-D mask is handed
            to attention as it is and every position is computed, as under tracing and export, where the number of
            real tokens must not depend on data.
        fill_up: whether to make T a round number.

    Raises:
        ValueError: the mask has another shape, or a row of it has no real token (not looked at in a compiled graph).
    """
    if attention_mask is None or attention_mask.dim() == 4:
        if attention_mask is not None and not attention_mask.is_floating_point():
            attention_mask = attention_mask.bool()  # a number that is no score to add means what it does in 2-D
        return _dense_layout(grid, attention_mask, None, device)
    if attention_mask.shape != torch.Size(grid):
        raise ValueError(f"attention_mask has shape {tuple(attention_mask.shape)}, expected {tuple(grid)}")
    real = attention_mask.bool()
    if torch.jit.is_tracing() or torch.compiler.is_exporting():
        return _dense_layout(grid, real[:, None, None, :], real, device)
    indices = real.flatten().nonzero().squeeze(1)
    if indices.numel() == real.numel():
        return _dense_layout(grid, None, None, device)
    lengths = real.sum(1)
    if may_read(lengths, training=False) and not lengths.all():  # the device has just been waited for, by nonzero
        raise ValueError(f"attention_mask has no real token in row {int(lengths.argmin())}; leave empty rows out")
    cu_seq_lens = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    layout = RaggedLayout(grid, indices, real[:, None, None, :], cu_seq_lens, cu_seq_lens[:-1])
    return _filled_up(layout) if fill_up else layout


def packed_layout(cu_seq_lens: Tensor, max_length: int | None, total: int, fill_up: bool = False) -> RaggedLayout:
    """The layout of a packed batch: `N` sequences one after the other, each a row of the attention grid.

    Args:
        cu_seq_lens: (N + 1,) where each sequence starts, and `total` at the end.
        max_length: the longest of them; read from `cu_seq_lens` when None.
        total: how many tokens, known from the shape of `input_ids`, so that nothing is read back from the device.
        fill_up: whether to make T a round number.

    Raises:
        ValueError: on the CPU, outside compiled graphs, when the boundaries do not run from 0 to `total` in steps of 1
            to `max_length`.
    """
    cu_seq_lens = cu_seq_lens.to(torch.int32)
    max_length = int(cu_seq_lens.diff().max() if max_length is None else max_length)
    if may_read(cu_seq_lens, training=True):
        lengths = cu_seq_lens.diff()
        if cu_seq_lens[0] != 0 or cu_seq_lens[-1] != total or lengths.min() < 1 or lengths.max() > max_length:
            raise ValueError(
                f"cu_seq_lens_q must rise from 0 to the {total} tokens of input_ids in steps of 1 to "
                f"max_length_q={max_length}, got {cu_seq_lens.tolist()}"
            )
    grid = (cu_seq_lens.numel() - 1, max_length)
    # attention without a mask has faster kernels; a graph would be compiled for either case
    if not torch.compiler.is_compiling() and grid[0] * grid[1] == total:
        return RaggedLayout(grid, None, None, cu_seq_lens, cu_seq_lens[:-1], packed=True)
    indices = _indices(cu_seq_lens, max_length, total)
    mask = torch.arange(max_length, device=cu_seq_lens.device) < cu_seq_lens.diff()[:, None]
    layout = RaggedLayout(grid, indices, mask[:, None, None, :], cu_seq_lens, cu_seq_lens[:-1], packed=True)
    return _filled_up(layout) if fill_up else layout


def _filled_up(layout: RaggedLayout) -> RaggedLayout:
    """With as many places of padding among its tokens as are missing to a round number, or as the grid has."""
    multiple = next((multiple for multiple in _MULTIPLES if layout.total >= _WORTH_FILLING * multiple), 1)
    padding = (~layout.mask).flatten().nonzero().squeeze(1)[: -layout.total % multiple]
    return replace(layout, indices=torch.cat([layout.indices, padding]), fill=len(padding))


def _dense_layout(
    grid: tuple[int, int], mask: Tensor | None, real: Tensor | None, device: torch.device
) -> RaggedLayout:
    """Every position of the grid is computed; `real` (N, L) tells where the first token of each row stands."""
    rows = torch.arange(grid[0] + 1, device=device, dtype=torch.int32) * grid[1]
    first = rows[:-1] if real is None else rows[:-1] + real.int().argmax(1)
    return RaggedLayout(grid, None, mask, rows, first, real=real)


def _indices(cu_seq_lens: Tensor, longest: int, total: int) -> Tensor:
    """(total,) the place of each token in a flattened grid whose rows have `longest` columns."""
    sequence = _sequences(cu_seq_lens, total)
    return sequence * longest + torch.arange(total, device=cu_seq_lens.device) - cu_seq_lens[sequence]


def _sequences(cu_seq_lens: Tensor, total: int) -> Tensor:
    """(total,) the number of each token's sequence."""
    token = torch.arange(total, device=cu_seq_lens.device)
    return torch.searchsorted(cu_seq_lens, token, right=True, out_int32=True).long() - 1
