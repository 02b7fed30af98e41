"""Calibration error of probabilities, and temperature scaling (Guo et al. 2017)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from datasets import Dataset
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from torch import nn
from transformers import PreTrainedModel

from mybert.finetuning.tasks.base import ROW

_BINS = 10
_TEMPERATURES = (0.05, 20.0)
_IGNORED = -100


def answers(prediction: Mapping, reference: Any) -> list[tuple[str, Any, Any, float]]:
    """The word, the predicted and the true class, and the probability: of each tag, of a label or of a choice."""
    if "tags" in prediction:
        return list(zip(prediction["tokens"], prediction["tags"], reference, prediction["scores"], strict=True))
    if "choice" in prediction:
        return [("", prediction["choice"], reference, prediction["scores"][prediction["choice"]])]
    return [("", prediction["label"], reference, prediction["score"])] if "label" in prediction else []


def confidences(predictions: Sequence[Mapping], references: Sequence) -> tuple[np.ndarray, np.ndarray] | None:
    """The probability of each predicted class, and whether it is right: of rows, or of tags.

    Returns:
        (n,) probabilities and (n,) booleans; None for predictions without the probability of a class.
    """
    rows = list(zip(predictions, references, strict=True))
    pairs = [(score, answer == true) for row in rows for _, answer, true, score in answers(*row)]
    if predictions and "labels" in predictions[0]:  # the probability of the answer yes or no for each label
        pairs = [
            (max(score, 1 - score), (score > 0.5) == (label in true))
            for prediction, true in rows
            for label, score in prediction["scores"].items()
        ]
    if not pairs:
        return None
    shares, right = zip(*pairs, strict=True)
    return np.array(shares, dtype=np.float64), np.array(right, dtype=bool)


def reliability(confidence: np.ndarray, right: np.ndarray) -> dict:
    """Expected calibration error and the bins of a reliability diagram (Naeini et al. 2015).

    Args:
        confidence, right: of `confidences`.

    Returns:
        `expected_calibration_error`: mean |accuracy - confidence| of bins of equal width, weighted by their rows;
        `confidence` and `accuracy` over all; `bins` that have rows: `from`, `to`, `rows`, `confidence`, `accuracy`.
    """
    places = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    found = []
    for place in np.unique(places).tolist():
        inside = places == place
        bounds = {"from": place / _BINS, "to": (place + 1) / _BINS}
        found.append({**bounds, "rows": int(inside.sum()), **_means(confidence[inside], right[inside])})
    gaps = [b["rows"] * abs(b["accuracy"] - b["confidence"]) for b in found]
    return {"expected_calibration_error": sum(gaps) / len(confidence), **_means(confidence, right), "bins": found}


def _means(confidence: np.ndarray, right: np.ndarray) -> dict[str, float]:
    return {"confidence": float(confidence.mean()), "accuracy": float(right.mean())}


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """The temperature by which logits must be divided for the least cross-entropy of the labels.

    Args:
        logits: (n, classes).
        labels: (n,) class ids.
    """

    def loss(logarithm: float) -> float:
        return -log_softmax(logits / np.exp(logarithm), axis=1)[np.arange(len(labels)), labels].mean()

    return float(np.exp(minimize_scalar(loss, bounds=np.log(_TEMPERATURES), method="bounded").x))


def labelled_logits(logits: Sequence[np.ndarray], features: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """The mean logits and the class of each labelled row or word, over its windows or tokens, as in predictions.

    Args:
        logits: of `logits_of`.
        features: of a task, with labels.

    Returns:
        (n, classes) and (n,); the logit of a choice that a row does not have is -inf.
    """
    words = features["words"][:] if "words" in features.column_names else [0] * len(features)
    ids = features["input_ids"][:]
    if isinstance(ids[0][0], list):  # of each choice; the collator may have added some
        most = max(map(len, ids))
        pairs = zip(logits, map(len, ids), strict=True)
        logits = [np.pad(row[:n], (0, most - n), constant_values=-np.inf) for row, n in pairs]
    found, classes, owners = [], [], []
    for values, label, row, word in zip(logits, features["labels"][:], features[ROW][:], words, strict=True):
        label = np.atleast_1d(label)
        kept = np.flatnonzero(label != _IGNORED)
        found.append(np.atleast_2d(values)[kept].astype(np.float64))
        classes.append(label[kept])
        owners += [(row, one) for one in np.broadcast_to(word, label.shape)[kept].tolist()]
    _, first, place, times = np.unique(owners, axis=0, return_index=True, return_inverse=True, return_counts=True)
    sums = np.zeros((len(first), found[0].shape[1]))
    np.add.at(sums, place.ravel(), np.concatenate(found))
    return sums / times[:, None], np.concatenate(classes)[first]


def scale_head(model: PreTrainedModel, temperature: float) -> None:
    """Divides the logits of a model by the temperature, in the weights of its last layer."""
    last = [part for part in model.classifier.modules() if isinstance(part, nn.Linear)][-1]
    for parameter in last.parameters():
        parameter.data /= temperature
