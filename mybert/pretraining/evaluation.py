"""Evaluation metrics from sums over batches, so that no logits are kept."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import EvalPrediction

from mybert.pretraining.data.batching import HeldOutDataset
from mybert.pretraining.data.masking import IGNORED, Masker


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


def metrics_from_sums(prediction: EvalPrediction) -> dict[str, float]:
    """The `compute_metrics` of Trainer for predictions that are the sums of batches, see `metrics_of`."""
    return metrics_of(np.asarray(prediction.predictions))


def metrics_of(sums: np.ndarray) -> dict[str, float]:
    """The metrics of an evaluation from the sums of its batches, (batches, 6). Without pairs there are no nsp metrics.

    Returns:
        loss (the sum of both), mlm_loss, mlm_accuracy, perplexity, mlm_tokens, nsp_loss, nsp_accuracy, nsp_pairs.
    """
    tokens, mlm_loss, mlm_correct, pairs, nsp_loss, nsp_correct = sums.reshape(-1, 6).sum(0, dtype=np.float64)
    metrics = {"loss": 0.0}
    if tokens:
        metrics["mlm_loss"] = mlm_loss / tokens
        metrics["mlm_accuracy"] = mlm_correct / tokens
        with np.errstate(over="ignore"):  # to infinity
            metrics["perplexity"] = float(np.exp(mlm_loss / tokens))
        metrics["mlm_tokens"] = int(tokens)
        metrics["loss"] += mlm_loss / tokens
    if pairs:
        metrics["nsp_loss"] = nsp_loss / pairs
        metrics["nsp_accuracy"] = nsp_correct / pairs
        metrics["nsp_pairs"] = int(pairs)
        metrics["loss"] += nsp_loss / pairs
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
