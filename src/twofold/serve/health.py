"""Routes for those who run the service: whether it lives, whether it is ready, and its metrics."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from twofold.serve.measuring import TYPE
from twofold.serve.routes import Call, Route, as_json


async def health(call: Call[Any]) -> Response:
    """Answers 200 while the process lives."""
    return as_json({"status": "ok"})


async def ready(call: Call[Any]) -> Response:
    """Answers 200 once all models are warm, and 503 while the service starts or ends."""
    is_ready = call.service.ready
    return as_json({"ready": is_ready}, 200 if is_ready else 503)


async def metrics(call: Call[Any]) -> Response:
    """Metrics in Prometheus' text form."""
    return Response(call.service.measures.text(), headers={"Content-Type": TYPE})


ROUTES = (
    Route("/health", health, method="GET", public=True),
    Route("/ready", ready, method="GET", public=True),
    Route("/metrics", metrics, method="GET"),
)
