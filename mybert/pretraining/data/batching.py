"""Stored examples → batches: dataset and collator.

A sampler yields keys (epoch, index), so that loader workers have no state: what a worker returns depends on the keys
only. Shapes: `N` sequences, `T` tokens of all sequences.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import datasets
import numpy as np
import pyarrow.compute as pc
import torch
from torch.utils.data import Dataset

from mybert.pretraining.data.masking import IGNORED, Masker

EVALUATION = 2**62
"""The epoch of evaluation examples, whose masks never change."""
FILLER = EVALUATION + 1
"""The epoch of an example without labels, which fills the last batch so that all processes have equal numbers."""
# The CPU compiles bfloat16 products for each new number of rows, so the number of labelled positions is rounded up if
# it is at least 8 times the unit. The model rounds the number of all tokens in the same way.
_PLACES_MULTIPLE, _WORTH_MORE_PLACES = 16, 8

Key = tuple[int, int]


@dataclass(frozen=True)
class Examples:
    """Some examples, concatenated.

    Attributes:
        input_ids, token_type_ids: (T,).
        lengths: (N,).
        next_sentence_label: (N,), None without pairs.
        epochs, indices: (N,) their keys.
        mlm_probability: share of masked tokens; None for that of the masker.
    """

    input_ids: np.ndarray
    token_type_ids: np.ndarray
    lengths: np.ndarray
    next_sentence_label: np.ndarray | None
    epochs: np.ndarray
    indices: np.ndarray
    mlm_probability: float | None = None


class ExampleDataset(Dataset[Examples]):
    """A corpus, read from Arrow by lists of keys.

    Args:
        corpus: columns `input_ids`, `token_type_ids` and, with pairs, `next_sentence_label`.
    """

    def __init__(self, corpus: datasets.Dataset):
        self.has_pairs = "next_sentence_label" in corpus.column_names
        columns = ["input_ids", "token_type_ids", "next_sentence_label"][: 3 if self.has_pairs else 2]
        self.corpus = corpus.select_columns(columns).with_format("arrow")

    def __len__(self) -> int:
        return len(self.corpus)

    def __getitems__(self, keys: Sequence[Key]) -> Examples:
        """The examples of a batch of keys; called by torch's loader."""
        epochs, indices = np.array(keys, dtype=np.int64).reshape(-1, 2).T
        table = self.corpus[indices.tolist()].combine_chunks()
        columns = {name: table[name].chunk(0) for name in table.column_names}
        pairs = columns["next_sentence_label"].to_numpy() if self.has_pairs else None
        return Examples(
            input_ids=columns["input_ids"].flatten().to_numpy(),
            token_type_ids=columns["token_type_ids"].flatten().to_numpy(),
            lengths=columns["input_ids"].value_lengths().to_numpy().astype(np.int64),
            next_sentence_label=pairs,
            epochs=epochs,
            indices=indices,
        )


def example_lengths(corpus: datasets.Dataset) -> np.ndarray:
    """Number of tokens of each example, (N,) int64, without reading the tokens."""
    tables = corpus.select_columns("input_ids").with_format("arrow").iter(batch_size=100_000)
    return np.concatenate([pc.list_value_length(table["input_ids"]).to_numpy() for table in tables]).astype(np.int64)


class HeldOutDataset(ExampleDataset):
    """Held-out examples, read by their indices, whose masks never change.

    Args:
        multiple: add examples without labels up to a multiple of this number (processes × batch size).
    """

    def __init__(self, corpus: datasets.Dataset, multiple: int = 1):
        super().__init__(corpus)
        self._length = len(corpus) + -len(corpus) % multiple

    def __len__(self) -> int:
        return self._length

    def __getitems__(self, indices: Sequence[int]) -> Examples:  # type: ignore[override]  # of places, not of keys
        known = len(self.corpus)
        return super().__getitems__([(EVALUATION, i) if i < known else (FILLER, 0) for i in indices])


@dataclass(frozen=True)
class PretrainingCollator:
    """Masks examples and puts them end to end, with the arguments of transformers' padding-free convention."""

    masker: Masker

    def __call__(self, examples: Examples) -> dict[str, torch.Tensor | int]:
        """
        Returns:
            `input_ids`, `token_type_ids`, `position_ids` (restarting), `labels` (1, T); `cu_seq_lens_q`,
            `cu_seq_lens_k` (N + 1,) int32; `max_length_q`, `max_length_k` int; `masked_lm_positions`, positions of all
            labels and, if these are many, some positions without labels; `next_sentence_label` (N,), with pairs.
        """
        masked, labels = self.masker(
            examples.input_ids, examples.lengths, examples.epochs, examples.indices, examples.mlm_probability
        )
        filler = examples.epochs == FILLER
        labels[np.repeat(filler, examples.lengths)] = IGNORED
        batch = _packed(masked, examples.token_type_ids.astype(np.int64), labels, examples.lengths)
        batch["masked_lm_positions"] = _positions(batch["labels"].flatten())
        if examples.next_sentence_label is not None:
            pairs = np.where(filler, IGNORED, examples.next_sentence_label).astype(np.int64)
            batch["next_sentence_label"] = torch.from_numpy(pairs)
        return batch


def _positions(labels: torch.Tensor) -> torch.Tensor:
    """Positions of labels, rounded up with evenly spread others, so that no sequence gets many more queries."""
    places, others = (condition.nonzero().squeeze(1) for condition in (labels != IGNORED, labels == IGNORED))
    many = len(places) >= _WORTH_MORE_PLACES * _PLACES_MULTIPLE
    missing = -len(places) % _PLACES_MULTIPLE if many else 0
    spread = torch.arange(missing) * len(others) // max(missing, 1)
    return torch.cat([places, others[spread]])


def _packed(ids: np.ndarray, token_types: np.ndarray, labels: np.ndarray, lengths: np.ndarray) -> dict[str, Any]:
    ends = np.cumsum(lengths)
    cu_seq_lens = torch.from_numpy(np.concatenate([[0], ends]).astype(np.int32))
    longest = int(lengths.max())
    positions = np.arange(len(ids)) - np.repeat(ends - lengths, lengths)
    return {
        "input_ids": torch.from_numpy(ids)[None],
        "token_type_ids": torch.from_numpy(token_types)[None],
        "position_ids": torch.from_numpy(positions)[None],
        "labels": torch.from_numpy(labels)[None],
        "cu_seq_lens_q": cu_seq_lens,
        "cu_seq_lens_k": cu_seq_lens,
        "max_length_q": longest,
        "max_length_k": longest,
    }
