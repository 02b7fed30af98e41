"""The tokenizer, and the training of its vocabulary. Modules are imported on first use."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .tokenization_mybert import MyBertTokenizer
    from .vocabulary_measures import removed_marks, vocabulary_report
    from .word_counting import count_words
    from .wordpiece_training import SPECIAL_TOKENS, train_wordpiece

__all__ = ["SPECIAL_TOKENS", "MyBertTokenizer", "count_words", "removed_marks", "train_wordpiece", "vocabulary_report"]
_MODULES = {
    "SPECIAL_TOKENS": "wordpiece_training",
    "MyBertTokenizer": "tokenization_mybert",  # imports transformers
    "count_words": "word_counting",
    "removed_marks": "vocabulary_measures",
    "train_wordpiece": "wordpiece_training",
    "vocabulary_report": "vocabulary_measures",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'tokenization' has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
