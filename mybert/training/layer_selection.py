"""A shallower encoder from the layers of a deeper one."""

from typing import Any

from torch import nn
from transformers import PreTrainedModel

from mybert.common.errors import UserError
from mybert.common.quantities import counted, evenly


def keep_layers(model: PreTrainedModel, kept: int, name: str) -> None:
    """Removes all but `kept` evenly spaced layers of the BERT called `name` (as DistilBERT, Sanh et al. 2019)."""
    encoder: Any = model.base_model.encoder
    available = model.config.num_hidden_layers
    if kept > available:
        raise UserError(f"--layers {kept}: {name} has {counted(available, 'layer')}")
    encoder.layer = nn.ModuleList(encoder.layer[number] for number in evenly(available, kept))
    model.config.num_hidden_layers = kept
