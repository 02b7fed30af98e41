"""Functions in forks of the test process, which have imported everything."""

import logging
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable
from multiprocessing.process import BaseProcess

from accelerate.state import AcceleratorState
from tqdm import tqdm


def start(function: Callable[..., object], *arguments: object) -> BaseProcess:
    """A fork that calls `function`."""
    process = multiprocessing.get_context("fork").Process(target=_call, args=(function, arguments))
    process.start()
    return process


def end(process: BaseProcess) -> int | None:
    """Waits for a fork. Returns its exit status; None if it has not ended after five minutes, when it is killed."""
    process.join(300)
    status = process.exitcode
    process.kill()
    process.join()
    return status


def exit_status(function: Callable[..., object], *arguments: object) -> int | None:
    """The exit status of a fork that calls `function`; see `end`."""
    return end(start(function, *arguments))


def print_to(log: str) -> None:
    """In a fork: appends what is printed to the files LOG.1 and LOG.2, standard output and standard error."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        file = os.open(f"{log}.{number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, number)
        os.dup2(file, stream.fileno())  # of pytest's capture
    logging.root.handlers.clear()  # pytest's too


def _call(function: Callable[..., object], arguments: tuple[object, ...]) -> None:
    AcceleratorState._reset_state(reset_partial_state=True)  # or it is one process, as the test process
    _lock_bars(tqdm, threading.RLock())
    function(*arguments)


def _lock_bars(kind: type[tqdm], lock: object) -> None:
    """Replaces the lock that forks share with the test process: one that is killed would never release it."""
    kind.set_lock(lock)
    for other in kind.__subclasses__():
        _lock_bars(other, lock)
