"""Contents of a source of weights: tensors to write, tensors that are not read, and misfits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal

from torch import Tensor

from twofold.errors import SeveralErrors, TwofoldError
from twofold.storage import read_json

Shape = tuple[int, ...]
KNOWN = ("training", "head", "constant")
"""Reasons for which a tensor is no part of an encoder; all other reasons are misfits."""
Why = Literal[
    "training", "head", "constant", "unknown", "missing", "another shape", "unknown setting", "module", "setting"
]
AGAIN = "copy the folder again"
"""Remedy for a missing or damaged file."""


@dataclass(frozen=True)
class Settings:
    """User's settings of a conversion."""

    kind: str | None = None
    """`bert` or `gpt2`, where the files do not tell."""
    cased: bool | None = None
    """True if BERT's tokenizer keeps capitals; None reads it from the files or the folder's name."""
    allow_mismatch: bool = False
    """Leaves out tensors and settings that do not fit, in place of an error."""

    def check_kind(self, source: Path, kind: str) -> None:
        """Refuses a source of another kind."""
        if self.kind not in (None, kind):
            raise TwofoldError(f"{source}: holds {kind}, and --kind says {self.kind}; leave --kind away")


@dataclass(frozen=True)
class Item:
    """Tensor, setting or module that is not taken over, with the reason."""

    why: Why
    name: str
    shape: Shape | None = None
    expected: Shape | None = None
    """Shape that it should have."""

    def __str__(self) -> str:
        shape = f" {_shown(self.shape)}" if self.shape is not None else ""
        expected = f", expected {_shown(self.expected)}" if self.expected is not None else ""
        return f"{self.why}: {self.name}{shape}{expected}"


@dataclass(frozen=True)
class Contents:
    """Contents of a source, as they will be written."""

    format: str
    """Format of the source: tensorflow-bert, tensorflow-gpt2, transformers or sentence-transformers."""
    config: Mapping[str, Any]
    """Content of config.json."""
    tokenizer: Mapping[str, bytes]
    """Files from which transformers makes the tokenizer."""
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Further files to write, by path in the folder."""
    not_read: tuple[Item, ...] = ()
    """Known tensors and settings that are no part of an encoder."""
    misfits: tuple[Item, ...] = ()
    exact: bool = False
    """True if weights and tokenizer must have the same vocabulary size."""


def refuse(source: Path, misfits: Iterable[Item], remedy: str) -> None:
    """Raises an error that lists all misfits by name and shape, if there are any."""
    lines = [str(item) for item in misfits]
    if len(lines) == 1:
        raise TwofoldError(f"{source}: does not fit ({lines[0]}); {remedy}")
    if lines:
        raise SeveralErrors([f"{source}: {len(lines)} things do not fit; {remedy}", *lines])


def read_bytes(path: Path) -> bytes:
    """Content of a file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise TwofoldError(f"{path}: no such file; {AGAIN}") from None
    except OSError as error:
        raise TwofoldError(f"{path}: cannot be read ({error.strerror}); {AGAIN}") from None


def read_text(path: Path) -> str:
    """Content of a file as text."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise TwofoldError(f"{path}: not valid UTF-8 ({error.reason} at byte {error.start}); {AGAIN}") from None


def whole_numbers(path: Path, names: Iterable[str]) -> dict[str, Any]:
    """Settings in a JSON file; each of `names` must be a positive whole number."""
    given = read_json(path, AGAIN)
    wrong = [name for name in names if type(given.get(name)) is not int or given[name] < 1]
    if wrong:
        raise TwofoldError(f"{path}: {', '.join(wrong)} must be there, as positive whole numbers; {AGAIN}")
    return given


def short(error: Exception) -> str:
    """Message of an error, shortened to part of a line."""
    return shorten(str(error) or type(error).__name__, 200, placeholder=" ...")


def _shown(shape: Shape) -> str:
    return f"({', '.join(map(str, shape))})"
