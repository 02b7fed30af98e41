"""Training of a model with a channel of words, which `mybert.retrieval.words_channel` describes."""

import functools
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

NEURONS = 8
"""The last neurons of each feed-forward network, which a channel adds; 4 are used, but processors prefer multiples of
8."""


Part = slice | tuple[slice, slice]
"""Rows, or rows and columns, of a parameter."""


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


class KeepWords(TrainerCallback):
    """Lets training leave the channel of words of a model, if it has one, as it is.

    No layer learns to write or to read it, so that it can be replaced. Its numbers are small until the last LayerNorm
    makes them large, and so their gradients: clipping the gradient of the whole model would leave next to nothing of
    all others. So they are set to 0. Weight decay is undone.
    """

    def __init__(self, model: nn.Module):
        self._kept: list[tuple[Tensor, Part, Tensor]] = []
        bert = next((module for module in model.modules() if isinstance(module, PreTrainedModel)), None)
        bert = getattr(bert, "base_model", None)
        if bert is None or not (number := words_dimensions(bert)):
            return
        rows, columns, neurons = slice(-number, None), (slice(None), slice(-number, None)), slice(-NEURONS, None)
        for module in bert.embeddings.modules():
            if isinstance(module, nn.Embedding):
                self._keep(module.weight, columns)
        written: list[nn.Module] = [*norms_of(bert)]
        for layer in bert.encoder.layer:
            own, first = layer.attention.self, layer.intermediate.dense
            written += [own.query, own.key, own.value, layer.attention.output.dense, layer.output.dense]
            for reader in (own.query, own.key, own.value, first):
                self._keep(reader.weight, columns)
            for parameter in first.parameters():
                self._keep(parameter, neurons)
        for parameter in (parameter for module in written for parameter in module.parameters()):
            self._keep(parameter, rows)

    def _keep(self, parameter: Tensor, part: Part) -> None:
        if parameter.requires_grad:
            parameter.register_hook(functools.partial(_without_part, part=part))
        self._kept.append((parameter, part, parameter.detach()[part].clone()))

    @torch.no_grad()
    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        for parameter, part, before in self._kept:
            parameter[part] = before


def _without_part(gradient: Tensor, part: Part) -> Tensor:
    kept = gradient.clone()
    kept[part] = 0
    return kept
