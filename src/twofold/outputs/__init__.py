"""Y, the output of a model. Each output type is one file; this module defines the interface they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from twofold.config import Part, Role, kind_of
from twofold.data.batches import Draw, Moment, Plan
from twofold.data.cache import Cache, Encoded, Field
from twofold.data.files import DataFile, Row, Sources
from twofold.data.tokenizer import Ids, TextTokenizer, TokenizerConfig
from twofold.errors import TwofoldError
from twofold.explaining import Explains
from twofold.inputs import BatchSizes, Input, InputConfig
from twofold.results import Mask, Prediction, Tree
from twofold.types import Batch, HiddenSpec, InputBatch, OutputSpec, Target

Tab = Literal["rank", "write", "look", "labels"]
Value = TypeVar("Value")
"""Encoded target of one row."""


@dataclass(frozen=True)
class OutputConfig(Part):
    """Settings of an output type (its column, and what it learns from the training rows), which build the output."""

    role: ClassVar[Role] = "outputs"

    # --- every type defines these ---

    takes: ClassVar[type]
    """Result class that a decoder must write."""

    def build(self, name: str, input: Input[Any], tokenizer: TextTokenizer | None, spec: HiddenSpec) -> Output[Any]:
        """Builds the output called `name`; `tokenizer` is for written texts, `spec` describes the encoder's output."""
        raise NotImplementedError

    # --- defaults ---

    input: ClassVar[str | None] = None
    """Default kind of input; None leaves it to the encoder."""
    input_settings: ClassVar[Mapping[str, Any]] = {}
    """Defaults of that input, where they differ."""
    reads: ClassVar[type[InputBatch]] = InputBatch
    """Input batch class that this output needs."""
    parts: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Defaults of parts in its settings, such as the input of candidates."""
    special_tokens: ClassVar[bool] = True
    """True if input texts are read with special tokens."""
    draws_items: ClassVar[bool] = False
    """True if it changes inputs at random in training; a model can have only one such output."""
    writes_text: ClassVar[bool] = False
    """True if it writes tokens and so needs a tokenizer."""
    joins: ClassVar[bool] = True
    """True if it can read two texts."""
    training: ClassVar[Mapping[str, Any]] = {}
    """Defaults of `train` for this type, where they differ."""
    tab: ClassVar[Tab] = "labels"
    """Tab of the playground that shows its answers."""

    metrics: tuple[str, ...] = field(default=(), kw_only=True)
    """Additional metric families for evaluation: names in `metrics`, modules with a dot in their name, or files
    (./mine.py)."""

    def columns(self) -> tuple[str, ...]:
        """Columns that hold the targets; empty if the input itself is the target."""
        return ()

    def check(self, input: InputConfig) -> None:
        """Raises an error if the input does not suit this output."""
        if not issubclass(input.gives, self.reads):
            raise TwofoldError(
                f"the output '{kind_of(self)}' needs {self.reads.__name__.lower()}, but the input "
                f"'{kind_of(input)}' gives {input.gives.__name__.lower()}; take input: {{kind: {self.input}}}"
            )
        if input.texts > 1 and not self.joins:
            raise TwofoldError(f"the output '{kind_of(self)}' needs one text, not two that are read as one")

    def begins(self) -> bool:
        """Returns True if its texts may start with a given prefix, which is read beside the input."""
        return False

    def required(self, row: Row) -> dict[str, tuple[str, ...]]:
        """Columns that the first row must have, by setting name."""
        return {"target": self.columns()} if self.columns() else {}

    def prompts(self) -> tuple[str, ...]:
        """Prompts of the texts that the output itself reads."""
        return ()

    def row(self, row: Row, input: InputConfig) -> Row:
        """Converts a row to the form that is cached."""
        return row

    def row_texts(self, row: Row) -> Iterable[str]:
        """Texts of a row to train its tokenizer on."""
        return ()

    def input_texts(self, row: Row, input: InputConfig) -> Iterable[str]:
        """Texts of a row to train the input's tokenizer on."""
        return input.row_texts(row)

    def check_batch_rows(self, rows: int | None) -> None:
        """Raises an error for an impossible batch size."""

    def tokenizer_settings(self) -> TokenizerConfig | None:
        """Settings of its own tokenizer, if it writes text and does not share the input's."""
        return None

    def tokenized(self, input: InputConfig) -> bool:
        """Returns True if it needs a tokenizer under its own name."""
        return self.writes_text

    def name_files(self, rows: Iterable[Row], where: Sources) -> Iterator[Row]:
        """Replaces names in its columns by the files."""
        return iter(rows)

    def in_folder(self, folder: str | None) -> Self:
        """Copy whose rows name files in `folder`; None means the folder of their table."""
        return self

    def reads_files(self, input: InputConfig) -> bool:
        """Returns True if the input, or the output itself, reads files that rows name."""
        return bool(input.endings)

    def content(self, where: Sources) -> str:
        """Hash of the files that it reads."""
        return ""

    def files(self, where: Sources, setting: str) -> dict[str, DataFile]:
        """Files that it reads, by setting name."""
        return {}

    def learned(self, rows: Callable[[], Iterable[Row]]) -> Self:
        """Copy with values learned from the training rows: label names, mean and standard deviation."""
        return self


@dataclass(frozen=True)
class ColumnConfig(OutputConfig):
    """Settings of an output type whose targets are in columns; each type sets a default `column`."""

    column: str | tuple[str, ...] = ()
    """Columns of the targets."""

    def columns(self) -> tuple[str, ...]:
        return (self.column,) if isinstance(self.column, str) else self.column


@dataclass(frozen=True)
class Output(Explains, Generic[Value]):
    """Output of a model: turns rows into targets and decoder results into answers. Its cache column has its name."""

    name: str
    config: OutputConfig
    spec: OutputSpec
    """Facts that a decoder must know about the output."""

    # --- every type implements these ---

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metric families (files of `twofold.metrics`) that evaluate it."""
        raise NotImplementedError

    def gold(self, row: Row) -> Any:
        """Gold answer of a row, in the form of the data; undefined unless `in_rows`."""
        raise NotImplementedError

    def target(self, values: Sequence[Value]) -> Target:
        """Turns targets into tensors; types with their own `add_target` or `whole_batch` do not need it."""
        raise NotImplementedError

    def answer(self, given: Any, item: Any, raw: Any, begun: Ids = ()) -> Prediction:
        """Turns a decoder's result for an item into an answer in the form of the data; a text may start with
        `begun`."""
        raise NotImplementedError

    # --- defaults: targets ---

    counted: ClassVar[bool] = False
    """True if target tokens count towards the batch size."""
    in_rows: ClassVar[bool] = True
    """True if rows hold the targets, so that `gold` returns them."""
    whole: ClassVar[bool] = False
    """True if targets depend on all rows of a batch, so that the output builds whole batches."""

    def columns(self) -> dict[str, Field]:
        """Cache fields of each row."""
        return {}

    def values(self, rows: Sequence[Row]) -> Sequence[Value]:
        """Encodes the targets of rows; warns about targets that cannot be predicted."""
        return [None] * len(rows)  # type: ignore[list-item]

    def cached(self, cache: Cache, row: int) -> Value:
        """Reads the target of a row from a cache."""
        return cache.columns[self.name].row(row) if self.columns() else None  # type: ignore[return-value]

    def change(
        self, items: Sequence[Any], values: Sequence[Value], draws: Sequence[Draw], other: Callable[[Draw], Any]
    ) -> tuple[Sequence[Any], Sequence[Value]]:
        """Changes items and targets at random for training; `other` draws the item of another row."""
        return items, values

    def add_target(self, batch: Batch, values: Sequence[Value], draws: Sequence[Draw], training: bool) -> Batch:
        """Adds the targets to a batch; may change its inputs."""
        return batch.with_target(self.name, self.target(values))

    def lengths(self, cache: Cache) -> NDArray[np.int64]:
        """Number of target tokens of each cached row, if they count."""
        return cache.columns[self.name].lengths

    def plan(self, rows: NDArray[np.int64], sizes: BatchSizes, epoch: int) -> Plan:
        """Plans the batches of an epoch, if the output builds whole batches."""
        raise NotImplementedError

    def whole_batch(self, cache: Cache, rows: NDArray[np.int64], moment: Moment, sizes: BatchSizes) -> Batch:
        """Builds one process's share of a batch, if the output builds whole batches."""
        raise NotImplementedError

    # --- defaults: answers ---

    def accept(self, rows: Sequence[Row], items: Sequence[Any]) -> None:
        """Raises an error for items that cannot be answered."""

    def plain(self, answer: Any) -> Any:
        """Converts an answer to JSON values."""
        return answer

    def caption(self, answer: Any) -> str:
        """Short text of an answer for figures."""
        return str(answer)

    def shown(self, prediction: Prediction, named: bool = False) -> str:
        """Formats an answer as one line for a terminal; `named` adds the input, if there are several."""
        answer = self.caption(prediction.output)
        return f"{prediction.input}: {answer}" if named else answer

    def mask(self, answer: Any) -> Mask | None:
        """Mask to draw over the input image, or None."""
        return None

    def tree(self, answer: Any) -> Tree | None:
        """Dependency tree to draw, or None."""
        return None

    def mask_paths(self, inputs: Sequence[Any], folder: Path) -> list[Path]:
        """Paths of the mask files for images."""
        raise TwofoldError("--masks: this decoder gives no masks; leave it out")

    def write_mask(self, answer: Any, path: Path) -> None:
        """Writes a mask to a file."""
        raise NotImplementedError

    def conllu(self, answer: Any, lines: str | None) -> str:
        """Writes an answer as a CoNLL-U sentence; all other columns are kept from `lines`."""
        raise TwofoldError("--conllu: this decoder gives neither trees nor the columns upos or xpos; leave it out")


@dataclass(frozen=True)
class ColumnOutput(Output[Value]):
    """Output with one cached column; a type implements `numbers_in`."""

    config: ColumnConfig
    dtype: ClassVar[str] = "int32"

    def settings(self) -> list[Any]:
        """Settings that its cached numbers depend on."""
        return [kind_of(self.config), *self.config.columns()]

    def numbers_in(self, row: Row) -> Any:
        """Target of a row as numbers."""
        raise NotImplementedError

    def encode(self, rows: Sequence[Row]) -> Encoded:
        """Encodes the targets of rows."""
        return Encoded([self.numbers_in(row) for row in rows])

    def columns(self) -> dict[str, Field]:
        return {self.name: self}

    def values(self, rows: Sequence[Row]) -> Sequence[Value]:
        return self.encode(rows).ids


def counted_numbers(values: Sequence[Ids]) -> Target:
    """Target (rows, numbers) with equally many numbers for each row, all of which count."""
    numbers = torch.from_numpy(np.stack([np.asarray(value) for value in values]))
    return Target(numbers.float(), torch.ones_like(numbers, dtype=torch.bool))
