"""Access log: one JSON object a line on standard error, without texts unless asked for."""

from __future__ import annotations

import json
import sys
import time
from typing import TextIO

from starlette.types import Scope

LONGEST = 200
"""Maximum number of characters of a path."""


class AccessLog:
    """Log of requests."""

    def __init__(self, texts: bool, stream: TextIO | None = None) -> None:
        self._texts, self._stream = texts, stream

    def write(self, scope: Scope, status: int, seconds: float, size: int) -> None:
        """Writes a line about a request."""
        client = scope.get("client") or ("", 0)
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "client": client[0],
            "method": scope["method"],
            "path": scope["path"][:LONGEST],
            "status": status,
            "milliseconds": round(seconds * 1000, 2),
            "bytes": size,
            **scope.get("state", {}).get("logged", {}),
        }
        print(json.dumps(line), file=self._stream or sys.stderr)
