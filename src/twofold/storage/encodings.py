"""Guesses the encoding of a file that is not UTF-8, and how to convert it."""

from __future__ import annotations

import codecs
import shlex
from collections.abc import Callable
from pathlib import Path

SAMPLE = 1 << 20
"""Number of bytes inspected in a file."""


def conversion(path: Path, sample: bytes) -> str:
    """Ends the error about a file that is not UTF-8: its likely encoding and the command that converts it."""
    name = likely_encoding(sample)
    if name is None:
        return ""
    before, after = shlex.quote(path.name), shlex.quote(f"utf8-{path.name}")
    command = f"iconv -f {name} -t UTF-8 {before} > {after}"
    if path.suffix == ".gz":
        command = f"zcat {before} | iconv -f {name} -t UTF-8 | gzip > {after}"
    return f"; it looks like {name}: convert it with `{command}`"


def likely_encoding(sample: bytes) -> str | None:
    """Guesses the encoding of bytes that are not UTF-8; None if no encoding fits."""
    if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16"
    if utf_16 := _utf_16_without_mark(sample):
        return utf_16
    if _mostly_utf_8(sample):  # some bytes are damaged or come from another file
        return None
    for name, codec, share, least in _LEGACY:
        try:
            text = codecs.getincrementaldecoder(codec)().decode(sample)  # the last character may be cut off
        except UnicodeDecodeError:
            continue
        beyond = [character for character in text if character > "\x7f"]
        if beyond and sum(map(share, beyond)) >= least * len(beyond):
            return name
    return None


def _utf_16_without_mark(sample: bytes) -> str | None:
    """Detects Latin text in UTF-16 by the zero in every second byte."""
    for name, zeros, letters in (("UTF-16LE", sample[1::2], sample[::2]), ("UTF-16BE", sample[::2], sample[1::2])):
        if len(sample) > 1 and zeros.count(0) > 0.4 * len(zeros) and letters.count(0) < 0.1 * len(letters):
            return name
    return None


def _mostly_utf_8(sample: bytes) -> bool:
    text = sample.decode("utf-8", errors="replace")
    wrong = text.count("\ufffd")
    return sum(character > "\x7f" for character in text) - wrong > wrong


def _between(*ranges: tuple[str, str]) -> Callable[[str], bool]:
    return lambda character: any(first <= character <= last for first, last in ranges)


_LEGACY: tuple[tuple[str, str, Callable[[str], bool], float], ...] = (
    ("SHIFT_JIS", "shift_jis", _between(("\u3040", "\u30ff")), 0.2),  # before CP949, which reads it as rare Hangul
    ("CP949", "cp949", _between(("\uac00", "\ud7a3"), ("\u3130", "\u318f")), 0.9),
    ("GB18030", "gb18030", _between(("\u4e00", "\u9fff"), ("\u3000", "\u303f"), ("\uff00", "\uffef")), 0.9),
    ("CP1252", "cp1252", str.isalpha, 0.5),
    ("ISO-8859-1", "latin-1", str.isalpha, 0.5),
)
"""Name, codec, test for characters beyond ASCII typical of the encoding, and their minimum share."""
