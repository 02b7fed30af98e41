"""Loader workers and signals. A worker that is not forked imports this module, which needs no transformers."""

import functools
import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.util import Finalize
from typing import Any

from torch.utils.data import DataLoader


def ignore_signals_in_workers(loader: DataLoader[Any]) -> DataLoader[Any]:
    """Keeps loader workers alive when a signal goes to the whole process group, since saving needs them."""
    for part in (loader, getattr(loader, "base_dataloader", loader)):  # accelerate's loader and torch's inside it
        part.worker_init_fn = functools.partial(_ignore_signals, part.worker_init_fn)
    _end_workers_at_exit(os.getpid())
    return loader


@functools.cache
def _end_workers_at_exit(process: int) -> None:
    Finalize(None, _end_workers, exitpriority=0)  # before multiprocessing waits for its daemons


def _end_workers() -> None:
    """Ends what ignores SIGTERM, as loader workers do after an error within a step: their exit would never come."""
    daemons = [child for child in multiprocessing.active_children() if child.daemon]
    for child in daemons:
        child.terminate()
    for child in daemons:
        child.join(1)
        child.kill()


def _ignore_signals(start: Callable[[int], None] | None, worker: int) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    if start is not None:
        start(worker)
