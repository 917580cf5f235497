"""What a source of weights holds: what will be written, what is not read, and what does not fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import Any

from torch import Tensor

from twofold.errors import SeveralErrors, TwofoldError
from twofold.storage import read_json

UNKNOWN, MISSING, SHAPE = "unknown", "missing", "another shape"
TRAINING, HEAD, CONSTANT = "training", "head", "constant"
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


@dataclass(frozen=True)
class Item:
    """One tensor, setting or module, and why it is not simply taken over."""

    why: str
    name: str
    shape: tuple[int, ...] | None = None
    expected: tuple[int, ...] | None = None
    """The shape that it should have."""

    def __str__(self) -> str:
        shape = f" {_shown(self.shape)}" if self.shape is not None else ""
        expected = f", expected {_shown(self.expected)}" if self.expected is not None else ""
        return f"{self.why}: {self.name}{shape}{expected}"


@dataclass(frozen=True)
class Found:
    """A source as it will be written."""

    format: str
    """Where it comes from: tensorflow-bert, tensorflow-gpt2, transformers or sentence-transformers."""
    config: Mapping[str, Any]
    """What config.json will hold."""
    tensors: Mapping[str, Tensor]
    tokenizer: Mapping[str, bytes]
    """The files that transformers makes the tokenizer from."""
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


def read_bytes(path: Path, remedy: str) -> bytes:
    """The content of a file; `remedy` ends the error line when there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise TwofoldError(f"{path}: no such file; {remedy}") from None
    except OSError as error:
        raise TwofoldError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None


def read_text(path: Path, remedy: str) -> str:
    """The same, as text."""
    try:
        return read_bytes(path, remedy).decode()
    except UnicodeDecodeError as error:
        raise TwofoldError(f"{path}: not valid UTF-8 ({error.reason} at byte {error.start}); {remedy}") from None


def whole_numbers(path: Path, names: Iterable[str], remedy: str) -> dict[str, Any]:
    """All settings in a JSON file, of which these must be there, each a positive whole number."""
    given = read_json(path, remedy)
    wrong = [name for name in names if type(given.get(name)) is not int or given[name] < 1]
    if wrong:
        raise TwofoldError(f"{path}: {', '.join(wrong)} must be there, as positive whole numbers; {remedy}")
    return given


def short(error: Exception) -> str:
    """What an error says, for a part of one line."""
    return shorten(str(error) or type(error).__name__, 200, placeholder=" ...")


def _shown(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"
