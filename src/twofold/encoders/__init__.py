"""f : X → H. Each encoder is one file; this one says what the settings of every encoder offer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from twofold.config import Part, Role
from twofold.data.tokenizer import TextTokenizer
from twofold.inputs.text import Tokens
from twofold.types import Encoder, HiddenSpec, InputBatch


@dataclass(frozen=True)
class EncoderConfig(Part):
    """Settings of an encoder; they know what it will give, and build it."""

    role: ClassVar[Role] = "encoders"
    sizes: ClassVar[bool] = True
    input: ClassVar[str] = "text"
    """The kind of input that it reads unless a recipe or an output says."""
    reads: ClassVar[type[InputBatch]] = Tokens
    """What it reads."""

    def beside(self) -> type[InputBatch] | None:
        """What it can read beside that, if anything."""
        return None

    def alone(self) -> Self:
        """The same, which reads nothing beside its input."""
        return self

    def spec(self) -> HiddenSpec:
        """What it gives."""
        raise NotImplementedError

    def gives(self) -> frozenset[str]:
        """The fields of `Hidden` that it can fill, known without loading anything."""
        return self.spec().gives()

    def build(self, vocabulary: Any, needs: frozenset[str]) -> Encoder:
        """A new encoder that fills the fields of `Hidden` that are needed.

        vocabulary: the `InputSpec` of what it `reads`: of texts the `Vocabulary`, of sounds their `Features`
        """
        raise NotImplementedError

    def settled(self) -> Self:
        """With all that must be known to build it again where the weights it started from are not at hand."""
        return self

    def own_tokenizer(self) -> TextTokenizer | None:
        """The tokenizer that belongs to the weights it starts from, if it starts from any."""
        return None

    def longest(self) -> int | None:
        """The most tokens that it can read, where the weights it starts from set such a limit."""
        return None

    def folder(self) -> Path | None:
        """The folder on the disk that the weights it starts from are in, if they are in one."""
        return None

    def fill(self, encoder: Encoder, anyway: bool = False) -> None:
        """Give a new encoder the weights it starts from; those that do not fit are an error unless `anyway`."""
