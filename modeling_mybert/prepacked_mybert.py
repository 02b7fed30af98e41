"""Encoder layers for inference on the CPU, with weights in oneDNN's own layout (`optimize_for_inference`).

For one short text, products with prepacked weights take two thirds of the time (benchmarks/RESULTS.md). Key and value
are one product, and products add the residuals. The results agree to rounding.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.activations import GELUActivation

from .attention_mybert import MyBertSelfAttention
from .cpu_mybert import MyBertDropout, has_prepacked_products
from .encoder_mybert import MyBertAttention, MyBertIntermediate, MyBertLayer, MyBertResidual
from .padding_mybert import Layout, RaggedLayout
from .query_subset_mybert import QuerySubset

_ONEDNN, _PREPACK, _PRODUCT = torch.ops.mkldnn, "_reorder_linear_weight", "_linear_pointwise"

_WEIGHTS = (Tensor, nn.Parameter)  # no subclass, such as a quantised weight or a shard


@dataclass(frozen=True)
class _Product:
    """A linear layer with prepacked weights."""

    weight: Tensor
    bias: Tensor

    @classmethod
    def of(cls, *linears: nn.Linear) -> "_Product":
        """The outputs of the layers, one after the other."""
        weight, bias = torch.cat([x.weight for x in linears]), torch.cat([x.bias for x in linears])
        return cls(getattr(_ONEDNN, _PREPACK)(weight), bias)

    def __call__(self, x: Tensor, activation: str = "none") -> Tensor:
        return getattr(_ONEDNN, _PRODUCT)(x, self.weight, self.bias, activation, [None], "none")

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        return getattr(_ONEDNN, _PRODUCT).binary(x, residual, self.weight, self.bias, "add")


@dataclass(frozen=True)
class _Packed:
    """
    Attributes:
        products: query, key and value, output of attention, and the two of feed-forward.
        versions: of the weights that they were made of.
        sources: these weights, kept so that no others get their addresses.
    """

    products: tuple[_Product, ...]
    versions: list[tuple[int, int, int]]
    sources: list[Tensor]


class PrepackedLayer:
    """Computes a `MyBertLayer` with prepacked copies of its weights.

    They are made at first use and when a weight has changed. They are discarded when the modules have to be called: in
    training (some optimizers change weights unnoticed), on another device, with hooks or adapters inside.
    """

    def __init__(self) -> None:
        self._packed: _Packed | None = None

    def __call__(
        self,
        layer: MyBertLayer,
        hidden_states: Tensor,
        layout: Layout,
        output_attentions: bool,
        queries: QuerySubset | None,
    ) -> Tensor | None:
        """(T, H) → (T, H), or (R, H) with `queries`; None: call the modules of the layer."""
        only_output = not (torch.is_grad_enabled() or output_attentions)
        is_ragged = isinstance(layout, RaggedLayout)  # otherwise, modules may have hooks of the user
        is_faster = only_output and is_ragged and has_prepacked_products(hidden_states.device, hidden_states.dtype)
        packed = self._packed = self._prepare(layer, hidden_states.dtype) if is_faster else None
        if packed is None:
            return None
        query, key_value, attention_output, intermediate, output = packed.products
        states = hidden_states if queries is None else hidden_states.index_select(0, queries.rows)
        key, value = key_value(hidden_states).chunk(2, dim=-1)
        context, _ = layer.attention.self.attend(query(states), key, value, layout, queries=queries)
        states = layer.attention.output.LayerNorm(attention_output.add(context, states))
        return layer.output.LayerNorm(output.add(intermediate(states, "gelu"), states))

    def discard(self) -> None:
        """Frees the prepacked weights until the next use."""
        self._packed = None

    def _prepare(self, layer: MyBertLayer, dtype: torch.dtype) -> _Packed | None:
        linears = _plain_linears(layer)
        if linears is None:
            return None
        tensors: list[Any] = [linear._parameters.get(name) for linear in linears for name in ("weight", "bias")]
        if not all(type(x) in _WEIGHTS and x.is_cpu and x.dtype == dtype and not x.is_inference() for x in tensors):
            return None
        packed = self._packed
        versions = [(id(x), x.data_ptr(), x._version) for x in tensors]
        if packed is not None and packed.versions == versions:
            return packed
        query, key, value, *others = linears
        with torch.no_grad():
            products = _Product.of(query), _Product.of(key, value), *map(_Product.of, others)
        return _Packed(products, versions, [*tensors, *(x.detach() for x in tensors)])

    def __getstate__(self) -> dict[str, Any]:
        """Without the prepacked weights, which neither pickle nor deepcopy can copy."""
        return {"_packed": None}


_TYPES = (
    *(MyBertAttention, MyBertSelfAttention, MyBertResidual, MyBertDropout),
    *(MyBertIntermediate, GELUActivation, MyBertResidual, MyBertDropout),
    *[nn.Linear] * 6,
)


def _plain_linears(layer: MyBertLayer) -> tuple[nn.Linear, ...] | None:
    """Query, key, value, output of attention, and both of feed-forward.

    None if one of the modules that are not called would compute something else: an adapter, another activation
    function, dropout in training, a hook, a replaced `forward`.
    """
    try:
        attention, intermediate, output = _children(layer, "attention", "intermediate", "output")
        own, residual = _children(attention, "self", "output")
        attention_output, attention_dropout = _children(residual, "dense", "dropout")
        first, activation = _children(intermediate, "dense", "activation")
        second, dropout = _children(output, "dense", "dropout")
        linears = *_children(own, "query", "key", "value"), attention_output, first, second
        modules = attention, own, residual, attention_dropout, intermediate, activation, output, dropout, *linears
    except AttributeError:  # replaced by a module of another kind
        return None
    if tuple(map(type, modules)) != _TYPES or activation.act is not nn.functional.gelu or layer.chunk:
        return None
    if own.training or attention_dropout.training or dropout.training:
        return None
    changed = any(x._forward_hooks or x._forward_pre_hooks or "forward" in x.__dict__ for x in modules)
    return None if changed else linears


def _children(module: nn.Module, *names: str) -> list[Any]:
    """Attributes of a module, at a fifth of the cost of `getattr`."""
    return [module._modules.get(name) for name in names]
