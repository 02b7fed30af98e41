"""A shallower encoder from the layers of a deeper one."""

from typing import Any

from torch import nn
from transformers import PreTrainedModel

from mybert.common.errors import UserError
from mybert.common.quantities import counted


def chosen_layers(available: int, kept: int) -> list[int]:
    """Indices of evenly spaced layers, with the first and the last; 6 of 12 (as DistilBERT): 0, 2, 4, 7, 9, 11."""
    return [round(place * (available - 1) / max(kept - 1, 1)) for place in range(kept)]


def keep_layers(model: PreTrainedModel, kept: int, name: str) -> None:
    """Removes all but `kept` evenly spaced layers of the BERT called `name` (Sanh et al. 2019, section 3)."""
    encoder: Any = model.base_model.encoder
    available = model.config.num_hidden_layers
    if kept > available:
        raise UserError(f"--layers {kept}: {name} has {counted(available, 'layer')}")
    encoder.layer = nn.ModuleList(encoder.layer[number] for number in chosen_layers(available, kept))
    model.config.num_hidden_layers = kept
