"""The clock of a run with a time budget, by which its schedules go."""

import math
import time
from typing import Any

import psutil

_WINDOW = 10.0
"""Seconds over which the slowness is measured."""


class ClockProgress:
    """Progress by the training time of a time budget, of which its schedules are functions.

    The budget also includes the time before the first step, and a reserve for evaluation and saving after the last
    step. The share changes only in `update`, so all readers between two updates get the same value.

    Args:
        budget: seconds of the whole run, over all its sessions.
        started: `time.monotonic()` at the start of this session (default: now).

    Attributes:
        earlier: seconds of earlier sessions.
        most: seconds of training after which the run ends although its budget has not.
        done: the share.
        reserve: expected seconds after the last step.
        slowness: wall time per second of CPU time in the last seconds; above 1 under other load.
    """

    def __init__(self, budget: float, started: float | None = None):
        self.budget, self.reserve, self.most = budget, 0.0, math.inf
        self._started, self.earlier = time.monotonic() if started is None else started, 0.0
        self._first: float | None = None  # seconds of the run before its first step
        self.done = 0.0
        self.slowness = 1.0
        self._mark = (self._started, 0.0 if started is not None else time.process_time())

    @property
    def seconds(self) -> float:
        """Seconds of this and all earlier sessions."""
        return self.earlier + time.monotonic() - self._started

    @property
    def training_seconds(self) -> float:
        """Seconds from the first to the last step."""
        first = self.seconds if self._first is None else self._first
        return max(min(self.budget - self.reserve - first, self.most), 1e-3)

    def start(self) -> float:
        """Marks the first step of the run; returns its time."""
        if self._first is None:
            self._first = self.seconds
        return self._first

    def measure_slowness(self) -> None:
        """Compares wall time and CPU time since the last call, or since the start."""
        mark, (wall, computed) = (time.monotonic(), time.process_time()), self._mark
        if mark[0] - wall >= _WINDOW:
            self.slowness, self._mark = max((mark[0] - wall) / max(mark[1] - computed, 0.1), 1.0), mark

    def update(self) -> None:
        """Reads the clock. The share never decreases, even if the reserve grows."""
        first = self.start()
        self.measure_slowness()
        self.done = min(max(self.done, (self.seconds - first) / self.training_seconds), 1.0)

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "first": self._first, "share": self.done, "reserve": self.reserve}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.earlier = max(self.earlier, state["seconds"])
        self._first, self.done, self.reserve = state["first"], state["share"], state["reserve"]
        if self._first is not None:  # what is lost with the steps after the checkpoint is taken from what is unused
            unused = max(self.budget - self.reserve - self.most - self._first, 0.0)
            self._first += min(self.seconds - state["seconds"], unused)


def process_start() -> float:
    """`time.monotonic()` at the start of this process, before Python's imports."""
    return time.monotonic() - (time.time() - psutil.Process().create_time())
