"""Types shared by all packages: batches, hidden states, targets and losses; `Encoder` and `Decoder` import torch."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

from twofold.errors import require

if TYPE_CHECKING:  # texts are read without torch as well
    import torch
    from torch import Tensor

    from twofold.types.modules import Decoder as Decoder
    from twofold.types.modules import Encoder as Encoder
    from twofold.types.modules import Engine as Engine

Example = Mapping[str, Any]
"""One row of a data file: values by column or key name."""
Read = TypeVar("Read", bound="InputBatch")
_MODULES = ("Decoder", "Encoder", "Engine")


def __getattr__(name: str) -> Any:
    """Imports on first use what needs torch."""
    if name not in _MODULES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.modules"), name)


def is_tensor(value: object) -> bool:
    """Returns True for a tensor; without torch, nothing is one."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


class Movable:
    """Base class of dataclasses whose tensors move together to a device."""

    def to(self, device: torch.device) -> Self:
        """Returns a copy on another device."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        movable = {name: value for name, value in values.items() if isinstance(value, Movable) or is_tensor(value)}
        return type(self)(**{**values, **{name: value.to(device) for name, value in movable.items()}})


class InputBatch(Movable):
    """Tensors that an input type gives to an encoder. Each input type defines its own frozen subclass."""

    def __len__(self) -> int:
        raise NotImplementedError

    def count(self) -> int:
        """Number of real (unpadded) tokens; 0 for inputs without text."""
        return 0

    def encode(self, encoder: Encoder, batch: Batch) -> Hidden:
        """Runs the encoder on the batch whose first input this is."""
        return encoder(batch)


@dataclass(frozen=True)
class Target(Movable):
    """Target of one decoder: padded token ids, class ids or numbers."""

    tokens: Tensor
    """Shape (rows, positions) for texts with start and end symbols, (rows, height, width) for pixels, (rows, words) for
    tags, (rows, words, 2) for heads and relations, (rows, labels) for labels or one number."""
    mask: Tensor
    """Padding mask of the same shape (heads and relations share one value); true where real."""
    rows: Tensor | None = None
    """Shape (rows,): the batch row of each target, where one input has several targets."""


@dataclass(frozen=True)
class Batch:
    """Rows as tensors: inputs and targets by name."""

    inputs: Mapping[str, InputBatch]
    """Inputs by name; predictions are about the first one."""
    targets: Mapping[str, Target] = field(default_factory=dict)
    """Targets by decoder name; empty for prediction."""
    progress: float = 0.0
    """Fraction of the training that is done, from 0 to 1; parts use it for schedules."""

    def __len__(self) -> int:
        return len(self.first)

    @property
    def first(self) -> InputBatch:
        """The first input, which predictions are about."""
        return next(iter(self.inputs.values()))

    def read(self, kind: type[Read]) -> Read:
        """Returns the input of the given type; the model has checked that it exists."""
        return require(self.find(kind), f"this batch holds no {kind.__name__}")

    def find(self, kind: type[Read]) -> Read | None:
        """Returns the input of the given type, or None."""
        return next((read for read in self.inputs.values() if isinstance(read, kind)), None)

    def with_input(self, name: str, read: InputBatch) -> Batch:
        """Returns a copy with one input added or replaced."""
        return dataclasses.replace(self, inputs={**self.inputs, name: read})

    def with_target(self, name: str, target: Target) -> Batch:
        """Returns a copy with the target of one decoder."""
        return dataclasses.replace(self, targets={**self.targets, name: target})

    def to(self, device: torch.device) -> Batch:
        """Returns a copy on another device."""
        inputs = {name: read.to(device) for name, read in self.inputs.items()}
        return Batch(inputs, {name: target.to(device) for name, target in self.targets.items()}, self.progress)


@dataclass(frozen=True)
class Hidden:
    """Output of an encoder, which fills the fields that its `HiddenSpec` names and its decoder needs."""

    mask: Tensor
    """Padding mask (rows, positions); true where real."""
    states: Tensor | None = None
    """Token states (rows, positions, width): one vector for each position."""
    summary: Tensor | None = None
    """Summary vector (rows, width): one vector for each row."""
    finish: Callable[[Tensor], Tensor] | None = None
    """Layer that turns a mean of states into a summary; None if the mean already is one."""
    maps: tuple[Tensor, ...] | None = None
    """Feature maps (rows, channels, height, width), from fine to coarse, each half the size of the previous one."""
    size: tuple[int, int] | None = None
    """Height and width of the input images, in pixels."""
    grid: tuple[int, int] | None = None
    """Rows and columns of the image positions, which come before all other positions."""
    words: Tensor | None = None
    """Shape (rows, words): position of each word's first sub-word token; -1 for padding."""
    segments: Tensor | None = None
    """Shape (rows, positions): 0 for tokens of the first text and 1 for the second, where two texts are joined."""
    tokens: Tensor | None = None
    """Token ids (rows, positions), for text inputs."""

    def need(self, name: Literal["states", "summary"]) -> Tensor:
        """Returns the field `name`; the model has checked that it is filled."""
        value: Tensor | None = getattr(self, name)
        return require(value, f"this Hidden has no {name}: its encoder was built without it")

    def pyramid(self) -> tuple[Tensor, ...]:
        """Returns the feature maps; the model has checked that they are filled."""
        return require(self.maps, "this Hidden has no maps: its encoder was built without them")

    def of_words(self) -> tuple[Tensor, Tensor]:
        """Returns the state of each word's first token, (rows, words, width), and the word mask, (rows, words)."""
        states, words = self.need("states"), require(self.words, "this Hidden has no words: what was read was a text")
        places = words.clamp(min=0)[..., None].expand(-1, -1, states.shape[-1])
        return states.gather(1, places), words >= 0

    def select(self, rows: Tensor) -> Hidden:
        """Returns the given rows, in the given order."""

        def chosen(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(chosen, value))
            return value.index_select(0, rows) if is_tensor(value) else value

        return Hidden(**{field.name: chosen(getattr(self, field.name)) for field in dataclasses.fields(self)})


@dataclass(frozen=True)
class HiddenSpec:
    """Fields of `Hidden` that an encoder fills, with their widths; known before anything is built."""

    states: int | None = None
    summary: int | None = None
    maps: tuple[int, ...] | None = None
    """Channels of each feature map, from fine to coarse."""
    stride: int = 1
    """Height and width, in pixels, that one place of the finest map covers: 1, 2, 4, ..."""
    causal: bool = False
    """True if position t sees only positions up to t (a causal encoder), so that the last real position knows most."""

    def gives(self) -> frozenset[str]:
        """Returns the names of the fields of `Hidden` that the encoder can fill."""
        given = frozenset(name for name in ("states", "summary", "maps") if getattr(self, name) is not None)
        return given | {"finish"} if "states" in given else given

    def width(self, name: Literal["states", "summary"]) -> int:
        """Returns the width of the field `name`."""
        return require(cast(int | None, getattr(self, name)), f"this encoder gives no {name}")

    def channels(self) -> tuple[int, ...]:
        """Returns the channels of each feature map."""
        return require(self.maps, "this encoder gives no maps")


@dataclass(frozen=True)
class Vocabulary:
    """Token vocabulary of a part that reads or writes text."""

    size: int
    limit: int
    """Maximum number of tokens in a row, without start and end symbols."""
    pad: int
    unknown: int
    start: int
    end: int
    pieces: Callable[[], Sequence[str]] = field(default=tuple, compare=False, repr=False)
    """Returns the text piece of each token, with ▁ for a leading space."""


@dataclass(frozen=True)
class Features:
    """Numeric features that a part reads position by position. Images leave the first two fields at 0."""

    width: int = 0
    """Number of values at each position, such as the bands of a spectrogram."""
    limit: int = 0
    """Maximum number of positions in a row."""
    size: tuple[int, int] | None = None
    """Height and width of images, if all have one size."""


InputSpec = Vocabulary | Features
"""Facts that an encoder must know about its input."""


@dataclass(frozen=True)
class Classes:
    """Classes that a part tells apart."""

    names: tuple[str, ...]
    several: bool = False
    """True for multi-label classification: any number of classes may be right at once."""

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Index of each class by name."""
        return {name: number for number, name in enumerate(self.names)}


@dataclass(frozen=True)
class Numbers:
    """Mean and standard deviation of the numbers that a part predicts."""

    mean: float
    deviation: float


OutputSpec = Vocabulary | Classes | Numbers | Features
"""Facts that a decoder must know about its output."""


@dataclass(frozen=True)
class Loss:
    """Sum of losses and the count to divide it by; sums and counts add up over micro-batches and processes."""

    sum: Tensor
    count: int
