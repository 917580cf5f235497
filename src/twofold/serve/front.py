"""Front of the application: checks hosts and keys, counts requests, and writes the access log."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from twofold.serve.errors import PLAIN, Convention
from twofold.serve.keys import Keys
from twofold.serve.logs import AccessLog
from twofold.serve.routes import Route, as_json
from twofold.serve.service import Service

OTHER = "other"
"""Name of the routes that there are not, in metrics: names of clients' choice would fill the memory."""


class Front:
    """ASGI application around another."""

    def __init__(self, app: ASGIApp, service: Service, routes: Sequence[Route]) -> None:
        self.app, self.service = app, service
        self._keys = Keys(service.settings)
        self._log = AccessLog() if service.settings.log else None
        self._routes = {(route.method, route.path): route for route in routes if "{" not in route.path}
        self._patterns = [(_pattern(route.path), route) for route in routes if "{" in route.path]

    def route(self, method: str, path: str) -> Route | None:
        """Route of a request."""
        method = "GET" if method == "HEAD" else method
        known = self._routes.get((method, path))
        if known is not None:
            return known
        several = (route for pattern, route in self._patterns if route.method == method and pattern.fullmatch(path))
        return next(several, None)

    def convention(self, method: str, path: str) -> Convention:
        """Form of errors of a route; for a method that a path does not take, that of its other methods."""
        route = self.route(method, path)
        if route is not None:
            return route.convention
        known = [route for (_, place), route in self._routes.items() if place == path]
        known += [route for pattern, route in self._patterns if pattern.fullmatch(path)]
        return known[0].convention if known else PLAIN

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, size = time.perf_counter(), 500, 0
        route = self.route(scope["method"], scope["path"])

        async def sent(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                size += len(message.get("body", b""))
            await send(message)

        measures = self.service.measures
        measures.running.inc()
        limits = self.service.settings.limits
        try:
            refusal = self._keys.check(Headers(scope=scope), route)
            if refusal is None:
                # Beyond the time limits of the parts: a client may also read its answer too slowly.
                async with asyncio.timeout(limits.read_seconds + 2 * limits.seconds):
                    await self.app(scope, receive, sent)
            else:
                convention = self.convention(scope["method"], scope["path"])
                answer = as_json(convention.body(refusal), convention.status(refusal), refusal.headers)
                await answer(scope, receive, sent)
        except TimeoutError:
            status = 408
        finally:
            measures.running.dec()
            self.service.memory.after(size)
            seconds = time.perf_counter() - start
            measures.observe_request(route.path if route else OTHER, status, seconds)
            if self._log is not None:
                self._log.write(scope, status, seconds, size)


def _pattern(path: str) -> re.Pattern[str]:
    """Pattern of the paths of a route."""
    return re.compile(re.sub(r"\{\w+\}", "[^/]+", re.sub(r"\{\w+:path\}", ".+", path)))
