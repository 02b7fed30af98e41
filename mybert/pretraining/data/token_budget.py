"""Batches with a nearly constant number of real tokens.

The order of an epoch is cut where its cumulative number of tokens passes equally spaced marks. Every epoch has the
same number of batches, as the schedule and resuming need; each example is in one batch; the batches depend only on
seed and epoch.
"""

from collections.abc import Iterator

import datasets
import numpy as np
import pyarrow.compute as pc
from torch.utils.data import Sampler

from mybert.common.errors import UserError
from mybert.pretraining.data.batching import Key
from mybert.pretraining.data.counter_based_random import permutation

_WINDOW = 64
"""Number of batches that `by_length` sorts together: enough for similar lengths, few enough for a random order."""


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

    def epoch(self, epoch: int) -> list[np.ndarray]:
        """The example indices of each batch of an epoch, none empty."""
        order = permutation(len(self.lengths), self.seed, epoch)
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


class TokenBudgetBatchSampler(Sampler[list[Key]]):
    """Batches of keys; from a given batch on, of a second corpus that is appended to the first.

    Args:
        first, second: the cut corpora; the examples of the second are numbered after those of the first.

    Attributes:
        epoch: the epoch of the next iteration, counted in batches of the first corpus.
        switch: number of the first batch of the second corpus, counted over all epochs.
    """

    def __init__(self, first: TokenBudget, second: TokenBudget | None = None):
        self.first, self.second, self.offset = first, second, len(first.lengths)
        self.epoch = 0
        self.switch: int | None = None

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.first.batches

    def __iter__(self) -> Iterator[list[Key]]:
        start, stop = self.epoch * len(self), (self.epoch + 1) * len(self)
        switch = stop if self.switch is None else min(max(self.switch, start), stop)
        if start < switch:
            yield from self._keys(self.first, self.epoch, slice(0, switch - start), 0)
        place, second = switch, self.second
        while place < stop:
            assert second is not None and self.switch is not None  # otherwise `switch` is `stop`
            epoch, skipped = divmod(place - self.switch, second.batches)
            count = min(stop - place, second.batches - skipped)
            yield from self._keys(second, epoch, slice(skipped, skipped + count), self.offset)
            place += count

    @staticmethod
    def _keys(cuts: TokenBudget, epoch: int, chosen: slice, offset: int) -> Iterator[list[Key]]:
        for batch in cuts.epoch(epoch)[chosen]:
            yield [(epoch, index) for index in (batch + offset).tolist()]


def example_lengths(corpus: datasets.Dataset) -> np.ndarray:
    """Number of tokens of each example, (N,) int64, without reading the tokens."""
    tables = corpus.select_columns("input_ids").with_format("arrow").iter(batch_size=100_000)
    return np.concatenate([pc.list_value_length(table["input_ids"]).to_numpy() for table in tables]).astype(np.int64)
