"""What a source of weights holds: what will be written, what is not read, and what does not fit."""

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
"""Why a tensor is no part of an encoder; the other reasons are misfits."""
Why = Literal[
    "training", "head", "constant", "unknown", "missing", "another shape", "unknown setting", "module", "setting"
]
AGAIN = "copy the folder again"
"""What helps where a file is missing or damaged."""


@dataclass(frozen=True)
class Settings:
    """What the user says about a source."""

    kind: str | None = None
    """`bert` or `gpt2`, where the files do not tell."""
    cased: bool | None = None
    """Whether BERT's tokenizer keeps capitals, where neither the files nor the folder's name tell."""
    allow_mismatch: bool = False
    """Go on without what does not fit."""

    def check_kind(self, source: Path, kind: str) -> None:
        """Refuse a source that holds another kind."""
        if self.kind not in (None, kind):
            raise TwofoldError(f"{source}: holds {kind}, and --kind says {self.kind}; leave --kind away")


@dataclass(frozen=True)
class Item:
    """One tensor, setting or module, and why it is not simply taken over."""

    why: Why
    name: str
    shape: Shape | None = None
    expected: Shape | None = None
    """The shape that it should have."""

    def __str__(self) -> str:
        shape = f" {_shown(self.shape)}" if self.shape is not None else ""
        expected = f", expected {_shown(self.expected)}" if self.expected is not None else ""
        return f"{self.why}: {self.name}{shape}{expected}"


@dataclass(frozen=True)
class Contents:
    """A source as it will be written."""

    format: str
    """Where it comes from: tensorflow-bert, tensorflow-gpt2, transformers or sentence-transformers."""
    config: Mapping[str, Any]
    """What config.json will hold."""
    tokenizer: Mapping[str, bytes]
    """The files that transformers makes the tokenizer from."""
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Further files to write, by their path in the folder."""
    not_read: tuple[Item, ...] = ()
    """What is known, and no part of an encoder."""
    misfits: tuple[Item, ...] = ()
    exact: bool = False
    """Whether the weights must know just as many tokens as the tokenizer."""


def refuse(source: Path, misfits: Iterable[Item], remedy: str) -> None:
    """End with all that does not fit, each by name and shape, if there is any."""
    lines = [str(item) for item in misfits]
    if len(lines) == 1:
        raise TwofoldError(f"{source}: does not fit ({lines[0]}); {remedy}")
    if lines:
        raise SeveralErrors([f"{source}: {len(lines)} things do not fit; {remedy}", *lines])


def read_bytes(path: Path) -> bytes:
    """The content of a file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise TwofoldError(f"{path}: no such file; {AGAIN}") from None
    except OSError as error:
        raise TwofoldError(f"{path}: cannot be read ({error.strerror}); {AGAIN}") from None


def read_text(path: Path) -> str:
    """The same, as text."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise TwofoldError(f"{path}: not valid UTF-8 ({error.reason} at byte {error.start}); {AGAIN}") from None


def whole_numbers(path: Path, names: Iterable[str]) -> dict[str, Any]:
    """All settings in a JSON file, of which these must be there, each a positive whole number."""
    given = read_json(path, AGAIN)
    wrong = [name for name in names if type(given.get(name)) is not int or given[name] < 1]
    if wrong:
        raise TwofoldError(f"{path}: {', '.join(wrong)} must be there, as positive whole numbers; {AGAIN}")
    return given


def short(error: Exception) -> str:
    """What an error says, for a part of one line."""
    return shorten(str(error) or type(error).__name__, 200, placeholder=" ...")


def _shown(shape: Shape) -> str:
    return f"({', '.join(map(str, shape))})"
