"""Servers in a thread of the test: the whole application on a port of loopback, and what it answers."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from typing import Any

import pytest
import uvicorn

from twofold.serve.app import make_app
from twofold.serve.protocol import protocol_of
from twofold.serve.running import Server, listening
from twofold.serve.service import Service
from twofold.serve.settings import Limits, Settings

TORCH = {"runtime": "torch", "precision": "float32", "log": False}
"""Settings by which answers equal those of the models in the tests."""


@dataclass(frozen=True)
class Served:
    """Server that runs."""

    port: int
    service: Service

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Message, bytes]:
        """Status, headers and content of an answer."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        status, _, content = self.send(method, path, None if body is None else json.dumps(body).encode(), headers)
        return status, json.loads(content)

    def post(self, path: str, **body: Any) -> Any:
        """JSON of an answer that is none of an error."""
        status, content = self.ask("POST", path, body)
        assert status == 200, content
        return content


@contextlib.contextmanager
def serving(*served: str, limits: Limits | None = None, **settings: Any) -> Iterator[Served]:
    """Serves models and indexes until the block ends."""
    chosen = Settings(served, port=0, limits=limits or Limits(), **{**TORCH, **settings})
    app, opened, ready = make_app(chosen), listening(chosen), threading.Event()
    config = uvicorn.Config(
        app, http=protocol_of(chosen.limits), ws="none", log_config=None, log_level="critical", server_header=False
    )
    server = Server(config, app.service, ready.set)
    thread = threading.Thread(target=server.run, args=([opened],))
    thread.start()
    try:
        while not ready.wait(0.1):
            assert thread.is_alive(), app.service.failure
        yield Served(opened.getsockname()[1], app.service)
    finally:
        server.should_exit = True
        thread.join()


def connected(served: Served) -> socket.socket:
    """Connection to a server, to send what no client library would."""
    return socket.create_connection(("127.0.0.1", served.port), timeout=30)


def assert_alike(given: Any, expected: Any) -> None:
    """Equal values, but for the last digits of numbers: other batches round in another way."""
    if isinstance(expected, dict):
        assert given.keys() == expected.keys()
        for name in expected:
            assert_alike(given[name], expected[name])
    elif isinstance(expected, list):
        assert len(given) == len(expected)
        for mine, theirs in zip(given, expected, strict=True):
            assert_alike(mine, theirs)
    elif isinstance(expected, float):
        assert given == pytest.approx(expected, rel=1e-3, abs=1e-4)
    else:
        assert given == expected
