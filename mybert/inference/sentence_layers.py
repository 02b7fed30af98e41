"""The layers after the pooling in a sentence-transformers folder, and activations by their names in torch."""

import contextlib
import importlib
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from mybert.common.errors import UserError, cause, short
from mybert.common.json_io import read_json_object

ELSEWHERE = "encode with sentence-transformers"
REMEDY = f"{ELSEWHERE}, or choose a pooling of the encoder by --pooling"
"""Of messages about what is not supported here."""


class _Dense(nn.Module):
    """A linear layer, an activation, and perhaps a residual connection; parameters are named as in the folder."""

    def __init__(self, sizes: tuple[int, int], bias: bool, activation: nn.Module, residual: bool):
        super().__init__()
        self.linear, self.activation_function = nn.Linear(*sizes, bias=bias), activation
        same = nn.Identity() if sizes[0] == sizes[1] else nn.Linear(*sizes, bias=False)
        self.residual = same if residual else None

    def forward(self, pooled: Tensor) -> Tensor:
        output = self.activation_function(self.linear(pooled))
        return output if self.residual is None else output + self.residual(pooled)


def _read_dense(folder: Path) -> nn.Module:
    settings = read_json_object(folder / "config.json", "copy it again")
    for name in ("module_input_name", "module_output_name"):
        if settings.get(name) not in (None, "sentence_embedding"):
            raise UserError(f"{folder / 'config.json'}: {name} {settings[name]!r} is not supported here; {REMEDY}")
    sizes: tuple[Any, Any] = settings.get("in_features"), settings.get("out_features")
    if not all(type(size) is int and size > 0 for size in sizes):
        raise UserError(f"{folder / 'config.json'}: in_features and out_features are {sizes}, expected whole numbers")
    state = _weights(folder, "linear.weight")
    _check_size(folder, "in_features and out_features", sizes, state["linear.weight"].shape[::-1])
    activation = settings.get("activation_function", "torch.nn.modules.activation.Tanh")
    activation = torch_activation(activation, folder / "config.json", REMEDY)
    bias, residual = bool(settings.get("bias", True)), bool(settings.get("use_residual"))
    return _with_weights(_Dense(sizes, bias, activation, residual), folder, state)


def torch_activation(name: Any, file: str | Path, remedy: str) -> nn.Module:
    """An activation of torch.nn by its name in `file`; a name of another module would import code."""
    module, _, cls = str(name).rpartition(".")
    if module in ("torch.nn", "torch.nn.modules.activation", "torch.nn.modules.linear"):
        activation_class = getattr(importlib.import_module(module), cls, None)
        if isinstance(activation_class, type) and issubclass(activation_class, nn.Module):
            with contextlib.suppress(TypeError):  # it needs arguments, so it is no activation
                return activation_class()
    raise UserError(f"{file}: the activation {short(name)} is not one of torch.nn; {remedy}")


def _read_layer_norm(folder: Path) -> nn.Module:
    settings = read_json_object(folder / "config.json", "copy it again")
    state = _weights(folder, "norm.weight")
    _check_size(folder, "dimension", (settings.get("dimension", 0),), state["norm.weight"].shape)
    norm = nn.Sequential()
    norm.add_module("norm", nn.LayerNorm(len(state["norm.weight"])))
    return _with_weights(norm, folder, state)


LAYERS = {"Dense": _read_dense, "LayerNorm": _read_layer_norm}
"""By the class of sentence-transformers: what reads the layer from its folder."""


def _check_size(folder: Path, fields: str, configured: tuple[Any, ...], stored: tuple[int, ...]) -> None:
    """Raises if a layer has another size than its weights, before it is built."""
    if configured != tuple(stored):
        raise UserError(
            f"{folder / 'config.json'}: {fields} are {short(configured, 60)}, and the weights have {tuple(stored)}; "
            "copy the folder again"
        )


def _weights(folder: Path, needed: str) -> dict[str, Tensor]:
    """The weights of `folder` by name, at least `needed`."""
    try:
        if (folder / "model.safetensors").is_file():
            state = load_file(folder / "model.safetensors")
        else:
            state = torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
        weights = {key: value.float() for key, value in state.items()}
        weights[needed]
        return weights
    except Exception as error:  # safetensors and torch raise many kinds
        raise UserError(f"{folder}: its weights cannot be used ({cause(error)}); copy the folder again") from error


def _with_weights(module: nn.Module, folder: Path, state: dict[str, Tensor]) -> nn.Module:
    try:
        module.load_state_dict(state)
    except Exception as error:
        raise UserError(f"{folder}: its weights cannot be used ({cause(error)}); copy the folder again") from error
    return module.eval()
