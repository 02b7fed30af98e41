"""A word table of which the rows that occur in the training texts are trained, at their cost alone.

The others have no gradient: all that AdamW does to them is weight decay, the same factor for each, but it goes through
them, their gradients and moments, in every step. Often they are nine tenths of what is half of a small model.
"""

import itertools
from collections.abc import Callable

import datasets
import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn
from transformers import TrainingArguments

_ADAMW = ("adamw_torch", "adamw_torch_fused")


class SubsetEmbedding(nn.Embedding):
    """In place of a whole table, to the same numbers under AdamW, and the whole table in state dicts.

    Args:
        table: (V, H).
        ids: (n,) distinct, what is looked up in training; with that of padding, if it has one.

    Attributes:
        weight: (n, H) the parameter; it is the first part of `table`, in the same memory.
        table: (V, H) all rows, looked up when nothing is trained.
    """

    def __init__(self, table: nn.Embedding, ids: Tensor):
        others = torch.ones(table.num_embeddings, dtype=torch.bool, device=ids.device)
        others[ids] = False
        order = torch.cat([ids, others.nonzero().squeeze(1)]).to(table.weight.device)
        places, rows = order.argsort(), table.weight.detach()[order]
        padding = None if table.padding_idx is None else int(places[table.padding_idx])
        super().__init__(len(ids), table.embedding_dim, padding, _weight=rows[: len(ids)])
        self.register_buffer("order", order, persistent=False)  # (V,) the id of each row
        self.register_buffer("places", places, persistent=False)  # (V,) the row of each id
        self.register_buffer("table", rows, persistent=False)

    def follow(self, optimizer: torch.optim.Optimizer) -> None:
        """After each step of it, the others decay as its own parameter `weight` does.

        Its state dicts have the moments of the whole table: another number of processes can go on with them.
        """
        groups = [group["params"] for group in optimizer.param_groups]
        number = next(i for i, p in enumerate(itertools.chain(*groups)) if p is self.weight)
        holds = next(i for i, group in enumerate(groups) if any(p is self.weight for p in group))
        ids = self.order[: self.num_embeddings]

        def of_all(optimizer, state: dict) -> dict:
            return _with_moments(
                state, number, lambda m: m.new_zeros(len(self.order), m.shape[1]).index_copy(0, ids, m)
            )

        def of_trained(optimizer, state: dict) -> dict:
            return _with_moments(state, number, lambda m: m[ids.to(m.device)])

        def decay(optimizer, *_) -> None:
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

    def _apply(self, fn, recurse: bool = True) -> "SubsetEmbedding":
        super()._apply(fn, recurse)
        self.weight.data = self.table[: self.num_embeddings]
        return self

    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        destination[f"{prefix}weight"] = self.table[self.places]

    def _load_from_state_dict(self, state_dict: dict, prefix: str, _, strict: bool, missing_keys: list, *__) -> None:
        if f"{prefix}weight" not in state_dict:
            missing_keys.append(f"{prefix}weight")
            return
        with torch.no_grad():
            self.table.copy_(state_dict[f"{prefix}weight"][self.order.cpu()])


def _with_moments(state_dict: dict, number: int, change: Callable[[Tensor], Tensor]) -> dict:
    """An optimizer's state dict in which the moments of one parameter are others."""
    state = state_dict["state"]
    if number not in state:  # before its first step
        return state_dict
    moments = {name: change(value) if value.dim() == 2 else value for name, value in state[number].items()}
    return {**state_dict, "state": {**state, number: moments}}


def train_occurring_rows(
    model: nn.Module, features: datasets.Dataset, arguments: TrainingArguments
) -> SubsetEmbedding | None:
    """Replaces the model's word table where training comes to the same: by AdamW, in one process.

    Args:
        features: `input_ids` of all that is trained on.

    Returns:
        What took its place; None where nothing did.
    """
    if not isinstance(features, datasets.Dataset):  # texts that are not known beforehand
        return None
    if arguments.world_size > 1 or arguments.n_gpu > 1 or arguments.optim not in _ADAMW:
        return None
    embeddings = model.base_model.embeddings
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
