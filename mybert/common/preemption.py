"""SIGTERM, which schedulers send before they take a machine away: finish the step, save, end with the status 143."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

PREEMPTED = 128 + signal.SIGTERM
"""Exit status of a run that SIGTERM ended, its checkpoint saved: the one that shells give to such processes."""


class Preempted(SystemExit):
    """SIGTERM came, a checkpoint was saved, and the process is to end with the status 143."""

    def __init__(self):
        super().__init__(PREEMPTED)


@contextlib.contextmanager
def on_sigterm(ask: Callable[[], None]) -> Iterator[None]:
    """SIGTERM, in this block, calls `ask` and does nothing else."""
    if threading.current_thread() is not threading.main_thread():  # Python delivers signals nowhere else
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: ask())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
