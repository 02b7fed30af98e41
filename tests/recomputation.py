"""Gradient checkpointing under each version of transformers."""

from transformers import PreTrainedModel


def checkpoint_layers(model: PreTrainedModel) -> None:
    """Recomputes each layer in the backward pass. transformers renames the method, and warns of the old name."""
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable()
