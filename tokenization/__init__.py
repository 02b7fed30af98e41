"""The tokenizer, and the training of its vocabulary."""

from .tokenization_mybert import SPECIAL_TOKENS, MyBertTokenizer
from .vocabulary_report import vocabulary_report
from .word_counting import count_words
from .wordpiece_training import train_wordpiece

__all__ = ["SPECIAL_TOKENS", "MyBertTokenizer", "count_words", "train_wordpiece", "vocabulary_report"]
