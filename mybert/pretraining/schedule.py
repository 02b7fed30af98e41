"""Sequence length, tokens per batch and masking share as functions of the share of the run that is done."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from mybert.common.errors import UserError


@dataclass(frozen=True)
class Schedule:
    """
    Attributes:
        lengths: pairs of a sequence length and the share of the run at which it ends; the last share is 1.
        tokens: tokens per batch at the start and at the end; linear in between.
        masked: share of masked tokens at the start and at the end; linear in between.
    """

    lengths: tuple[tuple[int, float], ...]
    tokens: tuple[float, float]
    masked: tuple[float, float]

    def length(self, share: float) -> int:
        return next((length for length, end in self.lengths if share < end), self.lengths[-1][0])

    def tokens_per_batch(self, share: float) -> float:
        return _between(self.tokens, share)

    def mlm_probability(self, share: float) -> float:
        return _between(self.masked, share)


def _between(ends: tuple[float, float], share: float) -> float:
    return ends[0] + (ends[1] - ends[0]) * share


def parse_lengths(words: Sequence[str]) -> tuple[tuple[int, float], ...]:
    """Reads `32:0.3 64:0.6 128`: 32 tokens until 30% of the run, 64 until 60%, then 128."""
    try:
        pairs = [word.split(":") for word in words]
        lengths = tuple((int(length), float(*share) if share else 1.0) for length, *share in pairs)
        ends = [0.0, *(end for _, end in lengths)]
        rises = all(before < after for before, after in pairwise(ends))
        if not rises or ends[-1] != 1.0 or min(length for length, _ in lengths) < 8:
            raise ValueError
    except (ValueError, TypeError) as error:
        raise UserError(
            "--length-schedule: expected lengths of 8 tokens or more and rising shares of the run at which they end, "
            f"such as `32:0.3 64:0.6 128`, found {' '.join(map(str, words))!r}"
        ) from error
    return lengths
