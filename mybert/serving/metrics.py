"""Prometheus metrics of the service."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_TOKENS = tuple(4**power for power in range(2, 9))
_ROWS = tuple(2**power for power in range(11))


class Metrics:
    """Counters of one service; `requests` in progress and their `tokens` are read when the metrics are."""

    def __init__(self, requests: Callable[[], int], tokens: Callable[[], int]):
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._answers = Counter("mybert_requests", "Requests.", ["route", "status"], registry=registry)
        self._seconds = Histogram(
            "mybert_request_seconds", "Time of requests.", ["route"], registry=registry, buckets=_SECONDS
        )
        self._batch_tokens = Histogram("mybert_batch_tokens", "Tokens of batches.", registry=registry, buckets=_TOKENS)
        self._batch_rows = Histogram("mybert_batch_rows", "Rows of batches.", registry=registry, buckets=_ROWS)
        self._batch_seconds = Histogram(
            "mybert_batch_seconds", "Computing time of batches.", registry=registry, buckets=_SECONDS
        )
        for name, help, function in (
            ("mybert_requests_in_progress", "Requests in progress.", requests),
            ("mybert_tokens_in_progress", "Tokens of accepted requests without an answer.", tokens),
        ):
            Gauge(name, help, registry=registry).set_function(function)

    def answered(self, route: str, status: int, seconds: float) -> None:
        self._answers.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def computed(self, tokens: int, rows: int, seconds: float) -> None:
        self._batch_tokens.observe(tokens)
        self._batch_rows.observe(rows)
        self._batch_seconds.observe(seconds)

    def text(self) -> bytes:
        """The metrics in the text format of Prometheus."""
        return generate_latest(self._registry)
