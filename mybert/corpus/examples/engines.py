"""Where the work is done: a pure function over many tasks, in processes of this machine or on a Ray cluster.

A function writes its result to the build's folder or returns it; a task done twice does no harm.
"""

import contextlib
import os
import pickle
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from tqdm.auto import tqdm

from mybert.common.errors import UserError
from mybert.common.machine import usable_cores
from mybert.corpus.settings import CorpusSettings
from tokenization.processes import map_unordered


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
        done = map_unordered(function, tasks, min(settings.num_proc or usable_cores(), len(tasks)))
    results = [None] * len(tasks)
    with explain_killed(), contextlib.closing(done), one_thread_a_process():
        for number, result in tqdm(done, desc=name, total=len(tasks), disable=not tasks or None):
            results[number] = result
    return results


@contextlib.contextmanager
def explain_killed() -> Iterator[None]:
    """
    Raises:
        UserError: a process of `map_unordered` was killed.
    """
    try:
        yield
    except BrokenProcessPool as error:
        raise UserError(
            "a process of the build was killed, as the system does when memory runs out; use a smaller --num-proc"
        ) from error


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
