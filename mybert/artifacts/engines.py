"""Engines that apply a function to many tasks: processes of this machine, or a Ray cluster.

A task may run twice: a function returns its result or writes it to a file of its own.
"""

import contextlib
import functools
import os
import pickle
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from mybert.common.errors import UserError, needing
from mybert.common.machine import usable_cores
from mybert.common.progress import Bar


def run_tasks(function: Callable[[Any], Any], tasks: Sequence[Any], settings: Any, name: str) -> list[Any]:
    """Computes `[function(task) for task in tasks]` on the engine of `settings`, with a progress bar called `name`.

    The function, the tasks and the results are pickled. Ray repeats the tasks of a lost node on another.
    """
    from tokenization.processes import map_unordered  # the vocabulary is counted by it, too

    done: Any
    if settings.engine == "ray":
        done = _results(_rows_on_ray(tasks).map(_call, fn_args=(function,)))
    else:
        done = map_unordered(function, tasks, min(settings.num_proc or usable_cores(), len(tasks)))
    results = [None] * len(tasks)
    with explain_killed(), contextlib.closing(done), one_thread_a_process():
        for number, result in Bar(done, total=len(tasks), desc=name, unit="parts") if tasks else ():
            results[number] = result
    return results


@contextlib.contextmanager
def explain_killed() -> Iterator[None]:
    """Raises a UserError if a process of `map_unordered` was killed."""
    try:
        yield
    except BrokenProcessPool as error:
        raise UserError("a process was killed, probably because memory ran out; use a smaller --num-proc") from error


@contextlib.contextmanager
def one_thread_a_process() -> Iterator[None]:
    """Keeps the tokenizers library from starting a thread per core in each process."""
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        yield
    finally:
        os.environ.pop("TOKENIZERS_PARALLELISM")
        if before is not None:
            os.environ["TOKENIZERS_PARALLELISM"] = before


def map_on_actors(make: Callable[[], Callable[[Any], Any]], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """Yields the number and the result of each task; actors of Ray each make one function and call it with tasks.

    An actor has a core, and a GPU if the cluster has some. Those of a lost node are started on another.
    """
    rows = _rows_on_ray(tasks)
    import ray

    resources = ray.cluster_resources()
    units, each = ("GPU", {"num_gpus": 1}) if resources.get("GPU") else ("CPU", {"num_cpus": 1})
    most = max(1, min(len(tasks), int(resources[units])))
    pool = ray.data.ActorPoolStrategy(min_size=1, max_size=most)
    return _results(rows.map(_Actor, fn_constructor_args=(make,), compute=pool, **each))


def _rows_on_ray(tasks: Sequence[Any]) -> Any:
    """A data set of pickled tasks. The cluster is the connected one, that of RAY_ADDRESS, or a new one here."""
    with needing("ray", "--engine ray"):
        import ray
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    return ray.data.from_items(
        [{"number": number, "task": pickle.dumps(task)} for number, task in enumerate(tasks)],
        override_num_blocks=max(1, len(tasks)),  # Ray repeats whole blocks
    )


def _results(rows: Any) -> Iterator[tuple[int, Any]]:
    for row in rows.iter_rows():
        result = pickle.loads(row["result"])
        if isinstance(result, Exception):
            raise result
        yield row["number"], result


def _call(row: dict[str, Any], function: Callable[..., Any]) -> dict[str, Any]:
    """Calls a function with the task of a row. Tasks and results are pickled, since columns have one type.

    An exception is returned as a result, because Ray would wrap it in its own type.
    """
    with one_thread_a_process():
        try:
            result = function(pickle.loads(row["task"]))
        except Exception as error:
            error.add_note(traceback.format_exc())
            result = error
    return {"number": row["number"], "result": pickle.dumps(result)}


class _Actor:
    """Calls the function `make()`, which is made once, with the task of each row."""

    def __init__(self, make: Callable[[], Callable[[Any], Any]]):
        self._made = functools.cache(make)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return _call(row, lambda task: self._made()(task))  # made here, so that an error is a result
