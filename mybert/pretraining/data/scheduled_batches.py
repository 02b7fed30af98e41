"""A schedule of sequence length, tokens per batch and masking share, and the batches that follow it."""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from typing import Any

import datasets
import numpy as np
from torch.utils.data import Sampler

from mybert.pretraining.data.batching import ExampleDataset, Examples, Key
from mybert.pretraining.data.counter_based_random import WINDOWS, RandomStreams, permutation
from mybert.pretraining.settings import PretrainSettings, parse_lengths


@dataclass(frozen=True)
class Schedule:
    """Sequence length, tokens per batch and masking share as functions of the share of the run that is done.

    Attributes:
        lengths: pairs of a sequence length and the share of the run at which it ends; the last share is 1.
        tokens: tokens per batch at the start and at the end; linear in between.
        mlm_probabilities: share of masked tokens at the start and at the end; linear in between.
    """

    lengths: tuple[tuple[int, float], ...]
    tokens: tuple[float, float]
    mlm_probabilities: tuple[float, float]

    @classmethod
    def of(cls, settings: PretrainSettings, longest: int, tokens: float) -> "Schedule":
        """`longest`: tokens of the longest example; `tokens`: of a batch without `max_tokens_per_batch`."""
        most = settings.max_tokens_per_batch or tokens
        lengths = parse_lengths(settings.length_schedule) if settings.length_schedule else ((longest, 1.0),)
        masked = settings.mlm_probability
        return cls(
            lengths=lengths,
            tokens=(settings.start_tokens_per_batch or most, most),
            mlm_probabilities=(settings.start_mlm_probability or masked, masked),
        )

    def length(self, share: float) -> int:
        return next((length for length, end in self.lengths if share < end), self.lengths[-1][0])

    def tokens_per_batch(self, share: float) -> float:
        return _between(self.tokens, share)

    def mlm_probability(self, share: float) -> float:
        return _between(self.mlm_probabilities, share)


def _between(ends: tuple[float, float], share: float) -> float:
    return ends[0] + (ends[1] - ends[0]) * share


@dataclass(frozen=True)
class Draw:
    """The examples of a batch from `position` on, counted over all epochs, and their masking."""

    position: int
    count: int
    length: int
    mlm_probability: float


Batch = tuple[list[Key], Draw]
"""The keys of the examples of a batch, and how they are cut and masked."""
_LEAST = 2
"""Minimum tokens of each segment in a window of a pair, if the segment has as many."""


class ScheduledDataset(ExampleDataset):
    """A corpus, read by batches of `ScheduledSampler`; `seed` is that of the windows."""

    def __init__(self, corpus: datasets.Dataset, seed: int):
        super().__init__(corpus)
        self._random = RandomStreams(seed, WINDOWS)

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
        share: a function of the number of finished steps.
        lengths: (N,) tokens of each example.
        seed: of the order.
        batches: number of batches of the run, over all processes.
        per_step: number of batches of a step, over all processes and accumulated batches.
    """

    def __init__(
        self,
        schedule: Schedule,
        share: Callable[[int], float],
        lengths: np.ndarray,
        seed: int,
        batches: int,
        per_step: int,
    ):
        self.schedule, self.share, self.seed = schedule, share, seed
        self.lengths, self.batches, self.per_step = lengths, batches, per_step
        self.mean_length = lru_cache(lambda length: float(np.minimum(lengths, length).mean()))
        self._order = lru_cache(2)(lambda epoch: permutation(len(lengths), seed, epoch))
        self._done = self._position = 0
        self._draws: dict[int, Draw] = {}

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[Any]:
        yield from repeat(None, self._done)  # a resumed run discards these
        for number in range(self._done, self.batches):
            if number not in self._draws:
                self._draws[number] = self._draw(number)
            yield self.keys(self._draws[number]), self._draws[number]

    def _draw(self, number: int) -> Draw:
        share = self.share(number // self.per_step)
        length = self.schedule.length(share)
        count = max(1, round(self.schedule.tokens_per_batch(share) / self.mean_length(length)))
        draw = Draw(self._position, count, length, round(self.schedule.mlm_probability(share), 6))
        self._position += count
        return draw

    def keys(self, draw: Draw) -> list[Key]:
        places = [divmod(draw.position + i, len(self.lengths)) for i in range(draw.count)]
        return [(epoch, int(self._order(epoch)[place])) for epoch, place in places]

    def position(self, step: int) -> int:
        """The number of examples that were read before step number `step`, counted from 0."""
        draw = self._draws.get(step * self.per_step)
        return self._position if draw is None else draw.position

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


def cut_randomly(examples: Examples, length: int, random: RandomStreams) -> Examples:
    """Cuts the examples that are longer than `length` tokens to a contiguous window of their text.

    A window of a pair always contains the end of A and the start of B. So the next-sentence label holds, and the model
    learns from pairs at every length. The window of a single segment can be anywhere.

    Args:
        examples: `N` sequences with `T` tokens in all.
        length: tokens of a sequence, special tokens included; at least 8.
        random: the streams of the purpose `WINDOWS`.

    Returns:
        The same sequences, with at most `length` tokens each.
    """
    lengths = examples.lengths
    count = len(lengths)
    if lengths.max(initial=0) <= length:
        return examples
    rows = np.repeat(np.arange(count), lengths)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    second = examples.token_type_ids == 1
    size_b = np.maximum(np.bincount(rows, weights=second, minlength=count).astype(np.int64) - 1, 0)
    is_pair = size_b > 0
    specials = np.where(is_pair, 3, 2)
    size_a = lengths - size_b - specials
    kept = np.minimum(lengths, length) - specials

    least_a, least_b = np.where(is_pair, np.minimum(size_a, _LEAST), kept), np.minimum(size_b, _LEAST)
    first = np.where(is_pair, np.maximum(size_a + least_b - kept, 0), 0)
    last = np.minimum(size_a - least_a, size_a + size_b - kept)
    numbers = random.ragged(np.ones(count, dtype=np.int64), examples.epochs, examples.indices)
    start = first + (numbers % (last - first + 1).astype(np.uint64)).astype(np.int64)

    content = place - 1 - second  # position in A followed by B
    is_special = (place == 0) | (place == (size_a + 1)[rows]) | (place == (lengths - 1)[rows])
    keep = is_special | ((content >= start[rows]) & (content < (start + kept)[rows]))
    return dataclasses.replace(
        examples,
        input_ids=examples.input_ids[keep],
        token_type_ids=examples.token_type_ids[keep],
        lengths=np.minimum(lengths, length),
    )
