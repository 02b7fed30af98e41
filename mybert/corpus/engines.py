"""Where the work is done: a pure function over many tasks, in processes of this machine or on a Ray cluster.

A function writes its result to the build's folder or returns it; a task done twice does no harm.
"""

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection, wait
from typing import Any

from tqdm.auto import tqdm

from mybert.common.errors import UserError
from mybert.common.machine import usable_cores
from mybert.corpus.settings import CorpusSettings


def run_tasks(function: Callable[[Any], Any], tasks: Sequence, settings: CorpusSettings, name: str) -> list:
    """`[function(task) for task in tasks]` on the engine of `settings`.

    Args:
        function: and its tasks and results: picklable.
        name: for the progress bar.

    Raises:
        UserError: of `function`; or a process was killed, or Ray is not there.
    """
    if settings.engine == "ray":
        done = _on_ray(function, tasks)
    else:
        done = _in_processes(function, tasks, min(settings.num_proc or usable_cores(), len(tasks)))
    results = [None] * len(tasks)
    with contextlib.closing(done), one_thread_a_process():
        for number, result in tqdm(done, desc=name, total=len(tasks), disable=not tasks or None):
            results[number] = result
    return results


def _in_processes(function: Callable, tasks: Sequence, processes: int) -> Iterator[tuple[int, Any]]:
    if processes <= 1:
        yield from ((number, function(task)) for number, task in enumerate(tasks))
        return
    listen, stop = multiprocessing.Pipe(duplex=False)
    pool = ProcessPoolExecutor(processes, initializer=_serve, initargs=(listen,))
    try:
        numbers = {pool.submit(function, task): number for number, task in enumerate(tasks)}
        for future in as_completed(numbers):
            yield numbers.pop(future), future.result()
    except BrokenProcessPool as error:
        raise UserError(
            "a process of the build was killed, as the system does when memory runs out; use a smaller --num-proc"
        ) from error
    except BaseException:
        stop.send(None)  # nobody takes it away, so all processes see it
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _serve(listen: Connection) -> None:
    """A worker leaves the terminal's interrupt to its parent, and ends when told or when that was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def end() -> None:
        wait([multiprocessing.parent_process().sentinel, listen])
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


@contextlib.contextmanager
def one_thread_a_process() -> Iterator[None]:
    """The tokenizers library starts a thread a core, in each process, unless told otherwise."""
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        yield
    finally:
        os.environ.pop("TOKENIZERS_PARALLELISM")
        if before is not None:
            os.environ["TOKENIZERS_PARALLELISM"] = before


def _on_ray(function: Callable, tasks: Sequence) -> Iterator[tuple[int, Any]]:
    """Ray Data runs the tasks, and runs those of a lost node again elsewhere.

    On the cluster that the process is connected to, or that RAY_ADDRESS names, or on one that Ray starts here.
    """
    try:
        import ray
    except ImportError as error:
        raise UserError("--engine ray needs Ray: pip install '.[ray]' in MyBERT's folder") from error
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    rows = ray.data.from_items(
        [{"number": number, "task": pickle.dumps(task)} for number, task in enumerate(tasks)],
        override_num_blocks=len(tasks),  # a task is what is run again
    )
    for row in rows.map(_Row(function)).iter_rows():
        result = pickle.loads(row["result"])
        if isinstance(result, Exception):
            raise result
        yield row["number"], result


class _Row:
    """A function of tasks as one of rows; both travel as bytes, since columns have one type.

    An error is a result too: Ray would give it another type and a page of its own frames.
    """

    def __init__(self, function: Callable):
        self._function = function

    def __call__(self, row: dict) -> dict:
        with one_thread_a_process():
            try:
                result = self._function(pickle.loads(row["task"]))
            except Exception as error:
                error.add_note(traceback.format_exc())
                result = error
        return {"number": row["number"], "result": pickle.dumps(result)}
