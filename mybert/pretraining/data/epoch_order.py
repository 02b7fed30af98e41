"""Every example of a corpus once per epoch: one by one, or in batches with a nearly constant number of real tokens.

A token budget cuts the order of an epoch where its cumulative number of tokens passes equally spaced marks. Every
epoch has the same number of batches, as the schedule and resuming need; each example is in one batch; the batches
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

_WINDOW = 64
"""Number of batches that `by_length` sorts together: enough for similar lengths, few enough for a random order."""
_PART = 65536


class Shuffled:
    """The examples of a corpus in an order that depends on seed and epoch only."""

    def __init__(self, examples: int, seed: int):
        self.examples, self.seed = examples, seed

    def __len__(self) -> int:
        return self.examples

    def units(self, epoch: int, chosen: slice, offset: int) -> Iterator[Key]:
        """The keys of the `chosen` examples of an epoch; the corpus is numbered from `offset` on."""
        order = permutation(self.examples, self.seed, epoch)[chosen] + offset
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
        by_length: group examples of similar length.

    Attributes:
        batches: number of batches in an epoch.
    """

    def __init__(self, lengths: np.ndarray, max_tokens: int, seed: int, multiple: int = 1, by_length: bool = False):
        longest, total = int(lengths.max()), int(lengths.sum())
        if max_tokens < longest:
            raise UserError(f"max_tokens_per_batch is {max_tokens}, but the longest example has {longest} tokens")
        needed = -(-total // (max_tokens - longest + 1))
        self.batches = -(-needed // multiple) * multiple
        if self.batches * longest > total:
            raise UserError(
                f"the corpus ({len(lengths)} examples, {total} tokens) cannot be cut into {self.batches} batches "
                f"of at most {max_tokens} tokens; choose another --max-tokens-per-batch"
            )
        self.lengths, self.seed, self.by_length = lengths, seed, by_length
        self.examples = len(lengths)

    def __len__(self) -> int:
        return self.batches

    def epoch(self, epoch: int) -> list[np.ndarray]:
        """The example indices of each batch of an epoch, none empty."""
        order = permutation(self.examples, self.seed, epoch)
        if self.by_length:
            windows = self._cut(order, -(-self.batches // _WINDOW))
            order = np.concatenate([window[np.argsort(self.lengths[window], kind="stable")] for window in windows])
        batches = self._cut(order, self.batches)
        if self.by_length:  # otherwise every window would go from short to long
            batches = [batches[i] for i in permutation(self.batches, self.seed, epoch)]
        return batches

    def _cut(self, order: np.ndarray, parts: int) -> list[np.ndarray]:
        ends = self.lengths[order].cumsum()
        marks = ends[-1] * np.arange(1, parts) / parts
        return np.split(order, np.searchsorted(ends, marks, side="right"))

    def units(self, epoch: int, chosen: slice, offset: int) -> Iterator[list[Key]]:
        """The keys of the `chosen` batches of an epoch; the corpus is numbered from `offset` on."""
        for batch in self.epoch(epoch)[chosen]:
            yield [(epoch, index) for index in (batch + offset).tolist()]


class EpochSampler(Sampler[Any]):
    """Every unit of a corpus once per epoch: each example of `Shuffled`, or each batch of a `TokenBudget`.

    From a given position of the run on, it yields units of a second corpus that is appended to the first. Epochs
    keep their length, so steps, schedule and resuming are not affected.

    Args:
        first, second: the corpora; the examples of the second are numbered after those of the first.
        multiple: fill an epoch with examples without labels to a multiple of this (processes × batch size).

    Attributes:
        epoch: the epoch of the next iteration.
        switch: position of the first unit of the second corpus, counted over all epochs.
        skip: number of units at the start of the next iteration that are None, since a resumed run discards them and
            computing millions of them takes long.
    """

    def __init__(self, first: Shuffled | TokenBudget, *second: Shuffled | TokenBudget, multiple: int = 1):
        self.first, self.second = first, second[0] if second else None
        self.fillers = -len(first) % multiple
        self.epoch = self.skip = 0
        self.switch: int | None = None

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.first) + self.fillers

    def __iter__(self) -> Iterator[Any]:
        yield from repeat(None, self.skip)
        yield from self.units(self.epoch, self.skip)

    def units(self, epoch: int, number: int = 0) -> Iterator[Any]:
        """The units of an epoch from `number` on."""
        start, stop = epoch * len(self.first) + number, (epoch + 1) * len(self.first)
        ends = stop if self.switch is None else self.switch  # of the first corpus
        switch = min(max(ends, start), stop)
        yield from _endless(self.first, start, switch, 0)
        if self.second is not None:
            yield from _endless(self.second, switch - ends, stop - ends, self.first.examples)
        yield from repeat((FILLER, 0), self.fillers)


def _endless(corpus: Shuffled | TokenBudget, start: int, stop: int, offset: int) -> Iterator[Any]:
    """Units at the positions [start, stop) of endless epochs over a corpus."""
    while start < stop:
        epoch, place = divmod(start, len(corpus))
        count = min(stop - start, len(corpus) - place)
        yield from corpus.units(epoch, slice(place, place + count), offset)
        start += count
