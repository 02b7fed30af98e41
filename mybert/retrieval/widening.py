"""A BERT with more hidden dimensions, which pass from the embeddings to the last layer and change nothing else.

No layer reads the new dimensions but to subtract their mean and, for [CLS], to average them. The residual connections
carry them, and what LayerNorm would subtract is removed beforehand. The result is an ordinary BERT.

Shapes: `H` hidden size before, `E` new dimensions, `I` intermediate size before.
"""

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.activations import ACT2FN

from mybert.training.words_dimensions import NEURONS

_SHARE = 3e-2  # of the new dimensions in the squares of the embeddings of tokens


def can_widen(model: PreTrainedModel) -> bool:
    """Whether the model has the layers of BERT, and two of its neurons compute a linear function exactly:
    a(x) - a(-x) = x for GELU, ReLU and SiLU.
    """
    weights = {name for name, _ in model.named_parameters()}
    if not weights >= {"embeddings.word_embeddings.weight", "encoder.layer.0.attention.output.dense.weight"}:
        return False
    values = torch.linspace(-4, 4, 9)
    activation = model.config.hidden_act
    function = ACT2FN[activation] if isinstance(activation, str) else activation
    return torch.allclose(function(values) - function(-values), values, atol=1e-5)


def whole_heads(config: PreTrainedConfig, least: int) -> int:
    """The dimensions of the fewest attention heads that have `least` or more."""
    head = config.hidden_size // config.num_attention_heads
    return -(-least // head) * head


def widen(old: PreTrainedModel, least: int) -> PreTrainedModel:
    """A BERT with at least `least` more hidden dimensions in whole attention heads, all 0. The others are nearly those
    of before: means of residual connections differ in the attention, and LayerNorm has the variance of all.
    """
    config, hidden = copy.deepcopy(old.config), old.config.hidden_size
    config.words_dimensions = whole_heads(config, least)
    config.num_attention_heads += config.num_attention_heads * config.words_dimensions // hidden
    config.hidden_size += config.words_dimensions
    config.intermediate_size += NEURONS
    wide, given = type(old)(config).eval(), old.state_dict()
    shrunk = (hidden / config.hidden_size) ** 0.5  # the deviation of H values among as many zeros
    changed = {}
    for name, new in wide.state_dict().items():
        value = torch.zeros_like(new)
        value[tuple(map(slice, given[name].shape))] = given[name]
        if name.endswith("LayerNorm.weight"):
            value *= shrunk
        elif name.endswith("embeddings.weight"):
            value[:, :hidden] -= value[:, :hidden].mean(dim=1, keepdim=True)
        elif name.endswith("output.dense.weight"):
            value[:hidden] -= value[:hidden].mean(dim=0)
        elif name.endswith("output.dense.bias"):
            value[:hidden] -= value[:hidden].mean()
        changed[name] = value
    wide.load_state_dict(changed)
    _remove_means(wide, hidden)
    return wide.to(old.device)


@torch.no_grad()
def _remove_means(model: Any, hidden: int) -> None:
    """Lets each feed-forward network subtract the mean of the old dimensions of a token from them, and that of the new
    ones likewise: LayerNorm, which follows, then subtracts nothing."""
    norm = model.embeddings.LayerNorm
    for layer in model.encoder.layer:
        bias = layer.attention.output.dense.bias  # the attention can remove the constant part of a mean only
        bias[:hidden] -= norm.bias[:hidden].mean()
        norm = layer.output.LayerNorm
        reads, writes = layer.intermediate.dense.weight, layer.output.dense.weight
        for part, neuron in ((slice(hidden), -4), (slice(hidden, None), -2)):
            size = reads[0, part].numel()
            reads[neuron, part], reads[neuron + 1, part] = 1 / size, -1 / size
            writes[part, neuron], writes[part, neuron + 1] = -1, 1


@torch.no_grad()
def sizes_of_tokens(model: Any, hidden: int, positions: int) -> np.ndarray:
    """(V,) by how much the first LayerNorm multiplies the new dimensions of each token: 1 / the deviation of its
    embedding, with the mean over the first positions."""
    tables = model.embeddings
    added = (tables.position_embeddings.weight[:positions] + tables.token_type_embeddings.weight[0])[:, :hidden]
    words = tables.word_embeddings.weight[:, :hidden]
    squares = words.square().sum(1) + 2 * words @ added.mean(0) + added.square().sum(1).mean()
    return (squares / model.config.hidden_size).clamp(min=1e-12).rsqrt().double().cpu().numpy()


@torch.no_grad()
def write(model: Any, hidden: int, rows: Tensor) -> None:
    """Writes what tokens say.

    Args:
        rows: (V, E), whose sums are 0.
    """
    table, known = model.embeddings.word_embeddings.weight, rows.any(dim=1)
    size = rows[known].square().sum(dim=1).mean() if known.any() else torch.ones(())
    small = (_SHARE * table[:, :hidden].square().sum(dim=1).mean().cpu() / size).sqrt()
    table[:, hidden:] = (rows * small).to(table.device)


@torch.no_grad()
def average_into_cls(model: Any, hidden: int) -> None:
    """Lets the last layer add the mean of the new dimensions over the tokens of a text to each token, and so to [CLS].

    The new heads attend to all tokens alike, since their queries and keys are 0.
    """
    attention, unit = model.encoder.layer[-1].attention, torch.eye(model.config.hidden_size - hidden)
    attention.self.value.weight[hidden:, hidden:] = unit
    attention.output.dense.weight[hidden:, hidden:] = unit
