"""Attention on the CPU: sequences of similar length together.

A grid for a whole batch is as wide as its longest sequence. Groups of similar length have grids of their own, with
little padding. Tokens are read into the grids, since writing them takes eight times as long.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import torch
from torch import Tensor

from .padding_mybert import RaggedLayout, TokenRows

BLOCK = 16
"""PyTorch's kernels compute this many keys at a time."""

COST_OF_A_GROUP = 20_000
"""Scores that are computed in the time that one more group takes."""

Attention = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""(n, A, Lq, D), (n, A, Lk, D) twice, and a mask (n, 1, 1, Lk) or None → (n, Lq, A, D)."""


def length_groups(queries: TokenRows, layout: RaggedLayout, heads: int) -> "LengthGroups | None":
    """The groups of a batch, made once if all its tokens are queries; None if one grid without padding is as fast."""
    length = layout.grid[1]
    if layout.indices is None and _columns(length, BLOCK) == length:
        return None
    if queries is not layout:
        return LengthGroups(queries, layout, heads)
    if layout.length_groups is None:
        layout.length_groups = LengthGroups(layout, layout, heads)
    return layout.length_groups


class LengthGroups:
    """The sequences of a batch in groups.

    Args:
        queries, keys: the tokens that attend and those that they attend to, of the same sequences.
        heads: A.
    """

    def __init__(self, queries: TokenRows, keys: TokenRows, heads: int):
        groups = [torch.tensor(numbers) for numbers in _similar(keys.lengths, heads)]
        query_grids = [_grid(queries, numbers, block=1)[0] for numbers in groups]
        key_grids, are_tokens = zip(*(_grid(keys, numbers, block=BLOCK) for numbers in groups), strict=True)
        self._queries, self._keys = _Grids(query_grids), _Grids(key_grids)
        self._masks = [None if real.all() else real[:, None, None] for real in are_tokens]
        self._places = torch.zeros(queries.total, dtype=torch.long)
        self._places[self._queries.rows] = torch.arange(len(self._queries.rows))

    def attend(self, query: Tensor, key: Tensor, value: Tensor, attention: Attention) -> Tensor:
        """(R, A, D), (T, A, D), (T, A, D) → (R, A, D)."""
        grids = zip(self._queries.of(query), self._keys.of(key), self._keys.of(value), self._masks, strict=True)
        return torch.cat([attention(*inputs).flatten(0, 1) for inputs in grids]).index_select(0, self._places)


class _Grids:
    """The (n, L) rows of the tokens of each group; a place without a token repeats the last one of its sequence."""

    def __init__(self, grids: Sequence[Tensor]):
        self.rows = torch.cat([grid.flatten() for grid in grids])
        self._shapes, self._sizes = [grid.shape for grid in grids], [grid.numel() for grid in grids]

    def of(self, tokens: Tensor) -> Iterator[Tensor]:
        """(T, A, D) → (n, A, L, D) of each group."""
        parts = tokens.index_select(0, self.rows).split(self._sizes)
        return (part.unflatten(0, shape).transpose(1, 2) for part, shape in zip(parts, self._shapes, strict=True))


def _grid(tokens: TokenRows, sequences: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """(n, L) the rows of some sequences, and which of them stand for themselves. L may be rounded up to a `block`."""
    bounds = tokens.cu_seq_lens.long()
    starts, ends = bounds[sequences, None], bounds[sequences + 1, None]
    rows = starts + torch.arange(_columns(int((ends - starts).max()), block))
    return rows.minimum(ends - 1), rows < ends


def _columns(length: int, block: int) -> int:
    """A block that is filled by less than half takes no longer than a full one, and less where it has few keys."""
    missing = -length % block
    return length + missing if 2 * missing <= block else length


def _similar(lengths: list[int], heads: int) -> list[list[int]]:
    """Groups of indices, longest first; a group is split where this saves more time than another group costs."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    groups: list[list[int]] = []
    for _, numbers in groupby(order, key=lambda number: (lengths[number] - 1) // BLOCK):
        some = [*numbers]
        wider = lengths[groups[-1][0]] if groups else 0
        if groups and heads * len(some) * (wider**2 - lengths[some[0]] ** 2) < COST_OF_A_GROUP:
            groups[-1] += some
        else:
            groups.append(some)
    return groups
