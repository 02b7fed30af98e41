"""The tokenizer, and the training of its vocabulary."""

from typing import TYPE_CHECKING, Any

from .vocabulary_report import removed_marks, vocabulary_report
from .word_counting import count_words
from .wordpiece_training import SPECIAL_TOKENS, train_wordpiece

if TYPE_CHECKING:
    from .tokenization_mybert import MyBertTokenizer

__all__ = ["SPECIAL_TOKENS", "MyBertTokenizer", "count_words", "removed_marks", "train_wordpiece", "vocabulary_report"]


def __getattr__(name: str) -> Any:
    if name != "MyBertTokenizer":
        raise AttributeError(f"module 'tokenization' has no attribute {name!r}")
    from .tokenization_mybert import MyBertTokenizer  # imports transformers

    return MyBertTokenizer


def __dir__() -> list[str]:
    return __all__
