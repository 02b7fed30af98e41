"""Counter-based random numbers: pure functions of seed, epoch and index, independent of earlier draws.

Philox (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") is indexed by a key and a counter, so worker
count, process count and resuming cannot change a draw. Only its raw numbers are used: numpy promises the bit stream of
a bit generator for ever, but not what the methods of `numpy.random.Generator` make of it.
"""

from collections.abc import Iterable

import numpy as np

MASKS, ORDER, WINDOWS = 1, 2, 3
"""Purposes; part of the key, so that two purposes never share a stream."""


class RandomStreams:
    """The streams of a seed in [0, 2**64) and a purpose (`MASKS`, `ORDER` or `WINDOWS`)."""

    def __init__(self, seed: int, purpose: int):
        self._bits = np.random.Philox(key=np.array([seed, purpose], dtype=np.uint64))
        self._state = self._bits.state

    def fill(self, out: np.ndarray, epoch: int, index: int = 0) -> None:
        """Fills `out` (n,), uint64, with the first n numbers of the stream (epoch, index)."""
        self._state["state"]["counter"][:] = (0, 0, epoch, index)
        self._state["buffer_pos"] = 4  # discard the rest of an earlier stream
        self._bits.state = self._state
        out[:] = self._bits.random_raw(len(out))

    def ragged(self, lengths: Iterable[int], epochs: Iterable[int], indices: Iterable[int]) -> np.ndarray:
        """Streams of the given lengths end to end, (sum of lengths,), uint64."""
        lengths = [int(length) for length in lengths]
        numbers = np.empty(sum(lengths), dtype=np.uint64)
        start = 0
        for length, epoch, index in zip(lengths, epochs, indices, strict=True):
            self.fill(numbers[start : start + length], int(epoch), int(index))
            start += length
        return numbers


def permutation(length: int, seed: int, epoch: int) -> np.ndarray:
    """A random order of `length` examples, (length,) int64, by sorting a random number of each."""
    numbers = np.empty(length, dtype=np.uint64)
    RandomStreams(seed, ORDER).fill(numbers, epoch)
    return np.argsort(numbers, kind="stable")
