"""Batches for inference: sequences of similar lengths, with a limited number of tokens."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from mybert.common.machine import threads

Item = TypeVar("Item")


def token_limit(given: int | None, device: torch.device) -> int:
    """The setting `max_tokens_per_batch`, or its default on the device."""
    # More tokens are not faster: the products of a batch then fill the cores, or a GPU. Fewer fit into caches and
    # memory, and let batches have more similar lengths.
    return given or (2048 if device.type == "cpu" else 16384)


def batches(items: Iterable[Item], length: Callable[[Item], int], limit: int) -> Iterator[list[Item]]:
    """Batches of at most `limit` tokens, or of one item. The longest come first: a lack of memory shows at once.

    With padding, which ONNX graphs compute, a batch has at most twice as many tokens.
    """
    batch: list[Item] = []
    total = 0
    for item in sorted(items, key=lambda item: -length(item)):
        if batch and (total + length(item) > limit or (len(batch) + 1) * length(batch[0]) > 2 * limit):
            threads.share()
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += length(item)
    if batch:
        yield batch


def packed_inputs(sequences: Sequence[np.ndarray], device: torch.device) -> dict[str, Any]:
    """The arguments of `MyBertModel.forward` for token ids of several sequences, each (length,)."""
    lengths = np.array([len(ids) for ids in sequences])
    ends = lengths.cumsum()
    positions = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
    input_ids, position_ids = (torch.from_numpy(x)[None].to(device) for x in (np.concatenate(sequences), positions))
    return {
        "input_ids": input_ids,
        "position_ids": position_ids,
        "cu_seq_lens_q": torch.from_numpy(np.append(0, ends).astype(np.int32)).to(device),
        "max_length_q": int(lengths.max()),
    }
