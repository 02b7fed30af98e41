"""SIGTERM, which schedulers send before they take a machine away: finish the step, save, end with the status 143."""

import contextlib
import functools
import signal
import threading
from collections.abc import Callable, Iterator

from torch.utils.data import DataLoader

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


def keep_workers(loader: DataLoader) -> DataLoader:
    """A signal for the whole group of processes is for the trainer to answer, which needs its workers until then."""
    for part in (loader, getattr(loader, "base_dataloader", loader)):  # accelerate's, and torch's that starts them
        part.worker_init_fn = functools.partial(_ignore_sigterm, part.worker_init_fn)
    return loader


def _ignore_sigterm(start: Callable[[int], None] | None, worker: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if start is not None:
        start(worker)
