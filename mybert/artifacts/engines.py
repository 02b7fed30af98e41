"""Engines that apply a function to many tasks: processes of this machine, or a Ray cluster.

A task may run twice: a function returns its result or writes it to a file of its own.

To add an engine, write a generator like `_run_locally` and name it in `_ENGINES` and in `settings.ENGINES`.
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

    The function, the tasks and the results are pickled.
    """
    done: Any = _ENGINES[settings.engine](function, tasks, settings)
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


def _run_locally(function: Callable[..., Any], tasks: Sequence[Any], settings: Any) -> Iterator[tuple[int, Any]]:
    """Yields the number and the result of each task, in the order of completion."""
    from tokenization.processes import map_unordered  # the vocabulary is counted by it, too

    return map_unordered(function, tasks, min(settings.num_proc or usable_cores(), len(tasks)))


def _run_on_ray(function: Callable[..., Any], tasks: Sequence[Any], settings: Any) -> Iterator[tuple[int, Any]]:
    """As `_run_locally`, by Ray Data, which repeats the tasks of a lost node on another."""
    return _results(_rows_on_ray(tasks).map(_call, fn_args=(function,)))


def map_on_actors(make: Callable[[], Callable[[Any], Any]], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """As `_run_on_ray`, by actors that each make one function and call it with tasks.

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


_ENGINES = {"local": _run_locally, "ray": _run_on_ray}
