"""Runs the service in this process with uvicorn."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from twofold.errors import TwofoldError
from twofold.serve.app import make_app
from twofold.serve.settings import Settings


def listening(settings: Settings) -> socket.socket:
    """Opens the socket of the service."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    opened = socket.socket(family)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((settings.host, settings.port))
    except OSError as error:
        opened.close()
        place = f"{settings.host}:{settings.port}"
        raise TwofoldError(f"{place}: cannot listen there ({error.strerror}); choose another --port") from None
    opened.set_inheritable(True)
    return opened


def run(settings: Settings, opened: socket.socket, say: Callable[[str], None]) -> None:
    """Serves until a signal ends it; accepted requests are finished."""
    app = make_app(settings)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, date_header=True, lifespan="on"
    )
    say(address(settings, opened))
    uvicorn.Server(config).run([opened])


def address(settings: Settings, opened: socket.socket) -> str:
    """Address of the service for a browser."""
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{opened.getsockname()[1]}"
