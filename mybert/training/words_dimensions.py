"""Training of a model with a channel of words, which `mybert.retrieval.words_channel` describes."""

from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel


def words_dimensions(model: Any) -> int:
    """The number of last hidden dimensions that are a channel of words; 0 without one.

    A model whose layers write to the channel has none: it is then a part of the model like any other.
    """
    number = getattr(model.config, "words_dimensions", 0)
    if type(number) is not int or not 1 < number < model.config.hidden_size:
        return 0
    return 0 if model.encoder.layer[-1].output.dense.weight[-number:].any() else number


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
    embeddings = [module.weight for module in bert.embeddings.modules() if isinstance(module, nn.Embedding)]
    layers = [part.dense for layer in bert.encoder.layer for part in (layer.attention.output, layer.output)]
    written = [parameter for module in (*norms_of(bert), *layers) for parameter in (module.weight, module.bias)]

    def without_last_columns(gradient: Tensor) -> Tensor:
        return nn.functional.pad(gradient[:, :-number], (0, number))

    def without_last_rows(gradient: Tensor) -> Tensor:
        kept = gradient.clone()
        kept[-number:] = 0
        return kept

    for parameter in embeddings:
        parameter.register_hook(without_last_columns)
    for parameter in written:
        parameter.register_hook(without_last_rows)
