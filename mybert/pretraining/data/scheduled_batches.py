"""Batches whose length, number of sequences and masking share follow a schedule."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from typing import Any

import datasets
import numpy as np
from torch.utils.data import Sampler

from mybert.pretraining.data.batching import ExampleDataset, Examples, Key
from mybert.pretraining.data.counter_based_random import WINDOWS, RandomWords, permutation
from mybert.pretraining.data.random_windows import cut_randomly
from mybert.pretraining.schedule import Schedule
from mybert.training.run_progress import ClockProgress, StepProgress


@dataclass(frozen=True)
class Draw:
    """The examples of a batch from `position` on, counted over all epochs, and their masking."""

    position: int
    count: int
    length: int
    mlm_probability: float


Batch = tuple[list[Key], Draw]
"""The keys of the examples of a batch, and how they are cut and masked."""


class ScheduledDataset(ExampleDataset):
    """A corpus, read by batches of `ScheduledSampler`; `seed` is that of the windows."""

    def __init__(self, corpus: datasets.Dataset, seed: int):
        super().__init__(corpus)
        self._random = RandomWords(seed, WINDOWS)

    def __getitems__(self, batch: Batch) -> Examples:  # type: ignore[override]  # of a batch, not of keys
        keys, draw = batch
        examples = cut_randomly(super().__getitems__(keys), draw.length, self._random)
        return dataclasses.replace(examples, mlm_probability=draw.mlm_probability)


class ScheduledSampler(Sampler[Batch]):
    """Every example once per epoch, in the order of `EpochSampler`, in batches that follow a schedule.

    With a clock, a batch depends on when it is drawn. Batches are drawn before they are trained on, so the draws since
    the last finished step are part of the state: a resumed run repeats them and continues where they end.

    Args:
        schedule: length, tokens and masking share by the share of the run.
        lengths: (N,) tokens of each example.
        seed: of the order.
        batches: number of batches of the run, over all processes.
        per_step: number of batches of a step, over all processes and accumulated batches.
    """

    def __init__(
        self,
        schedule: Schedule,
        progress: StepProgress | ClockProgress,
        lengths: np.ndarray,
        seed: int,
        batches: int,
        per_step: int,
    ):
        self.schedule, self.progress, self.seed = schedule, progress, seed
        self.lengths, self.batches, self.per_step = lengths, batches, per_step
        self.mean_length = lru_cache(lambda length: float(np.minimum(lengths, length).mean()))
        self._order = lru_cache(2)(lambda epoch: permutation(len(lengths), seed, epoch))
        self._done = self._position = 0
        self._draws: dict[int, Draw] = {}

    def set_epoch(self, epoch: int) -> None:
        """The whole run is one iteration; the order follows from the position."""

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[Any]:
        yield from repeat(None, self._done)  # a resumed run discards these
        for number in range(self._done, self.batches):
            if number not in self._draws:
                self._draws[number] = self._draw(number)
            yield self.keys(self._draws[number]), self._draws[number]

    def _draw(self, number: int) -> Draw:
        share = self.progress.share(number // self.per_step)
        length = self.schedule.length(share)
        count = max(1, round(self.schedule.tokens_per_batch(share) / self.mean_length(length)))
        draw = Draw(self._position, count, length, round(self.schedule.mlm_probability(share), 6))
        self._position += count
        return draw

    def keys(self, draw: Draw) -> list[Key]:
        places = [divmod(draw.position + i, len(self.lengths)) for i in range(draw.count)]
        return [(epoch, int(self._order(epoch)[place])) for epoch, place in places]

    def drawn(self, step: int) -> list[Draw]:
        """The batches of step number `step`, counted from 0; empty if they have been forgotten."""
        first = step * self.per_step
        return [self._draws[n] for n in range(first, first + self.per_step) if n in self._draws]

    def position(self, step: int) -> int:
        """The number of examples that were read before step number `step`, counted from 0."""
        drawn = self.drawn(step)
        return drawn[0].position if drawn else self._position

    def forget(self, step: int) -> None:
        """Forgets the batches of the steps before number `step`."""
        for number in [number for number in self._draws if number < step * self.per_step]:
            del self._draws[number]

    def state_dict(self, step: int) -> dict[str, Any]:
        """The state for a run resumed after `step` steps, as JSON."""
        ahead = [dataclasses.astuple(draw) for n, draw in sorted(self._draws.items()) if n >= step * self.per_step]
        return {"position": self._position, "draws": ahead}

    def load_state_dict(self, state: dict[str, Any], step: int) -> None:
        self._done, self._position = step * self.per_step, state["position"]
        self._draws = {self._done + n: Draw(*draw) for n, draw in enumerate(state["draws"])}
