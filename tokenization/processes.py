"""Many jobs in the processes of this machine, none of which outlives its parent or waits for a dead neighbour."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for_futures
from multiprocessing.connection import Connection, wait
from typing import Any

_AHEAD = 2  # jobs taken for each process: the one that it does, and the next


def map_unordered(function: Callable[[Any], Any], jobs: Iterable, processes: int) -> Iterator[tuple[int, Any]]:
    """Yields the number of each job, from 0, and `function(job)`, in the order in which they are done.

    Args:
        function: and the jobs and results: picklable.
        jobs: read only a little ahead of what is being done.
        processes: how many work; with 1, this one does.

    Raises:
        concurrent.futures.process.BrokenProcessPool: one was killed, as the system does when memory runs out.
    """
    if processes <= 1:
        yield from ((number, function(job)) for number, job in enumerate(jobs))
        return
    listen, stop = multiprocessing.Pipe(duplex=False)
    pool = ProcessPoolExecutor(processes, initializer=_serve, initargs=(listen,))
    numbers: dict[Future, int] = {}
    try:
        for number, job in enumerate(jobs):
            numbers[pool.submit(function, job)] = number
            if len(numbers) == _AHEAD * processes:
                yield from _take_done(numbers)
        while numbers:
            yield from _take_done(numbers)
    except BaseException:
        stop.send(None)  # nobody takes it away, so all processes see it
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _take_done(numbers: dict[Future, int]) -> Iterator[tuple[int, Any]]:
    for future in wait_for_futures(numbers, return_when=FIRST_COMPLETED).done:
        yield numbers.pop(future), future.result()


def _serve(listen: Connection) -> None:
    """A worker leaves the terminal's interrupt to its parent, and ends when told or when that was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def end() -> None:
        wait([multiprocessing.parent_process().sentinel, listen])
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()
