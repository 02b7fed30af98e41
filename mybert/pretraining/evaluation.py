"""Evaluation of pretraining: metrics from sums over batches, accuracy by kind of token, neighbours of words."""

import itertools
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize
from transformers import PreTrainedTokenizerBase

from mybert.pretraining.data.batching import HeldOutDataset
from mybert.pretraining.data.masking import IGNORED, Masker

_BANDS = (10, 100, 1000, 10_000)  # ranks by frequency
_NEIGHBOURS, _WORDS, _MIN_LETTERS = 5, 12, 3


def batch_sums(inputs: Mapping[str, Any], outputs: Any, counts: Tensor | None = None) -> Tensor:
    """
    Args:
        inputs: arguments of the pretraining model.
        outputs: of the model, with sparse logits.
        counts: (2, V) to which the labelled tokens of the batch are added, and the correctly predicted ones.

    Returns:
        (1, 6) float32: number of labelled tokens, their summed loss, correct predictions; the same for pairs.
    """
    labels, pairs = inputs["labels"].flatten()[inputs["masked_lm_positions"]], inputs.get("next_sentence_label")
    logits = outputs.prediction_logits.float()  # the CPU finds the largest of numbers in 16 bits slowly
    correct = logits.argmax(-1) == labels
    if counts is not None:
        tokens = labels.clamp(min=0)
        counts[0].index_add_(0, tokens, (labels != IGNORED).float())
        counts[1].index_add_(0, tokens, correct.float())
    of_tokens = label_sums(logits, labels, correct)
    of_pairs = torch.zeros_like(of_tokens) if pairs is None else label_sums(outputs.seq_relationship_logits, pairs)
    return torch.cat([of_tokens, of_pairs])[None]


def label_sums(logits: Tensor, labels: Tensor, correct: Tensor | None = None) -> Tensor:
    """(3,) the number of labels of `logits` (n, C), their summed loss, and the correct predictions."""
    logits = logits.float()
    loss = cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
    correct = logits.argmax(-1) == labels if correct is None else correct  # argmax is never `IGNORED`
    return torch.stack([(labels != IGNORED).sum(), loss, correct.sum()])


def metrics_of(sums: np.ndarray) -> dict[str, float]:
    """The metrics of an evaluation from the sums of its batches, (batches, 6). Without pairs there are no nsp metrics.

    Returns:
        loss (the sum of both), mlm_loss, mlm_accuracy, perplexity, mlm_tokens, nsp_loss, nsp_accuracy, nsp_pairs.
    """
    metrics = {"loss": 0.0}
    of_parts = sums.reshape(-1, 2, 3).sum(0, dtype=np.float64)
    for part, labels, (number, loss, correct) in zip(("mlm", "nsp"), ("tokens", "pairs"), of_parts, strict=True):
        if number:
            metrics[f"{part}_loss"], metrics[f"{part}_accuracy"] = loss / number, correct / number
            if part == "mlm":
                with np.errstate(over="ignore"):  # to infinity
                    metrics["perplexity"] = float(np.exp(loss / number))
            metrics[f"{part}_{labels}"] = int(number)
            metrics["loss"] += loss / number
    return metrics


def constant_baselines(dataset: HeldOutDataset, masker: Masker, batch_size: int = 1024) -> dict[str, float]:
    """Accuracy of the most frequent token and, with pairs, of the more frequent class in an evaluation."""
    tokens = np.zeros(len(masker.maskable), dtype=np.int64)
    pairs = np.zeros(2, dtype=np.int64)
    number = len(dataset.corpus)
    for start in range(0, number, batch_size):
        examples = dataset.__getitems__(range(start, min(start + batch_size, number)))
        _, labels = masker(
            examples.input_ids, examples.lengths, examples.epochs, examples.indices, examples.mlm_probability
        )
        tokens += np.bincount(labels[labels != IGNORED], minlength=len(tokens))
        if examples.next_sentence_label is not None:
            pairs += np.bincount(examples.next_sentence_label, minlength=2)
    baselines = {"mlm_accuracy": float(tokens.max() / max(tokens.sum(), 1))}
    if pairs.any():
        baselines["nsp_accuracy"] = float(pairs.max() / pairs.sum())
    return baselines


# Tokens and words


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
