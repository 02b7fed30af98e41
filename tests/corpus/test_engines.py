"""Where the tasks of a build run."""

import os

import pytest

from mybert.corpus.examples.engines import run_tasks
from mybert.corpus.settings import CorpusSettings


def process_of(task: int) -> int:
    return os.getpid()


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or os.cpu_count() == 1,
    reason="no process can be bound to a part of the cores",
)
def test_a_build_bound_to_one_core_starts_no_processes_for_the_others():
    before = os.sched_getaffinity(0)
    settings = CorpusSettings(["a.txt"], tokenizer="t", output="o")
    try:
        os.sched_setaffinity(0, {min(before)})
        assert set(run_tasks(process_of, range(4), settings, "tasks")) == {os.getpid()}
    finally:
        os.sched_setaffinity(0, before)
