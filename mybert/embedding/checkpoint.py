"""A checkpoint as the embedder needs it: encoder and tokenizer, checked against each other and the settings."""

import torch

from modeling_mybert import MyBertModel
from mybert.common.checkpoint_loading import (
    explain_unreadable,
    refuse_missing,
    refuse_other_shapes,
    refuse_other_vocabulary,
)
from mybert.common.devices import choose_device
from mybert.common.errors import UserError
from mybert.embedding.settings import EncodingSettings
from tokenization import MyBertTokenizer


def load_checkpoint(settings: EncodingSettings) -> tuple[MyBertModel, MyBertTokenizer]:
    """
    Returns:
        The encoder in evaluation mode, on its device, `pooler` None where the checkpoint has no weights for it; and
        the tokenizer.

    Raises:
        UserError: the checkpoint or the device cannot be used, or a setting does not fit the model.
    """
    name = settings.checkpoint
    with explain_unreadable(name):
        tokenizer = MyBertTokenizer.from_pretrained(name)
        model, report = MyBertModel.from_pretrained(
            name,
            dtype=getattr(torch, settings.dtype),
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
        refuse_other_shapes(name, report["mismatched_keys"])
    refuse_missing(name, report["missing_keys"], new=("pooler.",))
    if report["missing_keys"]:
        model.pooler = None
    _check_fit(model, tokenizer, settings)
    return model.eval().to(choose_device(settings.device)), tokenizer


def window_length(settings: EncodingSettings, model: MyBertModel, tokenizer: MyBertTokenizer) -> int:
    """Tokens of a window: as many as the settings say, else as the model was trained on."""
    return settings.max_length or min(model.config.max_position_embeddings, tokenizer.model_max_length)


def _check_fit(model: MyBertModel, tokenizer: MyBertTokenizer, settings: EncodingSettings) -> None:
    config = model.config
    refuse_other_vocabulary(settings.checkpoint, tokenizer, config)
    positions, layers = config.max_position_embeddings, config.num_hidden_layers
    if settings.max_length is not None and settings.max_length > positions:
        raise UserError(f"--max-length {settings.max_length}: the model has {positions} positions")
    room = window_length(settings, model, tokenizer) - 2
    if settings.overlap is not None and settings.overlap >= room:
        raise UserError(f"--overlap {settings.overlap}: expected less than the {room} tokens of a window's text")
    for layer in settings.layers:
        if not -layers - 1 <= layer <= layers:
            raise UserError(f"--layers: expected {-layers - 1} to {layers}, found {layer}")
