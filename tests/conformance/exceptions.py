"""Tests of transformers that may end differently for MyBERT than for BERT, each with its reason."""

EXCEPTIONS: dict[str, str] = {}
