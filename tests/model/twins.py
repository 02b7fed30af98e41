"""transformers' BERT and MyBERT with the same weights."""

import torch
import transformers
from torch import nn
from transformers import BertConfig

import modeling_mybert
from modeling_mybert import MyBertConfig


def twins(
    config: MyBertConfig, head: str = "Model", std: float | None = None, **settings
) -> tuple[nn.Module, nn.Module]:
    """transformers' model and ours, in evaluation mode; with `std`, weights so large that every part has an effect."""
    for name, value in settings.items():
        setattr(config, name, value)
    values = {name: x for name, x in config.to_dict().items() if name not in ("model_type", "auto_map")}
    attention = config._attn_implementation
    torch.manual_seed(0)
    theirs = getattr(transformers, f"Bert{head}")(BertConfig(**values, attn_implementation=attention)).eval()
    for parameter in theirs.parameters() if std else ():
        nn.init.normal_(parameter, std=std)
    ours = getattr(modeling_mybert, f"MyBert{head}")(config).eval()
    ours.load_state_dict(theirs.state_dict())  # strict: the same names and shapes
    return theirs, ours
