"""Batches of rows of concurrent jobs: limits, turns, errors and cancellation."""

import itertools
import threading
import time
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mybert.serving.batching import Batcher, Job, Overloaded


class Model:
    """A function that doubles numbers, records its batches, and waits while its gate is closed."""

    def __init__(self, **options):
        self.batches, self.gate, self.begun = [], threading.Event(), threading.Event()
        self.gate.set()
        limits = {"max_tokens_per_batch": 10, "max_tokens": 10**6, "max_wait": 0.0} | options
        self.batcher = Batcher(self.double, **limits)

    def double(self, rows, go_on):
        self.begun.set()
        self.gate.wait(60)
        self.batches.append(list(rows))
        if "bad" in rows:
            raise ValueError("a bad row")
        return [2 * row for row in rows]

    def close(self):
        """Holds the model in a batch of its own, so that what is submitted next waits."""
        self.gate.clear()
        self.begun.clear()
        first = self.submit([0], [1])
        assert self.begun.wait(60)
        return first

    def submit(self, rows, tokens=None):
        done = threading.Event()
        job = Job(rows, tokens or [1] * len(rows), done.set)
        self.batcher.submit(job)
        return SimpleNamespace(job=job, wait=lambda: done.wait(60))


@settings(max_examples=25)
@given(st.lists(st.lists(st.integers(1, 15), min_size=1, max_size=8), min_size=1, max_size=8))
def test_every_row_is_computed_once_in_batches_within_the_limit(tokens_of_jobs):
    model = Model()
    model.close()
    names = iter(range(1, 1000))
    jobs = [model.submit([next(names) for _ in tokens], tokens) for tokens in tokens_of_jobs]
    tokens = dict(zip((row for one in jobs for row in one.job.rows), itertools.chain(*tokens_of_jobs), strict=True))
    model.gate.set()
    assert all(one.wait() for one in jobs)
    assert all(one.job.results == [2 * row for row in one.job.rows] for one in jobs)
    rows = [row for batch in model.batches[1:] for row in batch]
    assert sorted(rows) == sorted(tokens)
    assert all(len(batch) == 1 or sum(map(tokens.get, batch)) <= 10 for batch in model.batches[1:])


def test_a_small_job_is_in_the_next_batch_behind_a_large_one():
    model = Model()
    model.close()
    large, small = model.submit(list(range(100, 200))), model.submit([7, 8])
    model.gate.set()
    assert large.wait() and small.wait()
    assert {7, 8} < set(model.batches[1]) and len(model.batches[1]) == 10
    assert sum(len(batch) < 10 for batch in model.batches[2:]) <= 1, "the batches are not full"


def test_jobs_beyond_the_maximum_are_refused_with_the_seconds_to_wait():
    model = Model(max_tokens=20)
    model.close()
    accepted = model.submit([1, 2], [10, 9])
    with pytest.raises(Overloaded) as refused:
        model.submit([3])
    assert refused.value.seconds >= 1
    model.gate.set()
    assert accepted.wait() and model.submit([3]).wait()


def test_an_error_fails_its_own_job_only():
    model = Model()
    model.close()
    good, bad, last = model.submit([1]), model.submit(["bad", 3] * 9), model.submit([2])
    model.gate.set()
    assert good.wait() and bad.wait() and last.wait()
    assert (good.job.results, last.job.results) == ([2], [4])
    assert str(bad.job.error) == "a bad row" and model.submit([6]).wait()


def test_a_cancelled_job_is_not_computed_and_frees_its_tokens():
    model = Model()
    first = model.close()
    gone, kept = model.submit([1] * 50), model.submit([2])
    model.batcher.cancel(gone.job)
    assert model.batcher.tokens == 2
    model.gate.set()
    assert first.wait() and kept.wait()
    assert not any(1 in batch for batch in model.batches)


@pytest.mark.parametrize("others", [0, 1])
def test_a_long_row_that_nobody_waits_for_is_stopped_between_its_batches(others):
    done, jobs = [], []

    def compute(rows, go_on):
        for batch in range(9):
            done.append(batch)
            if batch == 3:
                batcher.cancel(jobs[0])
            go_on(1)
        return rows

    batcher = Batcher(compute, 100, 1000, 0.0)
    ended = threading.Event()
    with batcher._changed:  # or the first job would be a batch of its own
        jobs += [Job([number], [5], ended.set) for number in range(1 + others)]
        for job in jobs:
            batcher.submit(job)
    while batcher.tokens:
        time.sleep(0.01)
    assert not others or ended.wait(60)
    batcher.close()
    assert done == list(range(9 if others else 4)) and batcher.tokens == 0


def test_closing_waits_for_the_batch_that_is_computed():
    model = Model()
    first, waiting = model.close(), model.submit([2])
    closing = threading.Thread(target=model.batcher.close)
    closing.start()
    while not model.batcher._closed:  # or the batch could end before, and the next one would be computed
        assert closing.is_alive()
        time.sleep(0.01)
    assert model.batcher.is_alive and closing.is_alive()
    model.gate.set()
    closing.join(60)
    assert first.wait() and not model.batcher.is_alive
    assert waiting.job.results == [None]


def test_one_client_at_a_time_never_waits_and_many_wait_for_each_other():
    model = Model(max_wait=3600.0)
    assert model.submit([1]).wait()
    assert model.submit([2]).wait(), "a lone request waited"
    model.close()
    two = model.submit([3]), model.submit([4])
    model.gate.set()
    assert all(one.wait() for one in two)  # computed together: the next ones wait for a full batch
    three = model.submit([5]), model.submit([6])
    assert not three[0].job.results[0]
    four = model.submit([7] * 8)
    assert all(one.wait() for one in (*three, four)) and model.batches[-1] == [5, 6, *[7] * 8]
