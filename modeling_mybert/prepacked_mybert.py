"""Encoder layers for inference on the CPU, with weights in oneDNN's own layout (`optimize_for_inference`).

For one short text, products with prepacked weights take two thirds of the time (benchmarks/RESULTS.md). Key and value
are one product, and products add the residuals. The results agree to rounding.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.activations import GELUActivation

from .cpu_mybert import has_prepacked_products
from .encoder_mybert import MyBertLayer
from .padding_mybert import Layout, RaggedLayout
from .query_subset_mybert import QuerySubset

_ONEDNN, _PREPACK, _PRODUCT = torch.ops.mkldnn, "_reorder_linear_weight", "_linear_pointwise"


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


class MyBertPrepackedLayer(MyBertLayer):
    """`MyBertLayer` with prepacked copies of its weights, made at first use and again when a weight has changed.

    Where they do not apply, such as in training or on another device, it computes what `MyBertLayer` does.
    """

    _prepacked: tuple[list[tuple[int, int]], tuple[_Product, ...], list[Tensor]] | None = None

    @classmethod
    def replace(cls, module: nn.Module) -> None:
        """Turns a `MyBertLayer` with GELU and without chunks into this class; discards earlier prepacked weights."""
        if isinstance(module, cls):
            module._prepacked = None
        elif type(module) is MyBertLayer and hasattr(_ONEDNN, _PREPACK):
            activation = module.intermediate.activation
            is_gelu = type(activation) is GELUActivation and activation.act is nn.functional.gelu
            if is_gelu and not module.chunk:
                module.__class__ = cls

    def forward(
        self,
        hidden_states: Tensor,
        layout: Layout,
        output_attentions: bool = False,
        queries: QuerySubset | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """As in `MyBertLayer`."""
        if output_attentions or not self._applies(hidden_states, layout):
            return super().forward(hidden_states, layout, output_attentions, queries)
        query, key_value, attention_output, intermediate, output = self._products()
        states = hidden_states if queries is None else hidden_states.index_select(0, queries.rows)
        key, value = key_value(hidden_states).chunk(2, dim=-1)
        context, _ = self.attention.self.attend(query(states), key, value, layout, queries=queries)
        states = self.attention.output.LayerNorm(attention_output.add(context, states))
        return self.output.LayerNorm(output.add(intermediate(states, "gelu"), states))

    def _applies(self, hidden_states: Tensor, layout: Layout) -> bool:
        """A dense layout has hooks on the modules inside, which must be called; an adapter replaces a linear layer."""
        if self.training or torch.is_grad_enabled() or not isinstance(layout, RaggedLayout):
            return False
        if not all(type(linear) is nn.Linear for linear in _linears(self)):
            return False
        weight = self.attention.self.query.weight
        return weight.dtype == hidden_states.dtype and has_prepacked_products(weight.device, weight.dtype)

    def _products(self) -> tuple[_Product, ...]:
        linears = _linears(self)
        tensors = [tensor for linear in linears for tensor in (linear.weight, linear.bias)]
        versions = [(x.data_ptr(), 0 if x.is_inference() else x._version) for x in tensors]
        if self._prepacked is None or self._prepacked[0] != versions:
            query, key, value, *others = linears
            with torch.no_grad():
                products = _Product.of(query), _Product.of(key, value), *map(_Product.of, others)
            sources = [x.detach() for x in tensors]  # kept, so that no other weight gets the same address
            self._prepacked = versions, products, sources
        return self._prepacked[1]

    def __getstate__(self) -> dict[str, Any]:
        """Without the prepacked weights, which neither pickle nor deepcopy can copy."""
        return {**self.__dict__, "_prepacked": None}


def _linears(layer: MyBertLayer) -> list[nn.Linear]:
    """Query, key, value, output of attention, and the two linear layers of feed-forward."""
    attention, own = layer.attention, layer.attention.self
    return [own.query, own.key, own.value, attention.output.dense, layer.intermediate.dense, layer.output.dense]
