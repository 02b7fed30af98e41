"""Inference at full throughput: batches of features of similar length."""

import inspect
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mybert.common.errors import UserError
from mybert.finetuning.task_checkpoint import Finetuned
from mybert.finetuning.tasks.base import Task

_READ_AT_ONCE = 10_000  # features sorted by length together
_TARGETS = {"labels", "start_positions", "end_positions"}


def predict_rows(finetuned: Finetuned, rows: Dataset) -> list[dict]:
    """
    Args:
        rows: under the canonical column names of the task.

    Returns:
        A prediction for each row; see `Task.decode`.
    """
    model, tokenizer, task = finetuned
    features = task.features(rows, tokenizer, training=False)
    return task.decode(logits_of(model, task, tokenizer, features), features, rows)


def logits_of(
    model: PreTrainedModel,
    task: Task,
    tokenizer: PreTrainedTokenizerBase,
    features: Dataset,
    batch_tokens: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> list[np.ndarray]:
    """
    Args:
        batch_tokens: maximum number of tokens in a batch, padding included; a longer feature is a batch of its own.
            None means 4096 on the CPU and 32768 elsewhere.
        progress: called after each batch with its number of features.

    Returns:
        The logits of each feature, in order, as `Task.decode` takes them.

    Raises:
        UserError: the logits are not finite.
    """
    collate = task.collator(tokenizer)
    arguments = inspect.signature(getattr(model, "forward", model)).parameters.keys() - _TARGETS
    inputs = features.select_columns([name for name in features.column_names if name in arguments])
    limit = batch_tokens or (4096 if model.device.type == "cpu" else 32768)
    found: list[np.ndarray | None] = [None] * len(features)
    for first in range(0, len(inputs), _READ_AT_ONCE):
        part = inputs[first : first + _READ_AT_ONCE]
        rows = [dict(zip(part, values, strict=True)) for values in zip(*part.values(), strict=True)]
        for numbers in batches([_tokens(row["input_ids"]) for row in rows], limit):
            for number, logits in zip(numbers, _forward(model, collate([rows[n] for n in numbers])), strict=True):
                found[first + number] = logits
            if progress is not None:
                progress(len(numbers))
    return found


def batches(sizes: Sequence[int], limit: int) -> Iterator[list[int]]:
    """Groups indices of `sizes`, longest first; largest size times number of indices is at most `limit`."""
    order = sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True)
    while order:
        count = max(1, limit // max(1, sizes[order[0]]))
        yield order[:count]
        order = order[count:]


def _tokens(ids: list) -> int:
    """Number of tokens of a sequence, or of several choices padded to the longest."""
    return len(ids) if not ids or not isinstance(ids[0], list) else len(ids) * max(map(len, ids))


@torch.inference_mode()
def _forward(model: PreTrainedModel, batch: dict) -> np.ndarray:
    outputs = model(**{name: tensor.to(model.device) for name, tensor in batch.items()})
    logits = (
        outputs["logits"]
        if "logits" in outputs
        else torch.stack([outputs["start_logits"], outputs["end_logits"]], dim=-1)
    )
    if not logits.isfinite().all():
        raise UserError("the model's logits are NaN or infinite: its weights are damaged, or its training has failed")
    return logits.float().cpu().numpy()
