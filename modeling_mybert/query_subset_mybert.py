"""The last layer's queries, restricted to the tokens whose output is used.

For the letters of shapes see `padding_mybert`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from .input_checks_mybert import can_read_without_sync
from .padding_mybert import RaggedLayout, TokenRows, places_in_grid


@dataclass
class QuerySubset(TokenRows):
    """The tokens that the last layer computes when no others are read; each sequence's first is one of them.

    They are the queries of its attention, keys and values come from all tokens. On the CPU the grid is as wide as
    the most queries of one sequence. Elsewhere this number cannot be read without waiting for the device, so the grid
    is that of all tokens and each query stands at the place of its token.

    Attributes:
        rows: (R,) row of each query among the T tokens, ascending; a token may appear more than once.
        requested: (K,) which query is each of the requested tokens.
        padding: bool (K,), which of the requested tokens are padding; None: none.
        weights: (R,) 1 / number of queries at the same place of the grid; None: every query has its own place.
    """

    rows: Tensor
    requested: Tensor
    padding: Tensor | None = None
    weights: Tensor | None = None

    def to_grid(self, rows: Tensor) -> Tensor:
        """(R, …) → (N, L, …); queries at one place are averaged, so that each gets its share of the gradient."""
        if self.weights is None or self.indices is None:
            return super().to_grid(rows)
        flat = rows.new_zeros(self.grid[0] * self.grid[1], *rows.shape[1:])
        weights = self.weights.to(rows.dtype).view(-1, *[1] * (rows.dim() - 1))
        return flat.index_add(0, self.indices, rows * weights).unflatten(0, self.grid)

    def to_batch(self, rows: Tensor) -> Tensor:
        """(R, …) → (K, …), the requested tokens in the order of the request, with zeros at padding."""
        requested = rows.index_select(0, self.requested)
        return requested if self.padding is None else requested.masked_fill(self.padding[:, None], 0)


def first_token_queries(layout: RaggedLayout) -> QuerySubset:
    """Each sequence's first token alone; no other token is requested."""
    first, count = layout.cu_seq_lens[:-1].long(), layout.grid[0]
    starts = torch.arange(count + 1, device=first.device, dtype=torch.int32)
    return QuerySubset((count, 1), None, starts, rows=first, requested=first[:0])


def query_subset(layout: RaggedLayout, tokens: Tensor) -> QuerySubset:
    """The tokens at the given (K,) places of the flattened batch, and each sequence's first token."""
    rows, padding = tokens, None
    if layout.indices is not None and not layout.packed:
        real = layout.indices[: layout.total - layout.padding_to_multiple]
        rows = torch.searchsorted(real, tokens).clamp(max=len(real) - 1)
        padding = layout.indices[rows] != tokens
    sequences = layout.grid[0]
    rows, order = torch.cat([layout.cu_seq_lens[:-1].long(), rows]).sort()
    cu_seq_lens = torch.searchsorted(rows, layout.cu_seq_lens.long(), out_int32=True)
    weights = None
    if can_read_without_sync(cu_seq_lens, training=True):
        grid = sequences, int(cu_seq_lens.diff().max())
        has_gaps = grid[0] * grid[1] != rows.numel()
        indices = places_in_grid(cu_seq_lens, grid[1], rows.numel()) if has_gaps else None
    else:
        grid = layout.grid
        indices = rows if layout.indices is None else layout.indices[rows]
        counts = torch.zeros(grid[0] * grid[1], device=rows.device)
        weights = 1 / counts.index_add(0, indices, torch.ones_like(rows, dtype=counts.dtype))[indices]
    return QuerySubset(
        grid,
        indices,
        cu_seq_lens,
        rows=rows,
        requested=order.argsort()[sequences:],
        padding=padding,
        weights=weights,
    )
