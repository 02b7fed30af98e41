"""The tokenizer of a checkpoint: reading it, whether it fits the model, and how long its texts may be."""

from pathlib import Path

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from mybert.common.errors import UserError, cause, short
from tokenization import MyBertTokenizer

_FILES = ("tokenizer.json", "vocab.txt")
_REMEDY = "copy its tokenizer.json and tokenizer_config.json into it"
_SHORTEST = 3  # tokens of a text: [CLS], one of its own, [SEP]


def lacks_tokenizer(name: str) -> bool:
    """Whether a checkpoint is a folder without the files of a tokenizer."""
    return Path(name).is_dir() and not any((Path(name) / file).is_file() for file in _FILES)


def no_tokenizer(name: str) -> UserError:
    """The error of a command that needs the tokenizer of a checkpoint which has none."""
    return UserError(f"checkpoint {name} has no tokenizer; {_REMEDY}")


def load_tokenizer(name: str) -> MyBertTokenizer:
    """The tokenizer of a checkpoint, which pads on the right, or the positions of a text would depend on its batch.

    Raises:
        UserError: a file of it holds JSON of another form, of which transformers checks little.
        ValueError: it is no tokenizer of a BERT.
    """
    try:
        return MyBertTokenizer.from_pretrained(name, padding_side="right")
    except (AttributeError, LookupError, TypeError) as error:
        raise UserError(f"checkpoint {name}: its tokenizer is damaged ({cause(error)}); {_REMEDY}") from error


def refuse_other_vocabulary(name: str, tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig) -> None:
    """Raises a UserError if the tokenizer of checkpoint `name` has more tokens than its model has embeddings."""
    if len(tokenizer) > config.vocab_size:
        raise UserError(
            f"checkpoint {name}: the tokenizer has {len(tokenizer)} tokens, the model {config.vocab_size} embeddings; "
            "they belong to different checkpoints"
        )


def trained_tokens(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int:
    """Tokens of the longest sequence that a checkpoint was trained on; later position embeddings are untrained."""
    length = tokenizer.model_max_length
    if isinstance(length, str) or length < _SHORTEST:
        raise UserError(
            f"checkpoint {tokenizer.name_or_path}: model_max_length in tokenizer_config.json is {short(length)}, "
            f"expected a number of at least {_SHORTEST}; correct it"
        )
    return int(min(config.max_position_embeddings, length))


def check_max_length(given: int | None, config: PreTrainedConfig, name: str) -> None:
    """Raises a UserError if `--max-length` is above the number of positions of the checkpoint `name`."""
    if given is not None and given > config.max_position_embeddings:
        raise UserError(f"--max-length {given}: {name} has {config.max_position_embeddings} positions")
