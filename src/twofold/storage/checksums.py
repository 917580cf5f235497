"""Files with a CRC-32 for each block, verified before the block is first used."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from twofold.errors import TwofoldError

BLOCK = 1 << 18
"""Bytes covered by one checksum."""


@dataclass
class SummedFile:
    """File being written, with the CRC-32 of each of its blocks."""

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

    def checksums(self) -> bytes:
        """Returns the CRC-32 of each block so far, four bytes each."""
        return np.array(self._sums, "<u4").tobytes()

    def about(self) -> dict[str, Any]:
        """Returns the size and the checksums as JSON values."""
        return {"size": self.size, "crc32": self.checksums().hex()}


class CheckedBytes:
    """Memory-mapped bytes of a file, with the checksums that its blocks must have."""

    def __init__(self, path: Path, content: NDArray[np.uint8], checksums: bytes, remedy: str) -> None:
        """checksums: as `SummedFile.checksums` gives them; remedy: ends the error line of a damaged block"""
        self.path, self.bytes, self.remedy = path, content, remedy
        self._sums: list[int] = np.frombuffer(checksums, "<u4").tolist()
        if len(self._sums) != -(-len(content) // BLOCK):
            raise TwofoldError(f"{path}: damaged, {len(self._sums):,} checksums of {len(content):,} bytes; {remedy}")
        self._checked = bytearray(len(self._sums))

    def check(self, start: int, stop: int) -> None:
        """Verifies the blocks that hold these bytes, each once."""
        first, end = start // BLOCK, -(-stop // BLOCK)
        while (first := self._checked.find(0, first, end)) >= 0:
            self._check_block(first)

    def check_rows(self, starts: NDArray[np.int64], size: int) -> None:
        """Verifies many short rows at once: `size` bytes from each of `starts`, less than a block."""
        blocks = np.unique(np.concatenate([starts // BLOCK, (starts + size - 1) // BLOCK]))
        for block in blocks[~np.frombuffer(self._checked, np.bool_)[blocks]].tolist():
            self._check_block(block)

    def check_again(self) -> None:
        """Verifies every block, also those verified before."""
        self._checked = bytearray(len(self._sums))
        self.check(0, len(self.bytes))

    def _check_block(self, block: int) -> None:
        if zlib.crc32(self.bytes[block * BLOCK : (block + 1) * BLOCK].tobytes()) != self._sums[block]:
            raise TwofoldError(f"{self.path}: damaged near byte {block * BLOCK:,}; {self.remedy}")
        self._checked[block] = True


class CheckedFile(CheckedBytes):
    """File mapped into memory for reading; its length must match what was written."""

    def __init__(self, path: Path, about: dict[str, Any], remedy: str) -> None:
        """about: as `SummedFile.about` gives it"""
        try:
            size = path.stat().st_size
            # An empty file (a column without any number) cannot be mapped.
            content: NDArray[np.uint8] = np.memmap(path, np.uint8, "r") if size else np.empty(0, np.uint8)
        except OSError as error:
            raise TwofoldError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None
        if size != about["size"]:
            raise TwofoldError(f"{path}: damaged, {size:,} bytes long, not {about['size']:,}; {remedy}")
        super().__init__(path, content, bytes.fromhex(about["crc32"]), remedy)

    def whole(self, kind: np.dtype[Any]) -> NDArray[Any]:
        """Returns all numbers of the file, verified."""
        self.check(0, len(self.bytes))
        return self.bytes.view(kind)
