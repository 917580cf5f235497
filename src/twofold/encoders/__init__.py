"""Interface of the settings of encoders, f : X → H; each encoder is one file of this folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from twofold.config import Part, Role, kind_of
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.inputs.text import Tokens
from twofold.types import Encoder, HiddenSpec, InputBatch


@dataclass(frozen=True)
class EncoderConfig(Part):
    """Settings of an encoder: its output is known from them, and they build it."""

    role: ClassVar[Role] = "encoders"
    sizes: ClassVar[bool] = True
    input: ClassVar[str] = "text"
    """Default kind of input, unless the recipe or the output names one."""
    reads: ClassVar[type[InputBatch]] = Tokens
    """Class of input batches that the encoder reads."""

    def beside(self) -> type[InputBatch] | None:
        """Returns the class of a second input that the encoder can read beside the first, or None."""
        return None

    def alone(self) -> Self:
        """Returns the settings without a second input."""
        return self

    def spec(self) -> HiddenSpec:
        """Returns the widths of the encoder's output."""
        raise NotImplementedError

    def gives(self) -> frozenset[str]:
        """Returns the fields of `Hidden` that the encoder can fill; nothing is loaded for it."""
        return self.spec().gives()

    def build(self, vocabulary: Any, needs: frozenset[str]) -> Encoder:
        """Builds an encoder that fills the needed fields of `Hidden`.

        vocabulary: the `InputSpec` of the input: the `Vocabulary` of texts, the `Features` of sounds
        """
        raise NotImplementedError

    def settled(self) -> Self:
        """Returns complete settings, from which the encoder is built again without its initial weights."""
        return self

    def own_tokenizer(self) -> TextTokenizer | None:
        """Returns the tokenizer that belongs to the initial weights, or None."""
        return None

    def longest(self) -> int | None:
        """Returns the maximum number of tokens that the initial weights allow, or None."""
        return None

    def folder(self) -> Path | None:
        """Returns the folder of the initial weights, or None."""
        return None

    def fill(self, encoder: Encoder, anyway: bool = False) -> None:
        """Loads the initial weights into a new encoder; weights that do not fit are an error unless `anyway`."""

    def write_backbone(self, encoder: Encoder, tokenizer: TextTokenizer, limit: int, folder: Path) -> None:
        """Writes settings, weights and tokenizer as transformers loads them; texts are cut to `limit` tokens."""
        raise TwofoldError(f"the encoder '{kind_of(self)}' is no backbone of transformers; export it --to onnx")
