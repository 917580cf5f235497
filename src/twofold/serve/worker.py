"""One of several processes that serve: `python -m twofold.serve.worker`, started by the supervisor."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading

from twofold.errors import TwofoldError, one_line
from twofold.serve.workers import settings_from

READY = b"ready\n"
INPUT = 0
"""Descriptor of standard input."""


def main() -> None:
    """Serves with the settings on standard input, until that ends or a signal comes."""
    order = json.loads(_line())
    from twofold.serve.running import serve

    threading.Thread(target=_end_with_parent, daemon=True).start()
    opened = socket.socket(fileno=order["socket"])
    try:
        serve(settings_from(order["settings"]), opened, lambda: os.write(order["told"], READY))
    except TwofoldError as error:
        print(f"error: {one_line(str(error))}", file=sys.stderr)
        sys.exit(1)


def _line() -> bytes:
    """First line of standard input, without Python's buffer: a thread that waits in it would end the process badly."""
    line = b""
    while not line.endswith(b"\n") and (part := os.read(INPUT, 1 << 16)):
        line += part
    return line


def _end_with_parent() -> None:
    """Ends this process, cleanly, when the supervisor is gone."""
    while os.read(INPUT, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
