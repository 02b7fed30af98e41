"""CPU tuning: an embedding that trains only the rows used by the training set, with the same result.

The other rows have no gradient, and AdamW only decays them, all by the same factor. Still it reads and writes their
weights, gradients and moments in every step. Often they are nine tenths of an embedding that is half of a small model.
A reader of the training code may skip this file: `train_occurring_rows` is its only use.
"""

import itertools
from collections.abc import Callable
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn
from transformers import TrainingArguments

_ADAMW = ("adamw_torch", "adamw_torch_fused")


class SubsetEmbedding(nn.Embedding):
    """Replaces an `nn.Embedding`: the same weights under AdamW, and the whole embedding in state dicts.

    Args:
        table: the embedding, (V, H).
        ids: (n,) distinct ids used in training, with the padding id if there is one.

    Attributes:
        weight: (n, H) the parameter: the first rows of `table`, in the same memory.
        table: (V, H) all rows, used in evaluation mode.
    """

    def __init__(self, table: nn.Embedding, ids: Tensor):
        others = torch.ones(table.num_embeddings, dtype=torch.bool, device=ids.device)
        others[ids] = False
        order = torch.cat([ids, others.nonzero().squeeze(1)]).to(table.weight.device)
        places, rows = order.argsort(), table.weight.detach()[order]
        padding = None if table.padding_idx is None else int(places[table.padding_idx])
        super().__init__(len(ids), table.embedding_dim, padding, _weight=rows[: len(ids)])
        self.order: Tensor
        self.places: Tensor
        self.table: Tensor
        self.register_buffer("order", order, persistent=False)  # (V,) the id of each row
        self.register_buffer("places", places, persistent=False)  # (V,) the row of each id
        self.register_buffer("table", rows, persistent=False)

    @property
    def untrained(self) -> int:
        """The number of weights in the other rows."""
        return self.table.numel() - self.weight.numel()

    def follow(self, optimizer: torch.optim.Optimizer) -> None:
        """Decays the other rows after each step of `optimizer`.

        The optimizer's state dicts have moments of the whole embedding, so that a run can be resumed with several
        processes, which train the whole embedding.
        """
        groups = [group["params"] for group in optimizer.param_groups]
        number = next(i for i, p in enumerate(itertools.chain(*groups)) if p is self.weight)
        holds = next(i for i, group in enumerate(groups) if any(p is self.weight for p in group))
        ids = self.order[: self.num_embeddings]

        def of_all(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
            return _with_moments(
                state, number, lambda m: m.new_zeros(len(self.order), m.shape[1]).index_copy(0, ids, m)
            )

        def of_trained(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
            return _with_moments(state, number, lambda m: m[ids.to(m.device)])

        def decay(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            group = optimizer.param_groups[holds]
            if group["weight_decay"]:
                self.table[self.num_embeddings :].mul_(1 - group["lr"] * group["weight_decay"])

        optimizer.register_step_post_hook(decay)
        optimizer.register_state_dict_post_hook(of_all)
        optimizer.register_load_state_dict_pre_hook(of_trained)

    def forward(self, input_ids: Tensor) -> Tensor:
        """(…) → (…, H)."""
        rows = self.weight if self.training else self.table
        return nn.functional.embedding(self.places[input_ids], rows, self.padding_idx)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "SubsetEmbedding":
        super()._apply(fn, recurse)
        self.weight.data = self.table[: self.num_embeddings]
        return self

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        destination[f"{prefix}weight"] = self.table[self.places]

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, _: Any, strict: bool, missing_keys: list[str], *__: Any
    ) -> None:
        if f"{prefix}weight" not in state_dict:
            missing_keys.append(f"{prefix}weight")
            return
        with torch.no_grad():
            self.table.copy_(state_dict[f"{prefix}weight"][self.order.cpu()])


def _with_moments(state_dict: dict[str, Any], number: int, change: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """An optimizer's state dict with changed moments of one parameter."""
    state = state_dict["state"]
    if number not in state:  # before its first step
        return state_dict
    moments = {name: change(value) if value.dim() == 2 else value for name, value in state[number].items()}
    return {**state_dict, "state": {**state, number: moments}}


def train_occurring_rows(
    model: Any, features: datasets.Dataset, arguments: TrainingArguments
) -> SubsetEmbedding | None:
    """Replaces the model's word embedding if that gives the same weights: with AdamW in one process.

    Args:
        features: the training set, with `input_ids`.

    Returns:
        The new embedding; None if the model is unchanged.
    """
    if not isinstance(features, datasets.Dataset):  # a stream, whose ids are not known
        return None
    if arguments.world_size > 1 or arguments.n_gpu > 1 or arguments.optim not in _ADAMW:
        return None
    embeddings: Any = model.base_model.embeddings
    table = embeddings.word_embeddings
    if not table.weight.requires_grad:
        return None
    occurs = np.zeros(table.num_embeddings, dtype=bool)
    if table.padding_idx is not None:
        occurs[table.padding_idx] = True
    for part in features.select_columns("input_ids").with_format("arrow").iter(batch_size=1000):
        ids = part["input_ids"].combine_chunks()
        while not pa.types.is_integer(ids.type):
            ids = ids.flatten()
        occurs[ids.to_numpy()] = True
    embeddings.word_embeddings = SubsetEmbedding(table, torch.from_numpy(np.flatnonzero(occurs)))
    return embeddings.word_embeddings
