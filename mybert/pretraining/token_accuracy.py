"""Accuracy of masked tokens by their frequency and kind, and nearest neighbours of frequent words."""

import itertools
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor
from torch.nn.functional import normalize
from transformers import PreTrainedTokenizerBase

_BANDS = (10, 100, 1000, 10_000)  # ranks by frequency
_NEIGHBOURS, _WORDS, _MIN_LETTERS = 5, 12, 3


def accuracy_by_group(counts: np.ndarray, tokenizer: PreTrainedTokenizerBase) -> dict[str, list[dict[str, Any]]]:
    """Groups of tokens by their rank of frequency and by kind, each with `name`, `tokens` and `accuracy`.

    `counts` (2, V) tell how often each token was labelled, and predicted correctly.
    """
    labelled, right = counts
    order = np.argsort(-labelled, kind="stable")
    order = order[labelled[order] > 0]
    bounds = [0, *(bound for bound in _BANDS if bound < len(order)), len(order)]
    bands = {f"{low + 1:,} to {high:,}": order[low:high] for low, high in itertools.pairwise(bounds)}
    pieces = tokenizer.convert_ids_to_tokens(order.tolist())
    kinds: dict[str, list[int]] = {}
    for token, piece in zip(order.tolist(), pieces, strict=True):
        kinds.setdefault(kind_of(piece), []).append(token)
    return {
        "accuracy_by_frequency": [_group(name, tokens, labelled, right) for name, tokens in bands.items()],
        "accuracy_by_kind": [_group(name, tokens, labelled, right) for name, tokens in sorted(kinds.items())],
    }


def _group(name: str, tokens: Sequence[int], labelled: np.ndarray, right: np.ndarray) -> dict[str, Any]:
    total = float(labelled[tokens].sum())
    return {"name": name, "tokens": int(total), "accuracy": float(right[tokens].sum()) / max(total, 1.0)}


def kind_of(piece: str) -> str:
    """The kind of a token: whole word or word start, continuation, number, single letter, punctuation."""
    text = piece.removeprefix("##")
    if text.isdigit():
        return "number"
    if not any(character.isalnum() for character in text):
        return "punctuation or symbol"
    if piece.startswith("##"):
        return "continuation of a word"
    return "single character" if len(text) == 1 else "word or start of a word"


def has_only_letters(piece: str) -> bool:
    """As `str.isalpha`, with the vowel signs of scripts such as Devanagari."""
    return {unicodedata.category(character)[0] for character in piece or " "} <= {"L", "M"}


def is_word(piece: str) -> bool:
    """Whether a token is a word of three letters or more, or an ideograph."""
    is_long = len(piece) >= _MIN_LETTERS
    return has_only_letters(piece) and (is_long or unicodedata.name(piece[0], "").startswith("CJK UNIFIED"))


def nearest_neighbours(
    embeddings: Tensor, frequency: np.ndarray, tokenizer: PreTrainedTokenizerBase
) -> dict[str, list[list[Any]]]:
    """The most frequent words, each with the words whose embeddings (V, H) have the largest cosine similarity.

    `frequency` (V,) counts the tokens; only tokens that occur are neighbours.
    """
    pieces: Any = tokenizer.convert_ids_to_tokens
    order = np.argsort(-frequency, kind="stable")
    words = [token for token in order[frequency[order] > 0].tolist() if is_word(pieces(token))]
    if len(words) <= _NEIGHBOURS:
        return {}
    vectors = normalize(embeddings.detach().float().cpu()[words], dim=-1)
    cosines = vectors[:_WORDS] @ vectors.T
    top = cosines.topk(_NEIGHBOURS + 1)
    return {
        pieces(words[row]): [
            [pieces(words[column]), round(cosine, 4)]
            for column, cosine in zip(columns, values, strict=True)
            if column != row
        ][:_NEIGHBOURS]
        for row, (columns, values) in enumerate(zip(top.indices.tolist(), top.values.tolist(), strict=True))
    }
