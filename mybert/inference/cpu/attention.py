"""Attention on the CPU: sequences of similar length together.

A grid for a whole batch is as wide as its longest sequence. Groups of similar length have grids of their own, with
little padding. Tokens are read into the grids, since writing them takes eight times as long.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from mybert.inference.cpu.onednn import linear
from mybert.inference.cpu.processor import cpu_capabilities, is_plain_cpu

BLOCK = 16
"""PyTorch's kernels compute this many keys at a time."""

COST_OF_A_GROUP = 40_000
"""Scores that are computed in the time that one more group takes."""

Attention = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""(n, A, Lq, D), (n, A, Lk, D) twice, and a mask (n, 1, 1, Lk) or None → (n, Lq, A, D)."""


def attend(module: Any, query: Tensor, key: Tensor, value: Tensor, layout: Any, dropout: float) -> Tensor | None:
    """Attention of the tokens of a ragged layout, each to its own sequence.

    Args:
        module: a `MyBertSelfAttention`.
        query, key, value: (T, A, D).
        layout: the `RaggedLayout` of the tokens, which keeps their groups.
        dropout: dropout probability.

    Returns:
        (T, A, D); None on another device, in graphs and under `torch.func`.
    """
    return _attend(module, query, key, value, layout, layout, dropout) if is_plain_cpu(query.device) else None


def attend_rows(module: Any, hidden_states: Tensor, layout: Any, rows: Tensor, dropout: float) -> Tensor | None:
    """Self-attention of some tokens to all of their sequences, projections included.

    Args:
        hidden_states: (T, H).
        rows: (R,) the tokens that attend, ascending; one may appear more than once.

    Returns:
        (R, H); None as in `attend`, and where the backend is not sdpa.
    """
    if not is_plain_cpu(hidden_states.device) or module.config._attn_implementation != "sdpa":
        return None
    states = hidden_states.index_select(0, rows)
    projected = linear(module.query, states), linear(module.key, hidden_states), linear(module.value, hidden_states)
    return attend_queries(module, *projected, layout, rows, dropout)


class Queries:
    """The tokens that attend, where these are not all.

    Attributes:
        cu_seq_lens: (N + 1,) where those of each sequence start.
        total: their number R.
    """

    def __init__(self, layout: Any, rows: Tensor):
        self.cu_seq_lens = torch.searchsorted(rows, layout.cu_seq_lens.to(rows), out_int32=True)
        self.total = len(rows)


def attend_queries(
    module: Any, query: Tensor, key: Tensor, value: Tensor, layout: Any, rows: Tensor, dropout: float = 0.0
) -> Tensor:
    """(R, H), (T, H) twice → (R, H)."""
    query, key, value = (x.unflatten(-1, (-1, module.head_size)) for x in (query, key, value))
    return _attend(module, query, key, value, Queries(layout, rows), layout, dropout).flatten(-2)


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, queries: Any, layout: Any, dropout: float
) -> Tensor:
    """(R, A, D), (T, A, D) twice → (R, A, D)."""
    learns = module.training or query.requires_grad  # the same when a checkpointed layer is recomputed
    by_products = products_are_better(query.dtype, dropout, learns)
    products = module.by_products
    function = products if by_products else ALL_ATTENTION_FUNCTIONS.get_interface("sdpa", products)

    def on_grid(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        inputs = module, query, key, value, mask
        return function(*inputs, scaling=module.scaling, dropout=dropout, is_causal=False)[0]

    groups = length_groups(queries, layout, query.shape[1], by_head=by_products)
    if groups is not None:
        return groups.attend(query, key, value, on_grid)
    query, key, value = (x.unflatten(0, layout.grid).transpose(1, 2) for x in (query, key, value))
    return on_grid(query, key, value, None).flatten(0, 1)


def products_are_better(dtype: torch.dtype, p: float, learns: bool) -> bool:
    """Whether products are better than the fused kernel, which has no dropout on the CPU.

    In bfloat16, its gradients take eight times as long as those of products. On a processor with AVX-512 BF16 and
    without AMX it takes as long as in float32, and products take two thirds of it or less.

    Args:
        dtype: data type of the queries.
        p: dropout probability.
        learns: whether gradients will be computed.
    """
    if p > 0 or dtype == torch.float32:
        return p > 0
    has = cpu_capabilities()
    return learns or (dtype == torch.bfloat16 and bool(has.get("avx512_bf16")) and not has.get("amx_bf16"))


def length_groups(queries: Any, layout: Any, heads: int, by_head: bool) -> "LengthGroups | None":
    """The groups of a batch, made once if all its tokens are queries; None if one grid without padding is as fast."""
    if queries is not layout:
        return LengthGroups(queries, layout, heads, by_head)
    length = layout.grid[1]
    if layout.indices is None and _columns(length, BLOCK) == length:
        return None
    name = "length groups", by_head
    if name not in layout.made:
        layout.made[name] = LengthGroups(layout, layout, heads, by_head)
    return layout.made[name]


class LengthGroups:
    """The sequences of a batch in groups.

    Args:
        queries, keys: the tokens that attend and those that they attend to, of the same sequences.
        heads: A.
        by_head: store each head of a sequence in one piece, as matrix products need it. Fused kernels read any order.
    """

    def __init__(self, queries: Any, keys: Any, heads: int, by_head: bool):
        device = keys.cu_seq_lens.device  # not the default, which may be another
        lengths = [end - start for start, end in pairwise(keys.cu_seq_lens.tolist())]
        groups = [torch.tensor(numbers, device=device) for numbers in _similar(lengths, heads)]
        parts = heads if by_head else 1
        self._queries, self._keys = _Grids(queries, groups, parts, block=1), _Grids(keys, groups, parts, block=BLOCK)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, attention: Attention) -> Tensor:
        """(R, A, D), (T, A, D), (T, A, D) → (R, A, D)."""
        grids = self._queries.from_rows(query), self._keys.from_rows(key), self._keys.from_rows(value)
        return self._queries.to_rows([attention(*inputs) for inputs in zip(*grids, self._keys.masks, strict=True)])


class _Grids:
    """The grid of each group.

    Args:
        parts: P, the number of parts into which the row of a token is cut; each part is read and stored by itself. A
            grid has the form (n, P, L, A / P, D) in memory.

    Attributes:
        masks: bool (n, 1, 1, L) of each group, the places that hold a token of their own; None: all.
    """

    def __init__(self, tokens: Any, groups: Sequence[Tensor], parts: int, block: int):
        grids, own = zip(*(_grid(tokens, numbers, block) for numbers in groups), strict=True)
        self.masks = [None if real.all() else real[:, None, None] for real in own]
        self._shapes = [(len(grid), parts, grid.shape[1]) for grid in grids]
        self._sizes = [grid.numel() * parts for grid in grids]
        self._tokens, self._parts = [grid[:, None] for grid in grids], parts
        self._rows_by_step: dict[int, Tensor] = {}
        is_own = torch.cat([x[:, None].expand(shape).flatten() for x, shape in zip(own, self._shapes, strict=True)])
        self._repeated, places = (~is_own).nonzero().squeeze(1), is_own.nonzero().squeeze(1)
        self._places = places.new_zeros(tokens.total * parts)
        self._places[self._rows(parts)[places]] = places
        self._padding = torch.arange(len(places), tokens.total * parts, device=places.device)

    def _rows(self, step: int) -> Tensor:
        """The row that each place reads, in a tensor with `step` rows for each token: its P parts, then others."""
        if step not in self._rows_by_step:
            part = torch.arange(self._parts, device=self._tokens[0].device)[:, None]
            self._rows_by_step[step] = torch.cat([(token * step + part).flatten() for token in self._tokens])
        return self._rows_by_step[step]

    def from_rows(self, rows: Tensor) -> Iterator[Tensor]:
        """(T, A, D) → (n, A, L, D) of each group."""
        stride, size = rows.stride(), rows.shape[2]
        # A part of a wider product is read in place, unless it needs a gradient, which `_places` has no rows for.
        if self._parts > 1 and not rows.requires_grad and stride[1:] == (size, 1) and stride[0] % size == 0:
            step = stride[0] // size
            flat = rows.as_strided(((len(rows) - 1) * step + self._parts, 1, size), (size, size, 1))
        else:
            step, flat = self._parts, rows.unflatten(1, (self._parts, -1)).flatten(0, 1)
        read = _read(flat, self._rows(step), self._places, self._padding).split(self._sizes)
        return (
            x.unflatten(0, shape).transpose(2, 3).flatten(1, 2) for x, shape in zip(read, self._shapes, strict=True)
        )

    def to_rows(self, grids: Sequence[Tensor]) -> Tensor:
        """(n, L, A, D) of each group → (T, A, D)."""
        flat = torch.cat([grid.unflatten(2, (self._parts, -1)).transpose(1, 2).flatten(0, 2) for grid in grids])
        rows = _read(flat, self._places, self._rows(self._parts), self._repeated)
        return rows.unflatten(0, (-1, self._parts)).flatten(1, 2)


def _read(x: Tensor, index: Tensor, inverse: Tensor, unused: Tensor) -> Tensor:
    """`x[index]`; the other arguments are those of `_Reordered`."""
    return _Reordered.apply(x, index, inverse, unused) if x.requires_grad else x.index_select(0, index)


class _Reordered(torch.autograd.Function):
    """`x[index]`. A gradient is read like the values, which is faster than adding it to each row.

    `x[i]` has the gradient of the output at `inverse[i]`, and no gradient if `i` is in `unused`.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, inverse: Tensor, unused: Tensor) -> Tensor:
        ctx.save_for_backward(inverse, unused)
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        inverse, unused = ctx.saved_tensors
        return gradient.index_select(0, inverse).index_fill_(0, unused, 0), None, None, None


def _grid(tokens: Any, sequences: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """(n, L) the rows of some sequences, and whether a place has a row of its own; else it repeats the last one.

    L may be rounded up to whole blocks.
    """
    bounds = tokens.cu_seq_lens.long()
    starts, ends = bounds[sequences, None], bounds[sequences + 1, None]
    rows = starts + torch.arange(_columns(int((ends - starts).max()), block), device=bounds.device)
    return rows.minimum(ends - 1), rows < ends


def _columns(length: int, block: int) -> int:
    """`length`, rounded up to whole blocks if the last one is at least half full: partial blocks take longer."""
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
