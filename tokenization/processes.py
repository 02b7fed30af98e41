"""Parallel map over processes that end with their parent and with each other."""

import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for_futures
from multiprocessing.connection import Connection, wait
from typing import Any

_AHEAD = 2  # jobs submitted per process: the running one and the next
_may_end = threading.Lock()
"""Of a worker: free while it computes. If it ended while it sends a result, its parent would wait for the rest."""


def map_unordered(function: Callable[[Any], Any], jobs: Iterable[Any], processes: int) -> Iterator[tuple[int, Any]]:
    """Yield (index, `function(job)`) in the order of completion.

    Args:
        function: picklable, as are jobs and results.
        jobs: read lazily, two jobs per process ahead.
        processes: number of processes, of which no more are started than there are jobs; 1: this process.

    Raises:
        concurrent.futures.process.BrokenProcessPool: a process was killed, for example for lack of memory.
    """
    if processes <= 1:
        yield from ((number, function(job)) for number, job in enumerate(jobs))
        return
    jobs = iter(jobs)
    first = list(itertools.islice(jobs, processes))
    jobs, processes = itertools.chain(first, jobs), max(1, min(processes, len(first)))
    listen, stop = multiprocessing.Pipe(duplex=False)
    pool = ProcessPoolExecutor(processes, initializer=_serve, initargs=(listen,))
    numbers: dict[Future[Any], int] = {}
    try:
        for number, job in enumerate(jobs):
            numbers[pool.submit(_compute, function, job)] = number
            if len(numbers) == _AHEAD * processes:
                yield from _take_done(numbers)
        while numbers:
            yield from _take_done(numbers)
    except BaseException:
        stop.send(None)  # never received, so that all processes see it
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _take_done(numbers: dict[Future[Any], int]) -> Iterator[tuple[int, Any]]:
    for future in wait_for_futures(numbers, return_when=FIRST_COMPLETED).done:
        yield numbers.pop(future), future.result()


def _compute(function: Callable[[Any], Any], job: Any) -> Any:
    _may_end.release()
    try:
        return function(job)
    finally:
        _may_end.acquire()


def _serve(listen: Connection) -> None:
    """Set up a worker: ignore Ctrl-C, and end when the pool ends it, when told to, or when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # by which a pool ends its processes; a fork inherits the handler
    _may_end.acquire()

    def end() -> None:
        parent = multiprocessing.parent_process()
        wait([parent.sentinel, listen] if parent else [listen])
        while not _may_end.acquire(timeout=0.1):
            if parent and not parent.is_alive():
                break
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()
