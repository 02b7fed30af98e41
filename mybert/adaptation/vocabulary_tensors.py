"""Change the vocabulary-sized tensors of a model: word embedding, vocabulary projection and its bias."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel


@torch.no_grad()
def change_rows(model: PreTrainedModel, origins: Sequence[Sequence[int]]) -> None:
    """Replaces the rows of the input embedding and, if the model has one, of the vocabulary projection.

    A row with one origin is an exact copy. A row with several origins is their mean, the usual initialisation of new
    words (Hong et al. 2021, AVocaDo; Gee et al. 2022, Fast Vocabulary Transfer).

    Args:
        model: a MyBERT with any head, changed in place. Token ids in its configuration are updated; ids of removed
            tokens become None.
        origins: the old ids that each new row is computed from.
    """
    old = [tensor.detach().clone() for tensor in _tables(model)]
    model.resize_token_embeddings(len(origins), mean_resizing=False)
    for table, before in zip(_tables(model), old, strict=True):
        table.copy_(_mean_rows(before, origins))
    moved = {ids[0]: index for index, ids in enumerate(origins) if len(ids) == 1}
    moved |= {index: index for index, ids in enumerate(origins) if list(ids) == [index]}
    for config in (model.config, getattr(model, "generation_config", None)):
        for name, value in list(vars(config).items()) if config is not None else ():
            if name.endswith("_token_id") and isinstance(value, int):
                setattr(config, name, moved.get(value))
            elif name.endswith("_token_id") and isinstance(value, list):
                setattr(config, name, [moved[token] for token in value if token in moved] or None)


def _tables(model: PreTrainedModel) -> list[Tensor]:
    """The tensors with one row per token: matrices (V, H) and biases (V,), each once."""
    output: Any = model.get_output_embeddings()
    table: Any = model.get_input_embeddings()
    tensors: list[Tensor] = [table.weight]
    if output is not None:
        tensors += [tensor for tensor in (output.weight, output.bias) if tensor is not None]
        head = getattr(getattr(model, "cls", None), "predictions", None)
        tensors += [head.bias] if head is not None else []
    return list({id(tensor): tensor for tensor in tensors}.values())


def _mean_rows(table: Tensor, origins: Sequence[Sequence[int]]) -> Tensor:
    rows = table[torch.tensor([ids[0] for ids in origins], device=table.device)]
    for index, ids in enumerate(origins):
        if len(ids) > 1:
            rows[index] = table[torch.tensor(list(ids), device=table.device)].mean(0)
    return rows
