"""Metrics for Prometheus: requests, batches, queues and memory, of all processes that serve together."""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.process_collector import ProcessCollector

from twofold.serve.workers import METRICS

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128)
TOKENS = (32, 128, 512, 1024, 2048, 4096, 8192)
TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Measures:
    """Counters and histograms of a process."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        route, model = ("route",), ("model",)
        self._requests = Counter("twofold_requests_total", "Requests", (*route, "status"), registry=registry)
        self._seconds = Histogram(
            "twofold_request_seconds", "Time from request to answer", route, buckets=SECONDS, registry=registry
        )
        self._batch_requests = Histogram(
            "twofold_batch_requests", "Requests that are read together", model, buckets=REQUESTS, registry=registry
        )
        self._batch_tokens = Histogram(
            "twofold_batch_tokens", "Tokens that are read together", model, buckets=TOKENS, registry=registry
        )
        self._batch_seconds = Histogram(
            "twofold_batch_seconds", "Time in which a batch is read", model, buckets=SECONDS, registry=registry
        )
        self._waiting = Gauge(
            "twofold_waiting_requests", "Requests in a queue", model, registry=registry, multiprocess_mode="livesum"
        )
        self.running = Gauge(
            "twofold_running_requests", "Requests without an answer", registry=registry, multiprocess_mode="livesum"
        )
        ProcessCollector(registry=registry)

    def observe_batch(self, model: str, requests: int, tokens: int, seconds: float, waiting: int) -> None:
        """Counts a batch, after which so many requests wait."""
        self._batch_requests.labels(model).observe(requests)
        self._batch_tokens.labels(model).observe(tokens)
        self._batch_seconds.labels(model).observe(seconds)
        self._waiting.labels(model).set(waiting)

    def observe_request(self, route: str, status: int, seconds: float) -> None:
        """Counts a request."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """Metrics in Prometheus' text form, of all processes."""
        if METRICS not in os.environ:
            return generate_latest(self._registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)
