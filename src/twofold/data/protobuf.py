"""Fields of protocol buffers, as SentencePiece models and ONNX files hold them, without the library of any format."""

from __future__ import annotations

from collections.abc import Iterator

Value = int | bytes


def fields(content: bytes) -> Iterator[tuple[int, Value]]:
    """Yields the field numbers and values of a protocol buffer."""
    at = 0
    while at < len(content):
        tag, at = number(content, at)
        form = tag & 7
        if form == 0:
            value, at = number(content, at)
            yield tag >> 3, value
            continue
        if form == 2:
            size, at = number(content, at)
        elif form in (1, 5):
            size = 8 if form == 1 else 4
        else:
            raise ValueError(f"a field of form {form}")
        if at + size > len(content):
            raise ValueError("it ends too early")
        yield tag >> 3, content[at : at + size]
        at += size


def number(content: bytes, at: int) -> tuple[int, int]:
    """Reads a varint of at most ten bytes; returns it and its end."""
    if at < len(content) and content[at] < 128:  # the common case
        return content[at], at + 1
    value = 0
    for shift, byte in enumerate(content[at : at + 10]):
        value |= (byte & 127) << 7 * shift
        if byte < 128:
            return value, at + shift + 1
    raise ValueError("it ends too early")


def as_bytes(value: Value) -> bytes:
    """Returns a value that must be bytes."""
    if not isinstance(value, bytes):
        raise ValueError("a field of another form")
    return value
