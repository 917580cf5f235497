"""Files with a checksum for each block, which is compared before the block is used for the first time."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from twofold.errors import TwofoldError

BLOCK = 1 << 18
"""Bytes under one checksum."""


@dataclass
class SummedFile:
    """A file that is being written, and the CRC-32 of each of its blocks."""

    file: IO[bytes]
    size: int = 0
    _sums: list[int] = field(default_factory=list)

    def write(self, content: bytes) -> None:
        self.file.write(content)
        view = memoryview(content)
        while view:
            place = self.size % BLOCK
            part = view[: BLOCK - place]
            if place:
                self._sums[-1] = zlib.crc32(part, self._sums[-1])
            else:
                self._sums.append(zlib.crc32(part))
            self.size += len(part)
            view = view[len(part) :]

    def about(self) -> dict[str, Any]:
        """The size and the checksums, as JSON can hold them."""
        return {"size": self.size, "crc32": np.array(self._sums, "<u4").tobytes().hex()}


class CheckedFile:
    """The bytes of a file, mapped into memory."""

    def __init__(self, path: Path, about: dict[str, Any], remedy: str) -> None:
        self.path, self.remedy = path, remedy
        self._sums: list[int] = np.frombuffer(bytes.fromhex(about["crc32"]), "<u4").tolist()
        self._unchecked = set(range(len(self._sums)))
        try:
            size = path.stat().st_size
            # An empty file, as of a column without a single number, cannot be mapped.
            self.bytes: NDArray[np.uint8] = np.memmap(path, np.uint8, "r") if size else np.empty(0, np.uint8)
        except OSError as error:
            raise TwofoldError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None
        if size != about["size"]:
            raise TwofoldError(f"{path}: damaged, {size:,} bytes long, not {about['size']:,}; {remedy}")

    def check(self, start: int, stop: int) -> None:
        """Compare the blocks that hold these bytes with their checksums, each once."""
        if not self._unchecked:
            return
        for block in range(start // BLOCK, -(-stop // BLOCK)):
            if block in self._unchecked:
                if zlib.crc32(self.bytes[block * BLOCK : (block + 1) * BLOCK].tobytes()) != self._sums[block]:
                    raise TwofoldError(f"{self.path}: damaged near byte {block * BLOCK:,}; {self.remedy}")
                self._unchecked.discard(block)

    def whole(self, kind: np.dtype[Any]) -> NDArray[Any]:
        """All numbers of the file, checked."""
        self.check(0, len(self.bytes))
        return self.bytes.view(kind)
