"""Batches and hidden states as flat lists of named tensors, which engines take and give."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from twofold.types import Batch, Encoder, Hidden, Movable

Named = dict[str, Tensor]


def flatten(value: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yields the tensors of a dataclass, mapping or tuple, however deep, with the path of each."""
    if isinstance(value, Tensor):
        yield name, value
        return
    for key, inner in _inner(value):
        yield from flatten(inner, f"{name}.{key}" if name else key)


def constants(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yields everything that is not a tensor, with its path: two batches of equal constants fit one graph."""
    if isinstance(value, Tensor):
        yield name, "tensor"
        return
    inner = list(_inner(value))
    if not inner:
        yield name, value if isinstance(value, int | float | str | bool | None) else type(value).__name__
    for key, part in inner:
        yield from constants(part, f"{name}.{key}" if name else key)


def rebuilt(value: Any, tensors: Mapping[str, Tensor], name: str = "") -> Any:
    """Returns a copy with other tensors, by path."""
    if isinstance(value, Tensor):
        return tensors[name]
    parts = {key: rebuilt(inner, tensors, f"{name}.{key}" if name else key) for key, inner in _inner(value)}
    if isinstance(value, Mapping):
        return parts
    if isinstance(value, tuple):
        return tuple(parts.values())
    return dataclasses.replace(value, **parts) if parts else value


def _inner(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Movable | Batch | Hidden):
        fields = dataclasses.fields(value)  # type: ignore[arg-type]
        yield from ((field.name, getattr(value, field.name)) for field in fields)
    elif isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, tuple):
        yield from ((str(number), inner) for number, inner in enumerate(value))


@dataclass(frozen=True)
class Signature:
    """Names of the tensors that a graph takes and gives, and everything else in the batch, which it has built in."""

    takes: tuple[str, ...]
    gives: tuple[str, ...]
    passes: tuple[tuple[str, str], ...]
    """Tensors of `Hidden` that are tensors of the batch, such as the padding mask."""


class Flat(nn.Module):
    """Encoder whose batch and hidden states are lists of tensors, so that it can be exported."""

    def __init__(self, encoder: Encoder, batch: Batch, signature: Signature) -> None:
        super().__init__()
        self.encoder, self.batch, self.signature = encoder, batch, signature

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Computes the tensors that `signature.gives` names."""
        given = dict(zip(self.signature.takes, tensors, strict=True))
        hidden = self.encoder.forward(rebuilt(self.batch, given))
        computed = dict(flatten(hidden))
        outputs = [computed[name] for name in self.signature.gives]
        return tuple(value.float() if value.is_floating_point() else value for value in outputs)


@torch.no_grad()
def signature_of(batch: Batch, hidden: Hidden) -> Signature:
    """Returns the signature of an encoder that made `hidden` of `batch`."""
    taken = dict(flatten(batch))
    given = dict(flatten(hidden))
    places = {id(tensor): name for name, tensor in taken.items()}
    passes = tuple((name, places[id(tensor)]) for name, tensor in given.items() if id(tensor) in places)
    passed = {name for name, _ in passes}
    return Signature(tuple(taken), tuple(name for name in given if name not in passed), passes)
