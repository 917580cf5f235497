"""Interface of reading inputs without twofold: what an exported model tells others about its inputs."""

from __future__ import annotations

from typing import Any, ClassVar

from twofold.errors import TwofoldError

TEXTS = (
    "",
    "a",
    "🙂",
    "How do I list the files of a folder?",
    "한국어 문장도 읽습니다.",
    "tab\tline\nbell\x07 and\u200bmore",
    "a much longer text " * 12,
    "long " * 3000,
)
"""Sample texts: empty, one letter, emoji, plain, Korean, control characters, longer, and beyond every limit."""


class ReadsElsewhere:
    """Defaults of an input type that cannot be read elsewhere."""

    example: ClassVar[str] = '"how do I list a folder?"'
    """Sample value as an expression of Python, with numpy as `np`."""

    def reading(self) -> dict[str, Any]:
        """Settings that turn a value into arrays, as JSON values; `reader` is the function in `exporting/read.py`."""
        raise TwofoldError(f"{type(self).__name__} has no reading(), which tells others how its inputs become arrays")

    def samples(self) -> list[Any]:
        """Sample values of unlike lengths or sizes, on which an export is checked."""
        raise TwofoldError(f"{type(self).__name__} has no samples(), on which an export is checked")
