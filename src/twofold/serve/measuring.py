"""Metrics for Prometheus: requests, batches, queues and memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.process_collector import ProcessCollector

from twofold.serve.batching import Batcher

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128)
TOKENS = (32, 128, 512, 1024, 2048, 4096, 8192)
TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Measures:
    """Counters and histograms of a process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        names = ("route", "status")
        self.requests = Counter("twofold_requests_total", "Requests", names, registry=self._registry)
        self.seconds = Histogram(
            "twofold_request_seconds",
            "Seconds from request to answer",
            ("route",),
            buckets=SECONDS,
            registry=self._registry,
        )
        model, registry = ("model",), self._registry
        self.batch_requests = Histogram(
            "twofold_batch_requests", "Requests that are read together", model, buckets=REQUESTS, registry=registry
        )
        self.batch_tokens = Histogram(
            "twofold_batch_tokens", "Tokens that are read together", model, buckets=TOKENS, registry=registry
        )
        self.batch_seconds = Histogram(
            "twofold_batch_seconds", "Seconds in which a batch is read", model, buckets=SECONDS, registry=registry
        )
        self.waiting = Gauge("twofold_waiting_requests", "Requests in the queue", model, registry=registry)
        self.running = Gauge("twofold_running_requests", "Requests without an answer yet", registry=registry)
        ProcessCollector(registry=registry)

    def watch(self, batchers: Sequence[Batcher]) -> None:
        """Reads the lengths of queues whenever metrics are asked for."""
        for batcher in batchers:
            self.waiting.labels(batcher.name).set_function(partial(_waiting, batcher))

    def observe_batch(self, model: str, requests: int, tokens: int, seconds: float) -> None:
        self.batch_requests.labels(model).observe(requests)
        self.batch_tokens.labels(model).observe(tokens)
        self.batch_seconds.labels(model).observe(seconds)

    def observe_request(self, route: str, status: int, seconds: float) -> None:
        self.requests.labels(route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """Metrics in Prometheus' text form."""
        return generate_latest(self._registry)


def _waiting(batcher: Batcher) -> float:
    return float(batcher.waiting)
