"""Summary of a model: its parts, what passes between them, and parameters by part."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from twofold.tables import cell, table_lines

WIDTH = 110
"""Maximum number of characters of a line, where words allow it."""
LONG_LIST = 8
"""Number of values from which a setting is shown as their count."""


@dataclass(frozen=True)
class Flow:
    """Tensors or results that pass from one part to the next."""

    name: str
    shape: tuple[int | str, ...] = ()
    """Sizes of a tensor, such as ("batch", "positions ≤ 128", 256); empty for results that are not one tensor."""

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(map(str, self.shape))})" if self.shape else self.name


@dataclass(frozen=True)
class PartSummary:
    """Part of a model."""

    letter: Literal["X", "f", "g", "Y"]
    name: str
    """Role in the model, such as `encoder`; a decoder among several also has its name."""
    kind: str
    settings: Mapping[str, Any]
    """Settings, all of them, as plain values."""
    shown: Mapping[str, Any]
    """Settings that a short summary shows: columns, limits, and those that differ from their defaults."""
    reads: tuple[Flow, ...] = ()
    gives: tuple[Flow, ...] = ()
    vocabulary: int | None = None
    """Number of tokens that an input or output can tell apart."""
    classes: int | None = None
    """Number of labels, tags or pixel classes of an output; 0 if only the training rows tell."""


@dataclass(frozen=True)
class Size:
    """Parameters of a part, or of a module inside it; shared parameters count once, where they come first."""

    name: str
    parameters: int
    trained: int
    """Number of parameters that learn; the others are frozen."""
    bytes: int
    """Bytes of the weights, buffers included."""
    inside: tuple[Size, ...] = ()

    @property
    def frozen(self) -> int:
        """Number of parameters that do not learn."""
        return self.parameters - self.trained


@dataclass(frozen=True)
class CandidateSize:
    """Embeddings that a ranker keeps of a candidate."""

    vectors: int | None
    """Largest number of vectors; None if it grows with the candidate."""
    width: int
    number: Literal["float16", "float32"]
    """Type of the numbers that an index stores by default."""

    @property
    def bytes(self) -> int:
        """Bytes of the vectors in an index; of one vector, if their number is not known."""
        return (self.vectors or 1) * self.width * (2 if self.number == "float16" else 4)


@dataclass(frozen=True, repr=False)
class Summary:
    """Parts of a model in the order in which data passes through them, and their sizes."""

    parts: tuple[PartSummary, ...]
    losses: tuple[str, ...]
    """Losses that training minimizes, each with its weight."""
    sizes: tuple[Size, ...]
    candidate: CandidateSize | None = None
    """Rankers: what is kept of each candidate; None if pairs are read as one text."""
    notes: tuple[str, ...] = field(default=())
    """Further facts: tied parameters, and numbers that are known only after training."""

    @property
    def total(self) -> Size:
        """Size of the whole model."""
        sums = [sum(getattr(size, name) for size in self.sizes) for name in ("parameters", "trained", "bytes")]
        return Size("total", *sums)

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        content = dataclasses.asdict(self)
        content["total"] = {**dataclasses.asdict(self.total), "frozen": self.total.frozen}
        if self.candidate:
            content["candidate"]["bytes"] = self.candidate.bytes
        return content

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield "f: X → H, g: H → Y"
        names = max(len(part.name) for part in self.parts)
        kinds = max(len(part.kind) for part in self.parts)
        indent = " " * (names + kinds + 7)
        given: list[Flow] = []
        for part in self.parts:
            head = f"{part.letter}  {part.name.ljust(names)}  {part.kind.ljust(kinds)}  "
            yield from textwrap.wrap(
                ", ".join(_facts(part)) or "-", WIDTH, initial_indent=head, subsequent_indent=indent
            )
            hidden = "H: " if part.letter == "f" else ""
            yield from (f"{indent}← {flow}" for flow in part.reads if hidden and flow not in given)
            given += part.gives
            yield from (f"{indent}→ {hidden}{flow}" for flow in part.gives)
        yield f"loss: {', '.join(self.losses)}"
        if self.candidate:
            yield f"kept of each candidate: {_kept(self.candidate)}"
        yield ""
        yield from table_lines(list(self._rows()))
        yield from (f"note: {note}" for note in self.notes)

    def _rows(self) -> Iterator[dict[str, Any]]:
        for size in (*self.sizes, self.total):
            inner = size.inside if len(size.inside) > 1 else ()
            for name, values in ((size.name, size), *((f"  {module.name}", module) for module in inner)):
                numbers = {"parameters": values.parameters, "trained": values.trained, "frozen": values.frozen}
                yield {"part": name, **numbers, "bytes": values.bytes}


def _facts(part: PartSummary) -> Iterator[str]:
    """Settings, vocabulary and classes of a part as short texts."""
    for name, value in part.shown.items():
        several = isinstance(value, list) and len(value) > LONG_LIST
        yield f"{name}={len(value)} values" if several else f"{name}={_written(value)}"
    if part.vocabulary is not None:
        yield f"vocabulary of {part.vocabulary:,} tokens"
    if part.classes is not None:
        yield f"{part.classes:,} classes" if part.classes else "classes known after training"


def _written(value: Any) -> str:
    """Setting as YAML would have it."""
    match value:
        case bool():
            return str(value).lower()
        case None:
            return "null"
        case list():
            return f"[{', '.join(map(_written, value))}]"
        case dict():
            return f"{{{', '.join(f'{name}: {_written(inner)}' for name, inner in value.items())}}}"
    return cell(value) if isinstance(value, float) else str(value)


def _kept(candidate: CandidateSize) -> str:
    """Vectors and bytes that an index stores of a candidate."""
    size = f"{candidate.width:,} wide"
    stored = f"bytes in an index ({candidate.number})"
    if candidate.vectors is None:
        return f"a vector for each position, {size}; {candidate.bytes:,} {stored} each"
    if candidate.vectors == 1:
        return f"1 vector, {size}; {candidate.bytes:,} {stored}"
    return f"at most {candidate.vectors} vectors, {size}; at most {candidate.bytes:,} {stored}"
