"""The encoder for inference on the CPU, with weights in oneDNN's own layout (`optimize_for_inference`).

Classes of MyBERT are known by their names, since those of remote code are others than those of `modeling_mybert`.

For one short text this takes two thirds of the time (benchmarks/RESULTS.md): products with prepacked weights are
faster, query, key and value are one product, products add the residuals, and no module is called. The results agree to
rounding.
"""

from collections.abc import Callable
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from transformers.activations import GELUActivation

from mybert.inference.cpu.attention import attend_queries
from mybert.inference.cpu.onednn import uses_onednn
from mybert.inference.cpu.processor import can_prepack, has_bfloat16_products, is_plain_cpu

Model = TypeVar("Model", bound=nn.Module)

_WITH_DROPOUT = ("MyBertSelfAttention", "MyBertDropout")
_WEIGHTS = (Tensor, nn.Parameter)  # no subclass, such as a quantised weight or a shard


class _Product:
    """A linear layer with prepacked weights."""

    def __init__(self, *linears: nn.Linear) -> None:
        """The outputs of the layers, one after the other."""
        self.weight = torch.ops.mkldnn._reorder_linear_weight(torch.cat([x.weight for x in linears]))
        self.bias = torch.cat([x.bias for x in linears])
        product = torch.ops.mkldnn._linear_pointwise
        self._plain, self._binary = product.default, product.binary  # chosen once, not in every call

    def __call__(self, x: Tensor, activation: str = "none") -> Tensor:
        return self._plain(x, self.weight, self.bias, activation, [None], "none")

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        return self._binary(x, residual, self.weight, self.bias, "add")


class _PrepackedLayer:
    """Computes a `MyBertLayer` with prepacked copies of its weights."""

    def __init__(self, layer: Any, is_last: bool) -> None:
        self.attention = attention = layer.attention.self
        projections = (attention.query, attention.key, attention.value)
        # The last layer may compute fewer queries than keys.
        self.query = _Product(attention.query) if is_last else None
        self.projections = _Product(*projections[is_last:])
        self.attention_output = _Product(layer.attention.output.dense)
        self.attention_norm = _norm(layer.attention.output.LayerNorm)
        self.intermediate, self.output = _Product(layer.intermediate.dense), _Product(layer.output.dense)
        self.output_norm = _norm(layer.output.LayerNorm)

    def __call__(
        self, hidden_states: Tensor, layout: Any, output_attentions: bool = False, rows: Tensor | None = None
    ) -> Tensor:
        """(T, H) → (T, H), or (R, H) with `rows`, in the last layer only."""
        context = self._attend(hidden_states, layout, rows)
        states = hidden_states if rows is None else hidden_states.index_select(0, rows)
        states = self.attention_norm(self.attention_output.add(context, states))
        return self.output_norm(self.output.add(self.intermediate(states, "gelu"), states))

    def _attend(self, hidden_states: Tensor, layout: Any, rows: Tensor | None) -> Tensor:
        """(T, H) → (T, H), or (R, H) with `rows`."""
        is_sdpa = self.attention.config._attn_implementation == "sdpa"
        # Here `attend` would choose the fused kernel, which takes it as long as computing a short sequence.
        is_one = layout.grid[0] == 1 and layout.indices is None and hidden_states.dtype == torch.float32 and is_sdpa
        if self.query is None:
            query, key, value = self.projections(hidden_states).chunk(3, dim=-1)
        else:
            key, value = self.projections(hidden_states).chunk(2, dim=-1)
            asking = rows if is_sdpa else None
            query = self.query(hidden_states if asking is None else hidden_states.index_select(0, asking))
            if asking is not None and not is_one:
                return attend_queries(self.attention, query, key, value, layout, asking)
        if is_one:
            size = self.attention.head_size
            query, key, value = (x.view(1, len(x), -1, size).transpose(1, 2) for x in (query, key, value))
            context = nn.functional.scaled_dot_product_attention(query, key, value, scale=self.attention.scaling)
            return context.transpose(1, 2).flatten(2)[0]
        context, _ = self.attention.attend(query, key, value, layout)
        return context if rows is None else context.index_select(0, rows)


def _norm(module: nn.LayerNorm) -> Callable[[Tensor], Tensor]:
    sizes, weight, bias, eps = module.normalized_shape, module.weight, module.bias, module.eps
    return lambda x: torch.layer_norm(x, sizes, weight, bias, eps)


def optimize_for_inference(model: Model) -> Model:
    """Makes a MyBERT model faster in inference on a CPU, most of all for one short text, and returns it.

    The linear layers of the encoder get copies of their weights in oneDNN's own layout, which take as much memory
    again. Outputs agree to rounding. The model works as before on other devices, in training and where gradients are
    computed. The copies follow a change of a weight, except one that PyTorch does not record (by way of `weight.data`,
    as PEFT merges adapters, or by another process) since the last call of the model; then call this again.
    """
    for module in model.modules():
        if type(module).__name__ == "MyBertEncoder":
            module.prepacked = PrepackedEncoder()
    return model


class PrepackedEncoder(nn.Module):
    """Keeps the layers of a `MyBertEncoder` with prepacked copies of their weights.

    The copies are made at first use, and when a weight or a module has changed, except by ways that PyTorch does not
    record (`weight.data`, another process). They are discarded in training, where some optimizers change weights
    unnoticed, and on another device.
    """

    def __init__(self) -> None:
        super().__init__()
        # One attribute, read and written once a call, because threads may share the model.
        self._state: tuple[_Snapshot, list[_PrepackedLayer] | None] | None = None

    def layers(self, encoder: nn.Module, weight: Tensor) -> "list[_PrepackedLayer] | None":
        """The layers to call for a ragged batch, with the arguments of `MyBertLayer`.

        Args:
            encoder: the same in every call.
            weight: of the embeddings, which has the device and data type of the model.

        Returns:
            None if the modules have to be called: one of them computes something else or has a hook.
        """
        if torch.is_grad_enabled() or not are_faster(weight.device, weight.dtype):
            self.discard()
            return None
        if encoder._forward_hooks or encoder._forward_pre_hooks:  # these may expect the padded form (B, S, H)
            return None
        state = self._state
        if state is None or state[0].has_changed(encoder):
            snapshot = _Snapshot(encoder)  # before the weights are read: another thread may change them meanwhile
            state = self._state = snapshot, _prepack(encoder, weight.dtype)
        return state[1]

    def train(self, mode: bool = True) -> "PrepackedEncoder":
        """As in torch, called when the model is."""
        self.discard()
        return super().train(mode)

    def discard(self) -> None:
        """Frees the prepacked weights until the next use."""
        self._state = None

    def __getstate__(self) -> dict[str, Any]:
        """Without the prepacked weights, which neither pickle nor deepcopy can copy."""
        return {**self.__dict__, "_state": None}


def are_faster(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether products with prepacked weights are faster than plain ones."""
    if not is_plain_cpu(device) or not torch.backends.mkldnn.enabled or not can_prepack():
        return False
    return uses_onednn(device, dtype) or (dtype == torch.bfloat16 and has_bfloat16_products())


@torch.no_grad()
def _prepack(encoder: Any, dtype: torch.dtype) -> list[_PrepackedLayer] | None:
    layers: list[Any] = [*encoder.layer]
    if not all(_is_plain(layer, dtype) for layer in layers):
        return None
    return [_PrepackedLayer(layer, is_last=layer is layers[-1]) for layer in layers]


class _Snapshot:
    """The state of the modules and weights of an encoder, to notice a change.

    It does not refer to the encoder, which refers to it: a deleted model frees its memory at once.

    Reading it costs a call of the model some percent for one short text. Most of that is memory that is no longer in
    the cache, so it reads as few objects as possible.
    """

    def __init__(self, encoder: Any) -> None:
        self._modules = modules = [*encoder.layer.modules()]  # kept so that no other modules get their ids
        self._weights = [weight for weight in encoder.parameters() if _is_plain_weight(weight)]
        self._addresses = [weight.detach() for weight in self._weights]  # no other tensors get them
        members: list[dict[str, Any]] = [x for module in modules for x in (module._modules, module._parameters)]
        self._members = [x for x in members if x]
        self._attributes = [vars(module) for module in modules]
        self._with_dropout = [x for x in modules if type(x).__name__ in _WITH_DROPOUT]
        self._state = self._read(encoder)

    def has_changed(self, encoder: Any) -> bool:
        return self._state != self._read(encoder)

    def _read(self, encoder: Any) -> tuple[Any, ...]:
        return (
            id(encoder.layer),
            [*map(id, chain.from_iterable(map(dict.values, self._members)))],
            [1 for x in self._attributes if "forward" in x or x["_forward_hooks"] or x["_forward_pre_hooks"]],
            [*map(attrgetter("training"), self._with_dropout)],
            [*map(Tensor.data_ptr, self._weights)],
            [*map(attrgetter("_version"), self._weights)],
        )


_KINDS = [
    *("MyBertLayer", "MyBertAttention", "MyBertSelfAttention", nn.Linear, nn.Linear, nn.Linear),
    *("MyBertResidual", nn.Linear, nn.LayerNorm, "MyBertDropout"),
    *("MyBertIntermediate", nn.Linear, GELUActivation),
    *("MyBertResidual", nn.Linear, nn.LayerNorm, "MyBertDropout"),
]


def _is_plain(layer: Any, dtype: torch.dtype) -> bool:
    """Whether the modules of the layer, in order, are those of BERT and would compute nothing else.

    Something else is an adapter, another activation function, dropout in training, a hook, a replaced `forward`.
    """
    modules = [*layer.modules()]
    if not _are_those_of_bert(modules) or layer.chunk:
        return False
    if modules[_KINDS.index(GELUActivation)].act is not nn.functional.gelu:
        return False
    if any("forward" in vars(x) or x._forward_hooks or x._forward_pre_hooks for x in modules):
        return False
    if any(x.training for x in modules if type(x).__name__ in _WITH_DROPOUT):
        return False
    with_weights = [module for module in modules if isinstance(module, nn.Linear | nn.LayerNorm)]
    weights: list[Any] = [module._parameters.get(name) for module in with_weights for name in ("weight", "bias")]
    return all(_is_plain_weight(weight) and weight.dtype == dtype for weight in weights)


def _are_those_of_bert(modules: list[Any]) -> bool:
    kinds = map(type, modules)
    return len(modules) == len(_KINDS) and all(
        module_type.__name__ == kind if isinstance(kind, str) else module_type is kind
        for module_type, kind in zip(kinds, _KINDS, strict=True)
    )


def _is_plain_weight(weight: Any) -> bool:
    """Whether it is a weight on the CPU whose changes PyTorch counts, and of no other kind."""
    return type(weight) in _WEIGHTS and weight.is_cpu and not weight.is_inference()
