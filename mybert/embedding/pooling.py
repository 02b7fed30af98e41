"""Pooling: windows of token ids become one vector for each row, a text or a word, as in sentence-transformers.

Shapes: `T` tokens of a window, `K` tokens of a batch that contribute to a row, `H` hidden size.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from modeling_mybert import MyBertModel
from mybert.common.text_windows import cut_windows
from mybert.inference.batches import batches, packed_inputs

_NO_ROW = -1


class Window(NamedTuple):
    """A text or a part of it, as the model reads it.

    Attributes:
        ids: (T,) token ids, special tokens included.
        rows: (T,) the row that each token contributes to, or -1.
        start: number of tokens of its text before it.
    """

    ids: np.ndarray
    rows: np.ndarray
    start: int


def windows_of(
    ids: np.ndarray, rows: np.ndarray, special_ids: tuple[int, int], size: int, stride: int
) -> list[Window]:
    """Windows over the token ids of a text; special tokens contribute to no row.

    Args:
        ids, rows: (tokens of the text,), without special tokens.
        special_ids: of [CLS] and [SEP].
        size, stride: see `cut_windows`.
    """
    cls, sep = (np.array([token]) for token in special_ids)
    windows = []
    for start, end, kept_start, kept_end in cut_windows(len(ids), size, stride):
        own = np.full(end - start + 2, _NO_ROW)
        own[1 + kept_start - start : 1 + kept_end - start] = rows[kept_start:kept_end]
        windows.append(Window(np.concatenate([cls, ids[start:end], sep]), own, start))
    return windows


def choose_tokens(windows: Sequence[Window], row: int, mode: str, unpooled: int) -> None:
    """Leaves in the windows of a text those tokens that contribute to its vector.

    Args:
        row: of the text.
        unpooled: number of tokens at the start of the text, [CLS] included, that are left out.
    """
    first, last = windows[0].rows, windows[-1].rows
    if mode in ("cls", "pooler"):
        for window in windows:
            window.rows[:] = _NO_ROW
            window.rows[unpooled if window.start == 0 and len(window.rows) > unpooled else 0] = row
    elif mode == "lasttoken":
        for window in windows:
            window.rows[:] = _NO_ROW
        last[-1] = row
    else:
        first[0] = last[-1] = row
        first[:unpooled] = _NO_ROW


@torch.inference_mode()
def pool(
    model: MyBertModel,
    windows: Sequence[Window],
    count: int,
    mode: str,
    layers: list[int],
    max_tokens_per_batch: int,
    progress: Callable[[int], object] | None = None,
) -> Tensor:
    """(count, H) float32: the mean, maximum, … over the tokens that contribute to each row.

    Args:
        mode: a mode of sentence-transformers, or `pooler`.
        layers: those whose hidden states are averaged; 0 is the embeddings, -1 the last layer.
        progress: called after each batch with the number of texts that began in it.
    """
    device, hidden = model.device, model.config.hidden_size
    pooled = torch.full((count, hidden), float("-inf") if mode == "max" else 0.0, device=device)
    totals = torch.zeros(count, 1, device=device)
    for batch in batches(windows, lambda window: len(window.ids), max_tokens_per_batch):
        vectors, rows, positions = _vectors(model, batch, layers, mode == "pooler")
        if mode == "max":
            pooled.scatter_reduce_(0, rows[:, None].expand_as(vectors), vectors, "amax")
        else:
            weights = (positions + 1.0 if mode == "weightedmean" else torch.ones_like(positions)).float()[:, None]
            pooled.index_add_(0, rows, vectors * weights if mode == "weightedmean" else vectors)
            totals.index_add_(0, rows, weights)
        if progress:
            progress(sum(window.start == 0 for window in batch))
    if mode == "max":
        return pooled
    return pooled / (totals.sqrt() if mode == "mean_sqrt_len_tokens" else totals)


def _vectors(
    model: MyBertModel, batch: Sequence[Window], layers: list[int], pooler: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states of the tokens that contribute to a row, or pooler outputs.

    Returns:
        (K, H) float32; (K,) their rows; (K,) their positions in the text.
    """
    inputs = packed_inputs([window.ids for window in batch], model.device)
    last = all(layer in (-1, model.config.num_hidden_layers) for layer in layers)
    output = model(**inputs, output_hidden_states=False if last else layers)
    owners = np.concatenate([window.rows for window in batch])
    places = np.concatenate([window.start + np.arange(len(window.ids)) for window in batch])
    kept = np.flatnonzero(owners != _NO_ROW)
    rows, positions = (torch.from_numpy(of_tokens[kept]).to(model.device) for of_tokens in (owners, places))
    if pooler:
        return output.pooler_output.float(), rows, positions
    states = [output.last_hidden_state] if last else [output.hidden_states[i] for i in layers]
    if len(kept) < output.last_hidden_state.shape[1]:
        indices = torch.from_numpy(kept).to(model.device)
        states = [state[:, indices] for state in states]
    means = states[0] if len(states) == 1 else torch.stack([state.float() for state in states]).mean(0)
    return means[0].float(), rows, positions
