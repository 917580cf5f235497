"""All that must be known to build a model, and the check that its parts fit."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast

from twofold.config import DecoderPart, EncoderPart, RankingPart, kind_of, kinds, part_config
from twofold.data.corruption import Noise
from twofold.data.fields import SOURCE, TooLong
from twofold.data.views import ImageSettings
from twofold.errors import TwofoldError
from twofold.generate.options import GenerateOptions
from twofold.types import DecoderConfig

MAIN = "main"
"""The name of a model's only decoder."""
STRANGER = "stranger"
"""The target of a decoder that tells whether the second text of a pair is another's."""
TOLD = ("no", "yes")
"""What it answers."""
OF_WORDS = ("tags", "tree")
"""What decoders write that look at single words."""


@dataclass(frozen=True)
class DecoderSlot:
    """One decoder, what it learns to write, and how much that counts."""

    part: DecoderPart
    target: str | tuple[str, ...]
    """The column it learns from; of an image's captions, perhaps several; of a tree those of heads and relations."""
    weight: float = 1.0
    """What its loss is multiplied by."""

    def __post_init__(self) -> None:
        if not 0 < self.weight < math.inf:
            raise ValueError(f"weight {self.weight}: must be above 0, and finite")


@dataclass(frozen=True)
class MaskSettings:
    """What the numbers of a mask stand for."""

    classes: tuple[str, ...]
    """The names of the classes, in the order of their numbers."""
    first: int = 0
    """The number of the first class."""
    ignore: int | None = None
    """The number of pixels that do not count."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.classes) <= 255 - self.first or self.first < 0:
            raise ValueError("classes: from 1 to 255 names, whose numbers go up to 254")
        if len(set(self.classes)) < len(self.classes):
            raise ValueError("classes: a name stands twice")
        if self.ignore is not None and self.first <= self.ignore < self.first + len(self.classes):
            raise ValueError(f"ignore {self.ignore}: the number of '{self.classes[self.ignore - self.first]}'")


@dataclass(frozen=True)
class ModelConfig:
    """The two parts and what passes in and out."""

    encoder: EncoderPart
    decoders: Mapping[str, DecoderSlot]
    source: str | tuple[str, ...]
    """The column that is read, or two that are read as one text, or each by itself."""
    max_source: int
    max_target: int
    too_long: TooLong = "cut"
    tie_embeddings: bool = False
    """Whether all parts share one table of token vectors."""
    generate: GenerateOptions = field(default_factory=GenerateOptions)
    image: ImageSettings | None = None
    """How images are read, where it reads images."""
    mask: MaskSettings | None = None
    """What the numbers of a mask stand for, where it paints masks."""
    frame: bool = False
    """Whether a text is read between the symbols that belong around it."""
    keep: Literal["head", "tail"] = "head"
    """Which end stays of a text that is too long, of a pair that of its first: the newest turns of a dialogue are its
    tail. Of a sentence of words its beginning always does."""
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For each decoder that chooses among names those names, in the order of their numbers."""
    numbers: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """For each decoder that estimates a number its mean and deviation in the training data."""
    strangers: float = 0.5
    """How often a pair has the second text of another row, where a decoder learns to tell."""
    noise: Noise | None = None
    """What is done to the texts that a decoder must write as they were."""
    apart: bool = False
    """Whether each of two texts is read by itself."""

    def tokenizers(self) -> set[str]:
        """The names of the tokenizers it needs; a text that is read with an image is cut as what is written."""
        writing = {name for name, slot in self.decoders.items() if slot.part.writes == "text"}
        return writing if self.encoder.reads == "image" else {SOURCE, *writing}

    def needs(self) -> frozenset[str]:
        """The fields of `Hidden` that some decoder reads."""
        return frozenset().union(*(cast(DecoderConfig, slot.part).needs() for slot in self.decoders.values()))

    def check(self) -> None:
        """Refuse parts that do not fit, naming what is needed, what is given and what would do."""
        for name, slot in self.decoders.items():
            if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name == SOURCE:
                raise TwofoldError(f"recipe.decoders: '{name}' cannot be the name of a decoder; use a-z, 0-9 and _")
            check_fit(self.encoder, slot.part)
            if isinstance(slot.part, RankingPart):
                raise TwofoldError(f"the decoder '{kind_of(slot.part)}' ranks, and must be a recipe's only `decoder`")
            if slot.part.writes == "mask" and not self.mask:
                raise TwofoldError(f"the decoder '{kind_of(slot.part)}' paints masks; name their classes: data.classes")
            self._check_target(name, slot)
        if self.encoder.reads == "image" and not self.image:
            raise TwofoldError(f"the encoder '{kind_of(self.encoder)}' reads images, and no text")
        self._check_source()

    def _check_target(self, name: str, slot: DecoderSlot) -> None:
        kind, writes = kind_of(slot.part), slot.part.writes
        if not slot.target and writes != "tokens":
            raise TwofoldError(f"recipe.decoders.{name}: the decoder '{kind}' needs a column to learn from: target")
        if self.encoder.reads == "image" and writes in (*OF_WORDS, "tokens"):
            raise TwofoldError(f"the decoder '{kind}' looks at words, and the encoder reads images")
        if writes == "tree":
            if isinstance(slot.target, str) or len(slot.target) != 2:
                raise TwofoldError(f"the decoder '{kind}' needs two columns: target: [heads, relations]")
        elif not isinstance(slot.target, str) and (self.encoder.reads, writes) != ("image", "text"):
            raise TwofoldError(f"target: {_and(list(slot.target))}, but only an image's captions have many columns")
        if writes == "label" and getattr(slot.part, "compare", "none") != "none" and isinstance(self.source, str):
            raise TwofoldError(f"the decoder '{kind}' compares two texts: source: [a, b]")
        one_of_two = writes == "label" and getattr(slot.part, "answers", "one") == "one"
        if slot.target == STRANGER and (not one_of_two or isinstance(self.source, str)):
            raise TwofoldError(
                f"target: {STRANGER} is for the decoder `label` (answers: one) over two texts: source: [a, b]"
            )

    def _check_source(self) -> None:
        writes = {slot.part.writes for slot in self.decoders.values()}
        if not isinstance(self.source, str) and (len(self.source) != 2 or self.encoder.reads == "image"):
            raise TwofoldError(f"source: {_and(list(self.source))}; one column, or two that are read as one text")
        if writes & set(OF_WORDS) and writes - {*OF_WORDS, "label"}:
            raise TwofoldError(
                "decoders of words go together, and with `label`; texts are written by a model of their own"
            )
        if not isinstance(self.source, str) and writes & {*OF_WORDS, "text"}:
            raise TwofoldError("source: two texts are read as one by the decoders `label` and `tokens` only")
        if self.apart and (isinstance(self.source, str) or writes != {"label"}):
            raise TwofoldError("apart is for the decoder `label` over two texts: source: [a, b]")
        if self.apart and any(getattr(slot.part, "compare", "none") == "none" for slot in self.decoders.values()):
            raise TwofoldError(
                "apart: nothing would tell the two texts from each other; decoder.compare: cosine, features"
            )
        ends = [getattr(slot.part, "pooling", None) for slot in self.decoders.values()]
        if self.apart and (end := next((one for one in ends if one in ("first", "last")), None)):
            raise TwofoldError(f"apart: two texts that are read apart have no {end} token in common; pooling: mean")
        if self.noise and writes != {"text"}:
            raise TwofoldError("noise is for decoders that write texts")


@dataclass(frozen=True)
class RankingLoss:
    """What a ranker learns from, beside which of the candidates is right."""

    teacher: Literal["none", "margin_mse", "kl"] = "none"
    """How a teacher's scores of the right and the given wrong candidates are followed: differences, or shares."""
    teacher_weight: float = 1.0
    label_weight: float = 1.0
    """How much it counts which candidate is right."""
    temperature: float = 1.0
    """With kl: what both sides' scores are divided by."""

    def __post_init__(self) -> None:
        if self.temperature <= 0 or self.teacher_weight < 0 or self.label_weight < 0:
            raise ValueError("temperature must be above 0, weights at least 0")


@dataclass(frozen=True)
class RankerConfig:
    """Two towers, or one for both sides, a ranking decoder, and how texts are read."""

    encoder: EncoderPart
    decoder: DecoderPart
    separate: bool = False
    """Whether candidates are read by a tower of their own, which starts from the same weights; of a cross-encoder that
    compares, whether what is read alone is."""
    max_context: int = 100
    """The most tokens of a context; the newest turns stay."""
    max_candidate: int = 50
    """The most tokens of a candidate; its beginning stays."""
    context: str = "context"
    response: str = "response"
    preface: str | None = None
    """A column whose texts stand before the turns of the context, such as a persona."""
    separator: str | None = None
    """What stands between turns: a text, or the tokenizer's own separator."""
    query_prefix: str = ""
    """What a backbone wants before every context, its blanks included."""
    candidate_prefix: str = ""
    """What a backbone wants before every candidate, its blanks included."""
    keep_beginning: bool = False
    """Whether a context that is one text keeps its beginning where it is too long; turns keep the newest always."""
    loss: RankingLoss = field(default_factory=RankingLoss)

    def __post_init__(self) -> None:
        if self.max_context < 3 or self.max_candidate < 3:
            raise ValueError("max_context and max_candidate must be at least 3")

    def tokenizers(self) -> set[str]:
        """The names of the tokenizers it needs."""
        return {SOURCE}

    def check(self) -> None:
        """Refuse parts that do not fit."""
        if not isinstance(self.decoder, RankingPart):
            raise TwofoldError(f"the decoder '{kind_of(self.decoder)}' does not rank")
        if self.encoder.reads != "text":
            raise TwofoldError(f"the encoder '{kind_of(self.encoder)}' reads images, and rankers read texts")
        check_fit(self.encoder, self.decoder)


def check_fit(encoder: EncoderPart, decoder: DecoderPart) -> None:
    """Refuse an encoder that does not give what the decoder needs, naming both and what would do."""
    gives, needs = encoder.gives(), cast(DecoderConfig, decoder).needs()
    if not needs <= gives:
        raise TwofoldError(
            f"the decoder '{kind_of(decoder)}' needs {_and(needs)}, but the encoder '{kind_of(encoder)}' "
            f"gives {_and(gives)}; these would do: {_and(_encoders_giving(needs, encoder.reads))}"
        )


def _encoders_giving(needs: frozenset[str], reads: str) -> list[str]:
    """Those that read the same, if there are any; otherwise all."""
    known = {kind: cast(EncoderPart, part_config("encoders", kind)()) for kind in kinds("encoders")}
    giving = {kind: part for kind, part in known.items() if needs <= part.gives()}
    return [kind for kind, part in giving.items() if part.reads == reads] or list(giving)


def _and(names: frozenset[str] | list[str]) -> str:
    return " and ".join(sorted(set(names) - {"finish"})) or "none"
