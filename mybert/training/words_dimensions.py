"""Training of a model with a channel of words, which `mybert.retrieval.words_channel` describes."""

import functools
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

NEURONS = 8
"""The last neurons of each feed-forward network, which a channel adds; 4 are used, but processors prefer multiples of
8."""


def words_dimensions(model: Any) -> int:
    """The number of last hidden dimensions that are a channel of words; 0 without one.

    A model whose layers write to the channel has none: it is then a part of the model like any other.
    """
    number, size = getattr(model.config, "words_dimensions", 0), model.config.hidden_size
    if type(number) is not int or not 1 < number < size or number % (size // model.config.num_attention_heads):
        return 0
    written = [layer.attention.output.dense.weight[-number:, :-number] for layer in model.encoder.layer]
    return 0 if any(weight.any() for weight in written) else number


def norms_of(model: Any) -> list[nn.LayerNorm]:
    """The LayerNorms of a BERT, in their order."""
    layers = [norm for layer in model.encoder.layer for norm in (layer.attention.output, layer.output)]
    return [part.LayerNorm for part in (model.embeddings, *layers)]


def keep_words(model: nn.Module) -> None:
    """Lets training leave the channel of words as it is.

    Its numbers are small until the last LayerNorm makes them large, and so their gradients: clipping the gradient of
    the whole model would leave next to nothing of all others.
    """
    bert = next((module for module in model.modules() if isinstance(module, PreTrainedModel)), None)
    bert = getattr(bert, "base_model", None)
    if bert is None or not (number := words_dimensions(bert)):
        return
    for module in bert.embeddings.modules():
        if isinstance(module, nn.Embedding):
            module.weight.register_hook(functools.partial(_without_last_columns, number=number))
    for norm in norms_of(bert):
        _keep_last_rows(norm, number)
    for layer in bert.encoder.layer:
        attention = layer.attention
        for part in (attention.self.query, attention.self.key, attention.self.value, attention.output.dense):
            _keep_last_rows(part, number)
        _keep_last_rows(layer.intermediate.dense, NEURONS)
        _keep_last_rows(layer.output.dense, number)


def _keep_last_rows(module: nn.Module, number: int) -> None:
    for parameter in module.parameters():
        parameter.register_hook(functools.partial(_without_last_rows, number=number))


def _without_last_columns(gradient: Tensor, number: int) -> Tensor:
    return nn.functional.pad(gradient[:, :-number], (0, number))


def _without_last_rows(gradient: Tensor, number: int) -> Tensor:
    kept = gradient.clone()
    kept[-number:] = 0
    return kept
