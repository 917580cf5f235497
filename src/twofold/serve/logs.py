"""Access log: one JSON object a line on standard error, without texts unless they were asked for."""

from __future__ import annotations

import sys
import time
from typing import TextIO

import orjson
from starlette.types import Scope

LONGEST = 200
"""Maximum number of characters of a path."""


class AccessLog:
    """Log of requests."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def write(self, scope: Scope, status: int, seconds: float, size: int) -> None:
        """Writes a line about a request."""
        client, body = scope.get("client") or ("", 0), scope.get("state", {}).get("body")
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "client": client[0],
            "method": scope["method"],
            "path": scope["path"][:LONGEST],
            "status": status,
            "milliseconds": round(seconds * 1000, 2),
            "bytes": size,
        }
        line |= {} if body is None else {"body": body}
        stream = self._stream or sys.stderr
        stream.write(orjson.dumps(line).decode() + "\n")
        stream.flush()
