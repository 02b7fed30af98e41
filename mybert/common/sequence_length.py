"""The number of tokens per sequence that a checkpoint can read, and that it was trained on."""

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from mybert.common.errors import UserError


def trained_tokens(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int:
    """Tokens of the longest sequence that a checkpoint was trained on; later position embeddings are untrained."""
    return min(config.max_position_embeddings, tokenizer.model_max_length)


def check_max_length(given: int | None, config: PreTrainedConfig, name: str) -> None:
    """Raises a UserError if `--max-length` is above the number of positions of the checkpoint `name`."""
    if given is not None and given > config.max_position_embeddings:
        raise UserError(f"--max-length {given}: {name} has {config.max_position_embeddings} positions")
