"""Batches of nearly constant real tokens, whatever the lengths of the sequences.

An epoch's order is cut where its running number of tokens passes equal marks. So every epoch has the same number of
batches, which the schedule and resuming count in, each example stands in exactly one of them, and which ones stand
together is a pure function of (seed, epoch).
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
"""Batches among which `by_length` sorts: enough for even lengths, few enough to keep an epoch's order random."""


class TokenBudget:
    """The cuts of a corpus into batches of at most `max_tokens` real tokens.

    The fullest and the emptiest batch differ by less than two sequences of the greatest length.

    Args:
        lengths: (N,) real tokens of each example.
        max_tokens: most real tokens in a batch, at least the longest example's.
        seed: of the order.
        multiple: the number of batches is one of this (processes).
        by_length: put examples of like length together.

    Attributes:
        batches: in an epoch.

    Raises:
        UserError: an example is longer than the budget, or there are fewer examples than batches.
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
        """The indices of each batch of one pass, none empty."""
        order = permutation(len(self.lengths), self.seed, epoch)
        if self.by_length:
            order = np.concatenate([self._sorted(window) for window in self._cut(order, -(-self.batches // _WINDOW))])
        batches = self._cut(order, self.batches)
        if self.by_length:  # or every window would go from short to long
            batches = [batches[i] for i in permutation(self.batches, self.seed, epoch)]
        return batches

    def _cut(self, order: np.ndarray, parts: int) -> list[np.ndarray]:
        ends = self.lengths[order].cumsum()
        marks = ends[-1] * np.arange(1, parts) / parts
        return np.split(order, np.searchsorted(ends, marks, side="right"))

    def _sorted(self, window: np.ndarray) -> np.ndarray:
        return window[np.argsort(self.lengths[window], kind="stable")]


class TokenBudgetBatchSampler(Sampler[list[Key]]):
    """Batches of keys, from a second corpus that stands behind the first from a given batch of the run on.

    Args:
        first, second: the cuts of each; the second's examples are numbered on.

    Attributes:
        epoch: the pass over the first corpus' batches that the next iteration makes.
        switch: number, counted over all epochs, of the first batch of the second corpus.
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
        place = switch
        while place < stop:
            epoch, skipped = divmod(place - self.switch, self.second.batches)
            count = min(stop - place, self.second.batches - skipped)
            yield from self._keys(self.second, epoch, slice(skipped, skipped + count), self.offset)
            place += count

    @staticmethod
    def _keys(cuts: TokenBudget, epoch: int, chosen: slice, offset: int) -> Iterator[list[Key]]:
        for batch in cuts.epoch(epoch)[chosen]:
            yield [(epoch, index) for index in (batch + offset).tolist()]


def example_lengths(corpus: datasets.Dataset) -> np.ndarray:
    """Tokens of each example, (N,) int64, without reading the tokens."""
    tables = corpus.select_columns("input_ids").with_format("arrow").iter(batch_size=100_000)
    return np.concatenate([pc.list_value_length(table["input_ids"]).to_numpy() for table in tables]).astype(np.int64)
