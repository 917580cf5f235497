"""HTTP connections: those that are too slow, too many or not HTTP are answered and closed before they cost much."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from twofold.serve.errors import PLAIN, RefusalError
from twofold.serve.settings import Limits

LARGEST_HEAD = 64 << 10
"""Maximum number of bytes of a request's line and headers."""


def protocol_of(limits: Limits) -> type[HttpToolsProtocol]:
    """Makes the class of connections within limits."""

    class Connection(LimitedConnection):
        pass

    Connection.limits = limits
    return Connection


class LimitedConnection(HttpToolsProtocol):
    """Connection whose requests must arrive in time."""

    limits: Limits
    _deadline: asyncio.TimerHandle | None = None
    _head = 0
    """Number of bytes of the request's line and headers so far."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(429, RefusalError("overloaded", "too many connections; try again"), "retry-after: 1\r\n")
            return
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._deadline is not None:
            self._head += len(data)
            if self._head > LARGEST_HEAD + self.limits.body:  # headers may come with a body
                self._too_large()
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_request()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if sum(len(key) + len(text) for key, text in self.headers[-1:]) + len(self.url) > LARGEST_HEAD:
            self._too_large()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > LARGEST_HEAD:
            self._too_large()
            return
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, RefusalError("malformed", "not a valid HTTP request"))

    def _expect_request(self) -> None:
        """Waits for the headers of a request, but not forever."""
        self._head = 0
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.limits.read_seconds, self._too_slow)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        said = f"the headers took longer than {self.limits.read_seconds:g} s to arrive; send them at once"
        self._refuse(408, RefusalError("slow", said))

    def _too_large(self) -> None:
        self._refuse(431, RefusalError("too_large", f"headers of over {LARGEST_HEAD:,} bytes; send fewer"))

    def _refuse(self, status: int, refusal: RefusalError, headers: str = "") -> None:
        """Answers without the application, and closes the connection."""
        self._stop_waiting()
        if self.transport.is_closing():
            return
        body = json.dumps(PLAIN.body(refusal))
        line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
        about = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n{headers}\r\n"
        self.transport.write((line + about + body).encode())
        self.transport.close()
