"""SIGTERM, which schedulers send before they take a machine away, and Ctrl-C: finish the step, save, end with 143."""

import contextlib
import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator

from torch.utils.data import DataLoader

PREEMPTED = 128 + signal.SIGTERM
"""Exit status of a run that either ended, its checkpoint saved: the one that shells give to SIGTERM's processes."""


class Preempted(SystemExit):
    """A checkpoint was saved because a signal asked for it, and the process is to end with the status 143."""

    def __init__(self):
        super().__init__(PREEMPTED)


@contextlib.contextmanager
def on_signals(ask: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and a first Ctrl-C, in this block, call `ask` and do nothing else; a second Ctrl-C interrupts."""
    if threading.current_thread() is not threading.main_thread():  # Python delivers signals nowhere else
        yield
        return

    def interrupted(*_) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        ask()
        with contextlib.suppress(OSError):  # nobody reads it
            os.write(2, b"\nsaving after this step; Ctrl-C again stops without\n")  # print might be in use

    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: ask())}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else ignored, or somebody else's
        before[signal.SIGINT] = signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def keep_workers(loader: DataLoader) -> DataLoader:
    """A signal for the whole group of processes is for the trainer to answer, which needs its workers until then."""
    for part in (loader, getattr(loader, "base_dataloader", loader)):  # accelerate's, and torch's that starts them
        part.worker_init_fn = functools.partial(_ignore_signals, part.worker_init_fn)
    return loader


def _ignore_signals(start: Callable[[int], None] | None, worker: int) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    if start is not None:
        start(worker)
