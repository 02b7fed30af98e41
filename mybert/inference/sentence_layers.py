"""The layers after the pooling in a sentence-transformers folder, and activations by their names in torch."""

import contextlib
import importlib
from collections import OrderedDict
from collections.abc import Callable
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
    activation = settings.get("activation_function", "torch.nn.modules.activation.Tanh")
    activation = torch_activation(activation, folder / "config.json", REMEDY)
    bias, residual = bool(settings.get("bias", True)), bool(settings.get("use_residual"))
    sizes: tuple[Any, Any] = settings.get("in_features"), settings.get("out_features")
    return _loaded(lambda: _Dense(sizes, bias, activation, residual), folder)


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
    return _loaded(lambda: nn.Sequential(OrderedDict(norm=nn.LayerNorm(settings["dimension"]))), folder)


LAYERS = {"Dense": _read_dense, "LayerNorm": _read_layer_norm}
"""By the class of sentence-transformers: what reads the layer from its folder."""


def _loaded(make: Callable[[], nn.Module], folder: Path) -> nn.Module:
    """A layer with the weights in `folder`. `make` builds it by the settings there, at first without memory."""
    try:
        if (folder / "model.safetensors").is_file():
            state = load_file(folder / "model.safetensors")
        else:
            state = torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
        with torch.device("meta"):
            module = make()
        module.load_state_dict({key: x.to(torch.float32, copy=True) for key, x in state.items()}, assign=True)
    except Exception as error:  # safetensors and torch raise many kinds
        raise UserError(f"{folder}: its weights do not fit config.json ({cause(error)}); copy it again") from error
    return module.eval()
