"""Client that writes HTTP by hand: a library would take as much of the processor as the server does."""

from __future__ import annotations

import asyncio

LATE = 60.0
"""Seconds after which an answer no longer comes."""


class Connection:
    """Connection of a client, opened anew whenever the server has closed it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: bytes = b"", headers: str = "") -> tuple[int, bytes]:
        """Sends a request and reads its answer: status and body; status 0 if the connection broke."""
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: application/json\r\n{headers}"
        try:
            async with asyncio.timeout(LATE):
                return await self._exchange(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            self.close()
            return 0, b""

    async def _exchange(self, sent: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        reader, writer = self._streams
        writer.write(sent)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        content = await reader.readexactly(length)
        if b"connection: close" in head:
            self.close()
        return int(head.split(b" ", 2)[1]), content

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None
