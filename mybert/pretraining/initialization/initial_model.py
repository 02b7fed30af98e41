"""The model that pretraining starts from: a new one, or a checkpoint."""

from typing import Any

from accelerate import PartialState

from modeling_mybert import MyBertConfig, MyBertForPreTraining
from mybert.common.errors import UserError, cause
from mybert.inference.checkpoint import open_checkpoint
from mybert.pretraining.settings import PretrainSettings, parse_lengths
from tokenization import MyBertTokenizer
from tokenization.vocabulary_change import UNUSED

_HEADS = {
    "bert.pooler.": "pooler",
    "cls.predictions.": "masked-language-model head",
    "cls.seq_relationship.": "next-sentence head",
}
"""Weights that a BERT checkpoint may lack, depending on how it was pretrained: prefix and name."""


def build_model(settings: PretrainSettings, tokenizer: MyBertTokenizer, longest: int) -> MyBertForPreTraining:
    """The model to start from; `longest` is the length in tokens of the longest sequence of the run."""
    choices: dict[str, Any] = {}
    if settings.dropout is not None:
        choices = {"hidden_dropout_prob": settings.dropout, "attention_probs_dropout_prob": settings.dropout}
    if settings.attn_implementation is not None:
        choices["attn_implementation"] = settings.attn_implementation
    if settings.init_from is not None:
        return _load_model(settings.init_from, tokenizer, longest, choices)
    if settings.initializer_range is not None:
        choices["initializer_range"] = settings.initializer_range
    config = MyBertConfig.from_size(
        str(settings.size),
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        max_position_embeddings=max(longest, MyBertConfig().max_position_embeddings),
        **choices,
    )
    try:
        return MyBertForPreTraining(config)
    except (ValueError, ImportError) as error:  # the attention backend is unknown or not installed
        raise UserError(cause(error)) from error


def _load_model(name: str, tokenizer: MyBertTokenizer, longest: int, choices: dict[str, Any]) -> MyBertForPreTraining:
    # transformers would keep the 16 bits of a checkpoint, in which small updates are lost
    opened = open_checkpoint(name, MyBertForPreTraining, new_head=True, dtype="float32", **choices)
    model = opened.model
    vars(model.config).pop("words_weight", None)  # of a retriever, which the result is not
    if not _keeps_vocabulary(opened.tokenizer.get_vocab(), tokenizer.get_vocab()):
        raise UserError(
            f"--init-from {name} has another vocabulary than the corpus; name a checkpoint with the vocabulary of "
            f"the corpus, or build the corpus with `--tokenizer {name}`"
        )
    if opened.tokenizer.normalisation != tokenizer.normalisation:
        raise UserError(
            f"--init-from {name} was trained on text of another case or with other accents than the corpus; build the "
            f"corpus with `--tokenizer {name}`"
        )
    if opened.missing and PartialState().is_main_process:
        new = [head for prefix, head in _HEADS.items() if any(key.startswith(prefix) for key in opened.missing)]
        print(f"{name} lacks weights of {', '.join(new)}: these are newly initialised")
    if longest > model.config.max_position_embeddings:
        raise UserError(
            f"the corpus has a sequence of {longest} tokens, but {name} has only "
            f"{model.config.max_position_embeddings} positions; build the corpus with a smaller --max-length"
        )
    return model


def _keeps_vocabulary(old: dict[str, int], new: dict[str, int]) -> bool:
    """Whether every token has its old id, except tokens that replace `[unusedN]`, as Google's BERT advises."""
    tokens = {index: token for token, index in old.items()}
    changed = [index for token, index in new.items() if old.get(token) != index]
    return len(old) == len(new) and all(UNUSED.fullmatch(tokens.get(index, "")) for index in changed)


def trained_length(settings: PretrainSettings, model: MyBertForPreTraining, longest: int) -> int:
    """Length of the longest sequence the finished model was trained on, those of this run included.

    Later positions keep their initial values.
    """
    if settings.length_schedule:
        longest = min(longest, max(length for length, _ in parse_lengths(settings.length_schedule)))
    if settings.init_from is None:
        return longest
    before = MyBertTokenizer.from_pretrained(settings.init_from).model_max_length
    return max(longest, min(before, model.config.max_position_embeddings))
