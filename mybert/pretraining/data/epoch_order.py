"""Every example of a corpus once per epoch: one by one, or in batches with a nearly constant number of real tokens.

A token budget cuts the order of an epoch where its cumulative number of tokens passes equally spaced marks. Every
epoch has the same number of batches, as the learning rate and resuming need; each example is in one batch; the batches
depend only on seed and epoch.
"""

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import numpy as np
from torch.utils.data import Sampler

from mybert.common.errors import UserError
from mybert.pretraining.data.batching import FILLER, Key
from mybert.pretraining.data.counter_based_random import permutation

_PART = 65536


class Shuffled:
    """The examples of a corpus in an order that depends on seed and epoch only."""

    def __init__(self, examples: int, seed: int):
        self.examples, self.seed = examples, seed

    def __len__(self) -> int:
        return self.examples

    def units(self, epoch: int, skip: int) -> Iterator[Key]:
        """The keys of the examples of an epoch, without the first ones."""
        order = permutation(self.examples, self.seed, epoch)[skip:]
        for part in np.array_split(order, len(order) // _PART + 1):  # a list of all takes 4 times the memory
            yield from ((epoch, index) for index in part.tolist())


class TokenBudget:
    """Cuts a corpus into batches of at most `max_tokens` real tokens.

    The largest and the smallest batch differ by less than two sequences of the greatest length.

    Args:
        lengths: (N,) real tokens of each example.
        max_tokens: maximum number of real tokens in a batch, at least that of the longest example.
        seed: of the order.
        multiple: the number of batches is a multiple of this (processes).

    Attributes:
        batches: number of batches in an epoch.
    """

    def __init__(self, lengths: np.ndarray, max_tokens: int, seed: int, multiple: int = 1):
        longest, total = int(lengths.max()), int(lengths.sum())
        if max_tokens < longest:
            raise UserError(
                f"--max-tokens-per-batch: expected {longest} or more, the length of the longest example, found "
                f"{max_tokens}"
            )
        needed = -(-total // (max_tokens - longest + 1))
        self.batches = -(-needed // multiple) * multiple
        if self.batches * longest > total:
            raise UserError(
                f"the corpus ({len(lengths)} examples, {total} tokens) cannot be cut into {self.batches} batches "
                f"of at most {max_tokens} tokens; choose another --max-tokens-per-batch"
            )
        self.lengths, self.seed = lengths, seed

    def __len__(self) -> int:
        return self.batches

    def epoch(self, epoch: int) -> list[np.ndarray]:
        """The example indices of each batch of an epoch, none empty."""
        order = permutation(len(self.lengths), self.seed, epoch)
        ends = self.lengths[order].cumsum()
        marks = ends[-1] * np.arange(1, self.batches) / self.batches
        return np.split(order, np.searchsorted(ends, marks, side="right"))

    def units(self, epoch: int, skip: int) -> Iterator[list[Key]]:
        """The keys of the batches of an epoch, without the first ones."""
        for batch in self.epoch(epoch)[skip:]:
            yield [(epoch, index) for index in batch.tolist()]


class EpochSampler(Sampler[Any]):
    """Every unit of a corpus once per epoch: each example of `Shuffled`, or each batch of a `TokenBudget`.

    Args:
        multiple: fill an epoch with examples without labels to a multiple of this (processes × batch size).

    Attributes:
        epoch: the epoch of the next iteration.
        skip: number of units at the start of the next iteration that are None, since a resumed run discards them and
            computing millions of them takes long.
    """

    def __init__(self, corpus: Shuffled | TokenBudget, multiple: int = 1):
        self.corpus, self.fillers = corpus, -len(corpus) % multiple
        self.epoch = self.skip = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.corpus) + self.fillers

    def __iter__(self) -> Iterator[Any]:
        yield from repeat(None, self.skip)
        yield from self.corpus.units(self.epoch, self.skip)
        yield from repeat((FILLER, 0), self.fillers)
