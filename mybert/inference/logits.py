"""Inference at full throughput: batches of features of similar length."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mybert.common.errors import NOT_FINITE, UserError
from mybert.inference.batches import batches, token_limit
from mybert.tasks.base import Task

if TYPE_CHECKING:
    from mybert.inference.onnx_model import OnnxModel
    from mybert.inference.sentence_modules import TextVectors

_READ_AT_ONCE = 10_000  # features sorted by length together
Model: TypeAlias = "PreTrainedModel | OnnxModel | TextVectors"
"""What gives logits."""
_TARGETS = {"labels", "start_positions", "end_positions"}


def logits_of(
    model: Model,
    task: Task,
    tokenizer: PreTrainedTokenizerBase,
    features: Dataset,
    max_tokens_per_batch: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> list[np.ndarray]:
    """The logits of each feature, in order, as `Task.decode` takes them.

    `max_tokens_per_batch` is as in `token_limit`. `progress` is called after each batch with its number of features.
    """
    collate, inputs, logits = task.collator(tokenizer), inputs_of(model, features), []
    for first in range(0, len(inputs), _READ_AT_ONCE):
        rows = as_rows(inputs[first : first + _READ_AT_ONCE])
        logits += logits_of_rows(model, collate, rows, max_tokens_per_batch, progress)
    return logits


def as_rows(columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def logits_of_rows(
    model: Model,
    collate: Callable[..., Any],
    rows: Sequence[Mapping[str, Any]],
    max_tokens_per_batch: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> list[np.ndarray]:
    """As `logits_of`, for the arguments of the model for each feature. All of a batch have the same number of choices:
    padding choices would be computed.
    """
    device = model.device  # found by a search of the parameters
    limit = token_limit(max_tokens_per_batch, device)
    all_logits = [np.empty(0)] * len(rows)
    alike: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        ids = row["input_ids"]
        alike.setdefault(len(ids) if ids and isinstance(ids[0], list) else 1, []).append(number)
    for places in alike.values():
        for numbers in batches(places, lambda place: token_count(rows[place]["input_ids"]), limit):
            outputs = _forward(model, _batch([rows[number] for number in numbers], collate), device)
            for number, logits in zip(numbers, outputs, strict=True):
                all_logits[number] = logits
            if progress is not None:
                progress(len(numbers))
    return all_logits


def inputs_of(model: Model, features: Dataset) -> Dataset:
    """The columns of features that are arguments of the model, without targets."""
    arguments = _arguments(getattr(type(model), "forward", type(model).__call__))
    return features.select_columns([name for name in features.column_names if name in arguments])


@functools.cache
def _arguments(forward: Callable[..., Any]) -> set[str]:
    """The names of a model's arguments, without targets. Reading them takes as long as tokenizing a sentence."""
    return inspect.signature(forward).parameters.keys() - _TARGETS


def token_count(ids: list[Any]) -> int:
    """Number of tokens of a sequence, or of several choices padded to the longest."""
    return len(ids) if not ids or not isinstance(ids[0], list) else len(ids) * max(map(len, ids))


def _batch(rows: list[Mapping[str, Any]], collate: Callable[..., Any]) -> Mapping[str, Tensor]:
    """A single row needs no padding; collating it takes transformers longer than tokenizing a sentence."""
    if len(rows) > 1 or isinstance(rows[0]["input_ids"][0], list):
        return collate(rows)
    return {name: torch.tensor([values]) for name, values in rows[0].items()}


@torch.inference_mode()
def _forward(model: Model, batch: Mapping[str, Tensor], device: torch.device) -> np.ndarray:
    logits = logits_in(model(**{name: tensor.to(device) for name, tensor in batch.items()}))
    if not logits.isfinite().all():
        raise UserError(f"the model's logits are NaN or infinite: {NOT_FINITE}")
    return logits.float().cpu().numpy()


def logits_in(outputs: Mapping[str, Tensor]) -> Tensor:
    """The logits in the output of a head; of start and end of an answer as one tensor (B, S, 2)."""
    if "logits" in outputs:
        return outputs["logits"]
    return torch.stack([outputs["start_logits"], outputs["end_logits"]], dim=-1)
