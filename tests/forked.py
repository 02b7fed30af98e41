"""Functions in forks of the test process, which have imported everything."""

import multiprocessing
from collections.abc import Callable


def exit_status(function: Callable[..., object], *arguments: object) -> int | None:
    """The exit status of a fork that calls `function`; None if it has not ended after five minutes, when it is killed.

    A fork may be killed at a fixed place only: it shares the lock of tqdm's bars with the test process.
    """
    process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    process.start()
    process.join(300)
    status = process.exitcode
    process.kill()
    process.join()
    return status
