"""Inputs as JSON gives them: texts, words and pairs as they are, images and sounds as base64, never a path."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twofold.config import kind_of
from twofold.data.file_columns import FileSettings
from twofold.data.images import ImageFile
from twofold.data.named_files import FileError, Files
from twofold.inputs import Input
from twofold.serve.errors import RefusalError, too_many
from twofold.serve.settings import Limits

PARTS = ("first", "second")
"""Names of the two texts of a pair."""


@dataclass(frozen=True)
class Upload(Files):
    """File of a request; it has no name that could lead anywhere."""

    content: bytes = field(repr=False)

    def names(self) -> list[str]:
        return [self.root.name]

    def read(self, name: str) -> bytes:
        return self.content

    def fingerprint(self, names: Iterable[str]) -> str:
        return ""

    def place(self, name: str) -> str:
        return name


def uploaded(side: Input[Any], content: bytes, place: str, limits: Limits) -> Any:
    """Makes the file that an input reads of its content."""
    config = side.config
    if not isinstance(config, FileSettings):
        raise RefusalError("invalid", f"{place}: a file, and this model reads {side.config.noun}s", place)
    file = config.file(Upload(Path(place), content), place)
    if isinstance(file, ImageFile):
        try:
            height, width = file.size()
        except FileError as error:
            raise RefusalError("invalid", str(error), place) from None
        if height * width > limits.pixels:
            raise too_many("pixels", height * width, limits.pixels, place)
    return file


def value_of(side: Input[Any], given: Any, place: str, limits: Limits) -> Any:
    """Converts a JSON value to what an input reads."""
    config = side.config
    if isinstance(given, bytes):  # a file of a form
        return uploaded(side, given, place, limits)
    if isinstance(config, FileSettings):
        name = kind_of(side.config)
        text = given.get(name) if isinstance(given, Mapping) else None
        if not isinstance(text, str):
            said = f'{place}: this model reads {config.noun}s; send {{"{name}": "<base64>"}}'
            raise RefusalError("invalid", said, place)
        return uploaded(side, from_base64(text, f"{place}.{name}"), f"{place}.{name}", limits)
    if isinstance(given, list) and len(given) > limits.texts:
        raise too_many("entries", len(given), limits.texts, place)
    if isinstance(given, Mapping):
        if set(given) != set(PARTS):
            raise RefusalError(
                "invalid", f"{place}: an object, and this model reads {config.noun}s; send a text", place
            )
        given = [given[name] for name in PARTS]
    if config.texts > 1 and (not isinstance(given, list) or len(given) != config.texts):
        said = f'{place}: this model reads two texts; send {{"first": "...", "second": "..."}}'
        raise RefusalError("invalid", said, place)
    return given


def from_base64(text: str, place: str) -> bytes:
    """Decodes base64, with or without `data:...;base64,` before it."""
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise RefusalError("invalid", f"{place}: not base64; send the content of the file in base64", place) from None
