"""Dynamic batching: the rows of concurrent requests share batches of a limited number of tokens.

One thread computes all batches. Requests take turns, so that a small request never waits for all rows of a large one.
"""

import itertools
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from mybert.common.machine import threads

Function = Callable[[list[Any], Callable[[int], object]], Iterable[Any]]
"""From rows to a result for each row. It calls its second argument after each batch of the model."""

logger = logging.getLogger(__name__)


class Overloaded(Exception):
    """The accepted requests have the maximum number of tokens; they are answered in about `seconds`."""

    def __init__(self, seconds: int):
        super().__init__(f"too many requests are waiting; try again in {seconds} s")
        self.seconds = seconds


class Abandoned(Exception):
    """Nobody waits for the results of a batch any more."""


class Job:
    """The rows of a request. The computing thread calls `on_done` when `results` is complete or `error` is set."""

    def __init__(self, rows: Sequence[Any], tokens: Sequence[int], on_done: Callable[[], object]):
        self.rows, self.tokens, self.on_done = rows, tokens, on_done
        self.is_cancelled = False
        self.results: list[Any] = [None] * len(rows)
        self.error: Exception | None = None
        self.arrived = time.monotonic()
        self.taken = 0
        self.missing = len(rows)

    def take(self, limit: int) -> "Slice":
        """Takes the next rows, at most `limit` tokens but at least one row."""
        first, total = self.taken, 0
        while self.taken < len(self.rows) and (self.taken == first or total + self.tokens[self.taken] <= limit):
            total += self.tokens[self.taken]
            self.taken += 1
        return Slice(self, range(first, self.taken), total)


class Slice(NamedTuple):
    """Consecutive rows of a job in a batch, and their number of tokens."""

    job: Job
    rows: range
    tokens: int


class Batcher:
    """Computes jobs in batches in one thread.

    Args:
        function: computes the rows of a batch.
        max_tokens_per_batch: maximum tokens of a batch; a larger row is a batch of its own.
        max_tokens: maximum tokens of all jobs that wait or are computed.
        max_wait: seconds that a batch waits for further jobs.
        observe: called after each batch with its tokens, its rows and its seconds.
    """

    def __init__(
        self,
        function: Function,
        max_tokens_per_batch: int,
        max_tokens: int,
        max_wait: float,
        observe: Callable[[int, int, float], object] = lambda *_: None,
    ):
        self._function, self._max_tokens_per_batch, self._max_tokens = function, max_tokens_per_batch, max_tokens
        self._max_wait, self._observe = max_wait, observe
        self._queue: deque[Job] = deque()
        self._changed = threading.Condition()
        self._tokens_per_second = 1000.0
        self._many = self._closed = False
        self.tokens = 0
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def submit(self, job: Job) -> None:
        """Adds a job; raises `Overloaded` if too many tokens are waiting."""
        tokens = sum(job.tokens)
        with self._changed:
            if self.tokens and self.tokens + tokens > self._max_tokens:
                raise Overloaded(math.ceil(min(self.tokens / self._tokens_per_second, 3600)))
            self.tokens += tokens
            self._queue.append(job)
            self._changed.notify()

    def cancel(self, job: Job) -> None:
        """Drops the rows of a job that are not computed yet; of a long row, the batches that are not."""
        with self._changed:
            job.is_cancelled = True
            if job in self._queue:
                self._queue.remove(job)
                self.tokens -= sum(job.tokens[job.taken :])

    def close(self) -> None:
        """Drops the jobs that wait, and waits for the batch that is being computed.

        Python may not end before: it would end the thread inside PyTorch, and abort.
        """
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed:
            if not (batch := self._next_batch()):
                continue  # the jobs have been cancelled
            threads.share()
            began = time.monotonic()
            finished = self._compute(batch)
            seconds = time.monotonic() - began
            tokens = sum(part.tokens for part in batch)
            with self._changed:
                self.tokens -= tokens
                self._tokens_per_second += 0.1 * (tokens / max(seconds, 1e-6) - self._tokens_per_second)
            self._observe(tokens, sum(len(part.rows) for part in batch), seconds)
            for job in finished:
                job.on_done()

    def _next_batch(self) -> list[Slice]:
        """Waits for a job; if the last batch had rows of several jobs, waits up to `max_wait` for more."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            if self._closed:
                return []
            if self._many:
                left = self._queue[0].arrived + self._max_wait - time.monotonic()
                self._changed.wait_for(lambda: self.tokens >= self._max_tokens_per_batch, max(left, 0))
            batch = self._take() if self._queue else []
            self._many = len({id(part.job) for part in batch}) > 1
            return batch

    def _take(self) -> list[Slice]:
        """Fills a batch from the jobs in turns."""
        turns = deque(self._queue)
        share, left = self._max_tokens_per_batch // len(turns), self._max_tokens_per_batch
        batch: list[Slice] = []
        while turns and (not batch or turns[0].tokens[turns[0].taken] <= left):
            job = turns.popleft()
            batch.append(job.take(min(share, left)))
            left -= batch[-1].tokens
            if job.taken < len(job.rows):
                turns.append(job)
        for job in dict.fromkeys(part.job for part in batch):
            self._queue.remove(job)
            if job.taken < len(job.rows):
                self._queue.append(job)
        return batch

    def _compute(self, batch: list[Slice]) -> list[Job]:
        """Computes a batch; returns the jobs that are complete or have failed."""
        rows = [part.job.rows[row] for part in batch for row in part.rows]

        def go_on(_: int) -> None:
            if all(part.job.is_cancelled for part in batch):
                raise Abandoned

        try:
            results = iter(self._function(rows, go_on))
            for part in batch:
                for row in part.rows:
                    part.job.results[row] = next(results)
        except Abandoned:
            return []
        except Exception as error:
            if len(batch) > 1:  # only the job with the error must fail
                return list(itertools.chain(*(self._compute([part]) for part in batch)))
            logger.error("a batch failed", exc_info=error)
            self.cancel(batch[0].job)
            batch[0].job.error = error
            return [batch[0].job]
        for part in batch:
            part.job.missing -= len(part.rows)
        return [job for job in dict.fromkeys(part.job for part in batch) if not job.missing]
