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


def main() -> None:
    """Serves with the settings on standard input, until that ends or a signal comes."""
    order = json.loads(sys.stdin.buffer.readline())
    from twofold.serve.running import serve

    threading.Thread(target=_end_with_parent, daemon=True).start()
    opened = socket.socket(fileno=order["socket"])
    try:
        serve(settings_from(order["settings"]), opened, lambda: os.write(order["told"], READY))
    except TwofoldError as error:
        print(f"error: {one_line(str(error))}", file=sys.stderr)
        sys.exit(1)


def _end_with_parent() -> None:
    """Ends this process, cleanly, when the supervisor is gone."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
