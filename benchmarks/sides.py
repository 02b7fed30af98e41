"""Comparisons: timed calls, sides that take turns, and a process for each side."""

import multiprocessing
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

from rich.progress import track


class Timed(NamedTuple):
    """What a call returned, the seconds that passed, and those of the processor, in all threads and ended children."""

    found: Any
    seconds: float
    cpu: float


def timed(function: Callable, *inputs: Any, **options: Any) -> Timed:
    begun, used = time.perf_counter(), _processor_seconds()
    found = function(*inputs, **options)
    return Timed(found, time.perf_counter() - begun, _processor_seconds() - used)


def _processor_seconds() -> float:
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def in_turns(measures: Mapping[str, Callable[[], Any]], rounds: int, title: str = "") -> dict[str, list]:
    """What each measure returns in each round. All are called in every round, so that other load slows all alike."""
    found = {name: [] for name in measures}
    for _ in track(range(rounds), description=title):
        for name, measure in measures.items():
            found[name].append(measure())
    return found


def process_context(device: str, preloaded: list[str]):
    """How processes start: forked from one that has imported `preloaded`, but CUDA cannot be used in a fork."""
    if device != "cpu":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(preloaded)
    return context


def in_own_process(function: Callable, *inputs: Any) -> Any:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(function, *inputs).result()


class Sides:
    """A process for each side. One that fails is left out from then on.

    Args:
        context: how processes start.
        prepare: called first in each process; functions of the side get what it returns.
        inputs: of `prepare`, by the name of the side.
        failures: gets the reason why a side failed.
    """

    def __init__(self, context, prepare: Callable, inputs: Mapping[str, tuple], failures: dict[str, str]):
        self.failures = failures
        self._processes = {name: ProcessPoolExecutor(1, context) for name in inputs}
        for name, own in inputs.items():
            self._submit(name, _prepare, prepare, *own)

    def ask(self, name: str, function: Callable, *inputs: Any) -> Any:
        """`function(prepared, *inputs)` in the process of a side; None if the side has failed."""
        return self._submit(name, _call, function, *inputs)

    def _submit(self, name: str, *call: Any) -> Any:
        if name in self.failures:
            return None
        try:
            return self._processes[name].submit(*call).result()
        except Exception as error:
            from mybert.common.errors import cause  # here, since sides without MyBERT import this file

            self.failures[name] = cause(error)[:100]
            return None

    def __enter__(self) -> "Sides":
        return self

    def __exit__(self, *_: Any) -> None:
        for process in multiprocessing.active_children():  # it may compute for minutes when the run is stopped
            process.kill()
        for process in self._processes.values():
            process.shutdown()


_prepared: list = []  # of this process


def _prepare(prepare: Callable, *inputs: Any) -> None:
    _prepared.append(prepare(*inputs))


def _call(function: Callable, *inputs: Any) -> Any:
    return function(*_prepared, *inputs)
