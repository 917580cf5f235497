"""Runs the service: in this process, or in several behind a supervisor."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn

from twofold.errors import TwofoldError
from twofold.serve.app import make_app
from twofold.serve.protocol import protocol_of
from twofold.serve.service import Service
from twofold.serve.settings import Settings
from twofold.serve.workers import SPARE, Supervisor

SWITCH = 0.0005
"""Seconds after which a thread lets others have the interpreter: the event loop must not wait for a model's thread."""
BACKLOG = 1024


def listening(settings: Settings) -> socket.socket:
    """Opens the socket of the service, on which connections wait until it is ready."""
    opened = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place = f"{settings.host}:{settings.port}"
    try:
        opened.bind((settings.host, settings.port))
        opened.listen(BACKLOG)
    except (OSError, UnicodeError) as error:
        opened.close()
        reason = getattr(error, "strerror", None) or error
        raise TwofoldError(f"{place}: cannot listen there ({reason}); choose another --host or --port") from None
    opened.set_inheritable(True)
    return opened


def run(settings: Settings, say: Callable[[str], None]) -> None:
    """Serves until a signal comes; accepted requests are finished."""
    opened = listening(settings)
    place = address(settings, opened)
    if settings.open_to_all:
        say("there is no --key, and other machines can reach this service: whoever does may ask and change indexes")
    if settings.workers > 1:
        Supervisor(settings, opened, say).run(f"serving on {place} with {settings.workers} processes")
    else:
        serve(settings, opened, lambda: say(f"serving on {place}"))


def serve(settings: Settings, opened: socket.socket, tell: Callable[[], object]) -> None:
    """Serves in this process; `tell` is called when it is ready."""
    sys.setswitchinterval(SWITCH)
    warnings.simplefilter("ignore")  # of texts that are cut, again and again
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    limits, app = settings.limits, make_app(settings)
    config = uvicorn.Config(
        app,
        http=protocol_of(limits),
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=int(limits.idle_seconds),
        timeout_graceful_shutdown=int(limits.seconds + SPARE),
    )
    Server(config, app.service, tell).run([opened])
    if app.service.failure is not None:
        raise app.service.failure


class Server(uvicorn.Server):
    """Server that tells when it is ready, and ends with status 0 after a signal."""

    def __init__(self, config: uvicorn.Config, service: Service, tell: Callable[[], object]) -> None:
        super().__init__(config)
        self._service, self._tell = service, tell

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._service.failure is not None:
            self.should_exit = True
        elif self.started:
            self._tell()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ends at the first signal to end, at once at the second of the keyboard."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, frame: FrameType | None) -> None:
            self.handle_exit(number, frame)

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def address(settings: Settings, opened: socket.socket) -> str:
    """Address of the service for a browser."""
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{opened.getsockname()[1]}"
