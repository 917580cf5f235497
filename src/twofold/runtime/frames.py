"""Messages between processes: a JSON object and arrays of numbers, with their lengths before them; never pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

LENGTH = 4
"""Number of bytes of the length that each message begins with."""


@dataclass(frozen=True)
class Frame:
    """Message."""

    about: Mapping[str, Any]
    arrays: Sequence[NDArray[Any]] = ()


def send(stream: IO[bytes], frame: Frame) -> None:
    """Writes a message."""
    shapes = [[array.dtype.str, array.shape] for array in frame.arrays]
    header = json.dumps({"about": frame.about, "arrays": shapes}).encode()
    stream.write(len(header).to_bytes(LENGTH, "little") + header)
    for array in frame.arrays:
        stream.write(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
    stream.flush()


def receive(stream: IO[bytes]) -> Frame | None:
    """Reads a message; None if there are no more, an EOFError in the middle of one."""
    start = stream.read(LENGTH)
    if not start:
        return None
    header = json.loads(_exactly(stream, int.from_bytes(start, "little")))
    arrays = []
    for dtype, shape in header["arrays"]:
        empty = np.empty(shape, np.dtype(dtype))
        arrays.append(np.frombuffer(_exactly(stream, empty.nbytes), empty.dtype).reshape(shape))
    return Frame(header["about"], arrays)


def _exactly(stream: IO[bytes], count: int) -> bytes:
    content = stream.read(count)
    if len(content) < count:
        raise EOFError("the message is cut short")
    return content
