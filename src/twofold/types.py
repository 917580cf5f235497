"""What passes between the packages: batches, hidden states, targets and losses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, TypeVar, cast

import torch
from torch import Tensor, nn

Example = Mapping[str, Any]
"""One row of a data file: column or key names to values."""
Read = TypeVar("Read", bound="InputBatch")
Value = TypeVar("Value")


def require(value: Value | None, missing: str) -> Value:
    """A value that the model has checked to be there; `missing` says what a part did wrong where it is not."""
    if value is None:
        raise ValueError(missing)
    return value


class Movable:
    """A dataclass of tensors that lie on one device."""

    def to(self, device: torch.device) -> Self:
        """The same on another device."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        movable = {name: value for name, value in values.items() if isinstance(value, Tensor | Movable)}
        return type(self)(**{**values, **{name: value.to(device) for name, value in movable.items()}})


class InputBatch(Movable):
    """What an input type gives an encoder, as tensors; each type has a frozen dataclass of its own."""

    def __len__(self) -> int:
        raise NotImplementedError

    def count(self) -> int:
        """How many real tokens are read; none where nothing of it is text."""
        return 0

    def encode(self, encoder: Encoder, batch: Batch) -> Hidden:
        """What an encoder makes of the batch in which this is the first input."""
        return encoder(batch)


@dataclass(frozen=True)
class Target(Movable):
    """What one decoder must write: texts padded to the longest, or classes, or numbers."""

    tokens: Tensor
    """(rows, positions), each row between the start and the end symbol; or (rows, height, width) of classes; or
    (rows, words) of tags, (rows, words, 2) of heads and relations, (rows, labels) of labels or of one number."""
    mask: Tensor
    """(rows, ...) of the same shape, one value for a head and its relation; true where real."""
    rows: Tensor | None = None
    """(rows,): to which row of the batch each belongs, where one input has several targets."""


@dataclass(frozen=True)
class Batch:
    """Some rows as tensors."""

    inputs: Mapping[str, InputBatch]
    """What is read, by name; the first one is what the model is asked about."""
    targets: Mapping[str, Target] = field(default_factory=dict)
    """For each decoder, by its name, what it must write; empty when there is nothing to learn from."""
    progress: float = 0.0
    """How much of the training is done, from 0 to 1, for schedules inside a part."""

    def __len__(self) -> int:
        return len(self.first)

    @property
    def first(self) -> InputBatch:
        """What the model is asked about."""
        return next(iter(self.inputs.values()))

    def read(self, kind: type[Read]) -> Read:
        """The input of a type; the model has checked that it is there."""
        return require(self.find(kind), f"this batch holds no {kind.__name__}")

    def find(self, kind: type[Read]) -> Read | None:
        """The input of a type, if there is one."""
        return next((read for read in self.inputs.values() if isinstance(read, kind)), None)

    def with_input(self, name: str, read: InputBatch) -> Batch:
        """The same with one input added, or in the place of the one of that name."""
        return dataclasses.replace(self, inputs={**self.inputs, name: read})

    def with_target(self, name: str, target: Target) -> Batch:
        """The same with what one decoder must write."""
        return dataclasses.replace(self, targets={**self.targets, name: target})

    def to(self, device: torch.device) -> Batch:
        """The same batch on another device."""
        inputs = {name: read.to(device) for name, read in self.inputs.items()}
        return Batch(inputs, {name: target.to(device) for name, target in self.targets.items()}, self.progress)


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
    tokens: Tensor | None = None
    """(rows, positions): the tokens that were read, where the input was text."""

    def need(self, name: Literal["states", "summary"]) -> Tensor:
        """The field called `name`, which the model has checked to be there."""
        value: Tensor | None = getattr(self, name)
        return require(value, f"this Hidden has no {name}: its encoder was built without it")

    def pyramid(self) -> tuple[Tensor, ...]:
        """The maps, which the model has checked to be there."""
        return require(self.maps, "this Hidden has no maps: its encoder was built without them")

    def of_words(self) -> tuple[Tensor, Tensor]:
        """The state of each word's first piece, (rows, words, width), and (rows, words), true where there is a word."""
        states, words = self.need("states"), require(self.words, "this Hidden has no words: what was read was a text")
        places = words.clamp(min=0)[..., None].expand(-1, -1, states.shape[-1])
        return states.gather(1, places), words >= 0

    def select(self, rows: Tensor) -> Hidden:
        """The given rows, in the given order."""

        def chosen(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(chosen, value))
            return value.index_select(0, rows) if isinstance(value, Tensor) else value

        return Hidden(**{field.name: chosen(getattr(self, field.name)) for field in dataclasses.fields(self)})


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
        given = frozenset(name for name in ("states", "summary", "maps") if getattr(self, name) is not None)
        return given | {"finish"} if "states" in given else given

    def width(self, name: Literal["states", "summary"]) -> int:
        """The width of the field called `name`."""
        return require(cast(int | None, getattr(self, name)), f"this encoder gives no {name}")

    def channels(self) -> tuple[int, ...]:
        """Those of each map."""
        return require(self.maps, "this encoder gives no maps")


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
    pieces: Callable[[], Sequence[str]] = field(default=tuple, compare=False, repr=False)
    """Gives the piece of text that each token stands for, a blank before it as ▁."""


@dataclass(frozen=True)
class Features:
    """What a part must know about numbers that it reads position by position; nothing of images."""

    width: int = 0
    """How many numbers a position has, such as the bands of a spectrogram."""
    limit: int = 0
    """The most positions in a row."""


InputSpec = Vocabulary | Features
"""What an encoder must know about what it reads."""


@dataclass(frozen=True)
class Classes:
    """What a part must know about the classes it tells apart."""

    names: tuple[str, ...]
    several: bool = False
    """Whether any number of them may be right at once."""

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


OutputSpec = Vocabulary | Classes | Numbers | Features
"""What a decoder must know about what it writes."""


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
        return cast(Hidden, super().__call__(batch))

    def table(self) -> nn.Parameter | None:
        """The vectors of its tokens, (tokens, width), where it has such a table."""
        return cast(nn.Parameter | None, getattr(getattr(self, "embedding", None), "weight", None))

    def levels(self) -> list[list[nn.Parameter]]:
        """Its parameters from the lowest level, what stands before the layers, to the top layer and what follows."""
        stacks = {f"{name}.": len(stack) for name, stack in self.named_modules() if isinstance(stack, nn.ModuleList)}
        layers = max(stacks.values(), default=0)
        # Two directions are two stacks side by side; of one inside another the outer comes first.
        highest = [prefix for prefix, length in stacks.items() if length == layers]
        levels: list[list[nn.Parameter]] = [[] for _ in range(layers + 1)]
        reached = 0
        for name, parameter in self.named_parameters():
            prefix = next((start for start in highest if name.startswith(start)), None)
            if prefix is not None:
                reached = int(name.removeprefix(prefix).split(".")[0]) + 1
            elif reached:
                reached = layers
            levels[reached].append(parameter)
        return [level for level in levels if level]


class Decoder(nn.Module):
    """g : H → Y. Learns from a target and predicts without one."""

    attends: ClassVar[bool] = False
    """Whether it can show which positions of the source it looked at."""

    def share(self, table: nn.Parameter | None) -> None:
        """Take up the encoder's table of token vectors, where this decoder has a use for it."""

    def count(self, target: Target) -> int:
        """What the sum of the loss over this target will be divided by, known beforehand; weights belong in the sum."""
        raise NotImplementedError

    def loss(self, hidden: Hidden, target: Target, progress: float = 0.0) -> Loss:
        """How badly the target is predicted: a sum over what counts, and the count."""
        raise NotImplementedError

    def predict(self, hidden: Hidden, options: Any) -> Sequence[Any]:
        """One result a row, of the class that its settings say it writes."""
        raise NotImplementedError
