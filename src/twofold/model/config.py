"""All that must be known to build a model, and the check that its parts fit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from twofold.config import DecoderPart, EncoderPart, kind_of, kinds, part_config
from twofold.data.fields import TooLong
from twofold.errors import TwofoldError
from twofold.generate.options import GenerateOptions
from twofold.types import DecoderConfig, EncoderConfig

MAIN = "main"
"""The name of a model's only decoder."""
SOURCE = "source"


@dataclass(frozen=True)
class DecoderSlot:
    """One decoder, what it learns to write, and how much that counts."""

    part: DecoderPart
    target: str
    """The column it learns from."""
    weight: float = 1.0
    """What its loss is multiplied by."""


@dataclass(frozen=True)
class ModelConfig:
    """The two parts and what passes in and out."""

    encoder: EncoderPart
    decoders: Mapping[str, DecoderSlot]
    source: str
    """The column that is read."""
    max_source: int
    max_target: int
    too_long: TooLong = "cut"
    tie_embeddings: bool = False
    """Whether all parts share one table of token vectors."""
    generate: GenerateOptions = field(default_factory=GenerateOptions)

    def needs(self) -> frozenset[str]:
        """The fields of `Hidden` that some decoder reads."""
        return frozenset().union(*(cast(DecoderConfig, slot.part).needs() for slot in self.decoders.values()))

    def check(self) -> None:
        """Refuse parts that do not fit, naming what is needed, what is given and what would do."""
        gives = cast(EncoderConfig, self.encoder).spec().gives()
        for name, slot in self.decoders.items():
            if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name == SOURCE:
                raise TwofoldError(f"recipe.decoders: '{name}' cannot be the name of a decoder; use a-z, 0-9 and _")
            needs = cast(DecoderConfig, slot.part).needs()
            if not needs <= gives:
                raise TwofoldError(
                    f"the decoder '{kind_of(slot.part)}' needs {_and(needs)}, "
                    f"but the encoder '{kind_of(self.encoder)}' "
                    f"gives {_and(gives)}; these would do: {_and(_encoders_giving(needs))}"
                )


def _encoders_giving(needs: frozenset[str]) -> list[str]:
    return [
        kind
        for kind in kinds("encoders")
        if needs <= cast(EncoderConfig, part_config("encoders", kind)()).spec().gives()
    ]


def _and(names: frozenset[str] | list[str]) -> str:
    return " and ".join(sorted(names)) or "none"
