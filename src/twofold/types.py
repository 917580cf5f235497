"""What passes between the parts: batches, hidden states, losses and predictions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol, Self

import torch
from torch import Tensor, nn

Example = Mapping[str, Any]
"""One row of a data file: column or key names to values."""


@dataclass(frozen=True)
class Target:
    """What one decoder must write: texts padded to the longest, or classes, or numbers."""

    tokens: Tensor
    """(rows, positions), each row between the start and the end symbol; or (rows, height, width) of classes; or
    (rows, words) of tags, (rows, words, 2) of heads and relations, (rows, labels) of labels or of one number."""
    mask: Tensor
    """(rows, ...) of the same shape, one value for a head and its relation; true where real."""
    rows: Tensor | None = None
    """(rows,): to which row of the batch each belongs, where one input has several targets."""

    def to(self, device: torch.device) -> Target:
        """The same target on another device."""
        rows = None if self.rows is None else self.rows.to(device)
        return Target(self.tokens.to(device), self.mask.to(device), rows)


@dataclass(frozen=True)
class Windows:
    """Rows that are read in overlapping windows, because some are longer than a model may read at once."""

    rows: Tensor
    """(windows,): the row of the batch that each window is of."""
    places: Tensor
    """(windows, positions): which tokens of its row a window reads."""
    mask: Tensor
    """(windows, positions), true where real."""
    window: Tensor
    """(rows, tokens): the window that the state of each token comes from."""
    position: Tensor
    """(rows, tokens): and the position in that window."""

    def to(self, device: torch.device) -> Windows:
        """The same windows on another device."""
        return Windows(*(getattr(self, one.name).to(device) for one in dataclasses.fields(self)))


@dataclass(frozen=True)
class Batch:
    """Some rows as tensors; every row has at least one real position, or an image."""

    tokens: Tensor
    """(rows, positions) of token ids; beside an image, the text that is read with it, which may have no position."""
    mask: Tensor
    """(rows, positions), true where real."""
    targets: Mapping[str, Target] = field(default_factory=dict)
    """For each decoder, by its name, what it must write; empty when there is nothing to learn from."""
    progress: float = 0.0
    """How much of the training is done, from 0 to 1, for schedules inside a part."""
    segments: Tensor | None = None
    """(rows, positions), where two texts are read as one: 0 for the first, 1 for the second."""
    pixels: Tensor | None = None
    """(rows, 3, height, width), all images of one size, normalized."""
    words: Tensor | None = None
    """(rows, words): where the first piece of each word stands; -1 where there is no word."""
    second: Batch | None = None
    """Of pairs whose texts are read each by itself, the second ones; the first are this batch's own."""
    windows: Windows | None = None
    """Where some row is longer than a model may read at once, the windows in which all rows are read."""

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def to(self, device: torch.device) -> Self:
        """The same batch on another device."""
        names = ("tokens", "mask", "segments", "pixels", "words", "second", "windows")
        found = {name: getattr(self, name) for name in names}
        moved = {name: value.to(device) for name, value in found.items() if value is not None}
        targets = {name: target.to(device) for name, target in self.targets.items()}
        return dataclasses.replace(self, targets=targets, **moved)

    def image(self) -> Tensor:
        """The pixels, which an image's encoder needs."""
        if self.pixels is None:
            raise ValueError("this batch holds no images")
        return self.pixels


@dataclass(frozen=True)
class Hidden:
    """What an encoder has read; it fills the fields its spec names and its decoder needs."""

    mask: Tensor
    """(rows, positions), true where real."""
    states: Tensor | None = None
    """(rows, positions, width)"""
    summary: Tensor | None = None
    """(rows, width)"""
    finish: Callable[[Tensor], Tensor] | None = None
    """What a mean of states must still pass through to be a summary; nothing where there is none."""
    maps: tuple[Tensor, ...] | None = None
    """(rows, channels, height, width) each, from fine to coarse, each half as high and wide as the one before."""
    size: tuple[int, int] | None = None
    """Height and width of the images that were read."""
    grid: tuple[int, int] | None = None
    """Rows and columns of the positions that show an image; they come first among all positions."""
    words: Tensor | None = None
    """(rows, words): where the first piece of each word stands; -1 where there is no word."""
    segments: Tensor | None = None
    """(rows, positions), where two texts were read: 0 for the first, 1 for the second."""

    def need(self, name: Literal["states", "summary"]) -> Tensor:
        """The field called `name`, which the model has checked to be there."""
        value: Tensor | None = getattr(self, name)
        if value is None:
            raise ValueError(f"this Hidden has no {name}: its encoder was built without it")
        return value

    def pyramid(self) -> tuple[Tensor, ...]:
        """The maps, which the model has checked to be there."""
        if self.maps is None:
            raise ValueError("this Hidden has no maps: its encoder was built without them")
        return self.maps

    def of_words(self) -> tuple[Tensor, Tensor]:
        """The state of each word's first piece, (rows, words, width), and (rows, words), true where there is a word."""
        states, words = self.need("states"), self.words
        if words is None:
            raise ValueError("this Hidden has no words: what was read was a text")
        places = words.clamp(min=0)[..., None].expand(-1, -1, states.shape[-1])
        return states.gather(1, places), words >= 0

    def select(self, rows: Tensor) -> Hidden:
        """The given rows, in the given order."""
        return Hidden(
            mask=self.mask.index_select(0, rows),
            states=None if self.states is None else self.states.index_select(0, rows),
            summary=None if self.summary is None else self.summary.index_select(0, rows),
            maps=None if self.maps is None else tuple(one.index_select(0, rows) for one in self.maps),
            size=self.size,
            grid=self.grid,
            words=None if self.words is None else self.words.index_select(0, rows),
            segments=None if self.segments is None else self.segments.index_select(0, rows),
            finish=self.finish,
        )


@dataclass(frozen=True)
class HiddenSpec:
    """What an encoder gives, known before anything is built: a width for each field it can fill."""

    states: int | None = None
    summary: int | None = None
    maps: tuple[int, ...] | None = None
    """The channels of each map, from fine to coarse."""
    stride: int = 1
    """How many pixels high and wide a place of the finest map is: 1, 2, 4, ..."""
    causal: bool = False
    """Whether position t has seen only what stands before it, so that the last real one knows most."""

    def gives(self) -> frozenset[str]:
        """The names of the fields of `Hidden` that can be filled; `finish` is nothing to most encoders."""
        found = frozenset(name for name in ("states", "summary", "maps") if getattr(self, name) is not None)
        return found | {"finish"} if "states" in found else found

    def width(self, name: Literal["states", "summary"]) -> int:
        """The width of the field called `name`."""
        value: int | None = getattr(self, name)
        if value is None:
            raise ValueError(f"this encoder gives no {name}")
        return value

    def channels(self) -> tuple[int, ...]:
        """Those of each map."""
        if self.maps is None:
            raise ValueError("this encoder gives no maps")
        return self.maps


@dataclass(frozen=True)
class Vocabulary:
    """What a part must know about the tokens it reads or writes."""

    size: int
    limit: int
    """The most tokens in a row, start and end symbols not counted."""
    pad: int
    unknown: int
    start: int
    end: int

    @classmethod
    def none(cls) -> Vocabulary:
        """That of an encoder that reads no text."""
        return cls(size=0, limit=0, pad=0, unknown=0, start=0, end=0)


@dataclass(frozen=True)
class Classes:
    """What a part must know about the classes it tells apart."""

    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each name."""
        return {name: number for number, name in enumerate(self.names)}


@dataclass(frozen=True)
class Numbers:
    """What a part must know about the numbers it estimates."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Loss:
    """A sum and what to divide it by, so that parts of a batch add up to the whole."""

    sum: Tensor
    count: int


class Encoder(nn.Module):
    """f : X → H. Reads a batch and fills the fields of `Hidden` that its decoders need."""

    def forward(self, batch: Batch) -> Hidden:
        raise NotImplementedError

    def __call__(self, batch: Batch) -> Hidden:
        hidden: Hidden = super().__call__(batch)
        return hidden

    def table(self) -> nn.Parameter | None:
        """The vectors of its tokens, (tokens, width), where it has such a table."""
        found: Any = getattr(self, "embedding", None)
        weight: nn.Parameter | None = getattr(found, "weight", None)
        return weight

    def levels(self) -> list[list[nn.Parameter]]:
        """Its parameters from the lowest level, what stands before the layers, to the top layer and what follows."""
        stacks = {f"{name}.": len(one) for name, one in self.named_modules() if isinstance(one, nn.ModuleList)}
        layers = max(stacks.values(), default=0)
        # Two directions are two stacks side by side; of one inside another the outer comes first.
        highest = [prefix for prefix, length in stacks.items() if length == layers]
        levels: list[list[nn.Parameter]] = [[] for _ in range(layers + 1)]
        reached = 0
        for name, parameter in self.named_parameters():
            prefix = next((one for one in highest if name.startswith(one)), None)
            if prefix is not None:
                reached = int(name.removeprefix(prefix).split(".")[0]) + 1
            elif reached:
                reached = layers
            levels[reached].append(parameter)
        return [level for level in levels if level]


class Decoder(nn.Module):
    """g : H → Y. Learns from a target and predicts without one."""

    metrics: Sequence[str] = ()
    """The metric families, files of `twofold.metrics`, that judge this decoder's predictions."""
    attends: ClassVar[bool] = False
    """Whether it can show which positions of the source it looked at."""

    def share(self, table: nn.Parameter | None) -> None:
        """Take up the encoder's table of token vectors, where this decoder has a use for it."""

    def count(self, target: Target) -> int:
        """What the sum of the loss over this target will be divided by, known before it is computed."""
        raise NotImplementedError

    def loss(self, hidden: Hidden, target: Target, progress: float = 0.0) -> Loss:
        """How badly the target is predicted: a sum over what counts, and the count."""
        raise NotImplementedError

    def predict(self, hidden: Hidden, options: Any) -> Sequence[Any]:
        """One result a row."""
        raise NotImplementedError


@dataclass(frozen=True)
class Contexts:
    """Contexts as a ranker keeps them: one vector each, or several that a candidate attends over."""

    vectors: Tensor
    """(contexts, codes, width)"""
    mask: Tensor | None = None
    """(contexts, codes), true where a code is there; all are where there is none."""

    def __len__(self) -> int:
        return self.vectors.shape[0]

    def rows(self, start: int, stop: int) -> Contexts:
        """Some of them."""
        return Contexts(self.vectors[start:stop], None if self.mask is None else self.mask[start:stop])


class RankingHead(Decoder):
    """g of a ranker: sees what was read of contexts and candidates, and scores them."""

    metrics: Sequence[str] = ("ranking",)
    compares: bool = False
    """Whether, where the two are read as one text, each is read alone as well, and `score` is added to `joint`."""

    def context(self, hidden: Hidden) -> Contexts:
        """What is kept of each context."""
        raise NotImplementedError

    def candidate(self, hidden: Hidden) -> Tensor:
        """What is kept of each candidate: (candidates, width)."""
        raise NotImplementedError

    def score(self, contexts: Contexts, candidates: Tensor) -> Tensor:
        """(contexts, candidates)"""
        raise NotImplementedError

    def stored(self, candidates: Tensor) -> Tensor:
        """What an index stores of candidates: vectors whose dot products with those of `ceiling` bound their scores."""
        return candidates

    def stored_score(self, contexts: Contexts, candidates: Tensor) -> Tensor:
        """The same as `score`, of candidates as an index stores them."""
        return self.score(contexts, candidates)

    def towards(self, contexts: Contexts, candidates: Tensor) -> Tensor:
        """For each context and the candidate of the same row the vector that the candidate is compared with."""
        raise NotImplementedError

    def ceiling(self, contexts: Contexts) -> Tensor:
        """Vectors that bound one context's scores: (groups, vectors, width).

        No candidate scores more than the sum, over the groups, of its largest dot product with a vector in the group.
        """
        raise NotImplementedError

    def joint(self, hidden: Hidden) -> Tensor:
        """The score of each context and candidate where the two are read as one text: (rows,)."""
        raise NotImplementedError


class EncoderConfig(Protocol):
    """The settings of an encoder; they know what it will give, and build it."""

    def spec(self) -> HiddenSpec: ...

    def build(self, vocabulary: Vocabulary, needs: frozenset[str]) -> Encoder: ...

    def settled(self) -> Self: ...

    def own_tokenizer(self) -> Any: ...

    def fill(self, encoder: Encoder, anyway: bool = False) -> None: ...


class DecoderConfig(Protocol):
    """The settings of a decoder; they know what it needs, and build it."""

    def needs(self) -> frozenset[str]: ...

    def build(self, spec: HiddenSpec, output: Any, /) -> Decoder:
        """The decoder for what an encoder gives; `output` is the `Vocabulary` or the `Classes` it writes."""
        ...
