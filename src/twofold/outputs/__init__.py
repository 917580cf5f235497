"""Y: what a model writes. Each type is one file; this one says what every type offers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from twofold.config import Part, Role, kind_of
from twofold.data.batches import Draw, Moment, Plan
from twofold.data.cache import Cache, Encoded, Field
from twofold.data.files import DataFile, Row, Sources
from twofold.data.tokenizer import Ids, TextTokenizer, TokenizerConfig
from twofold.errors import TwofoldError
from twofold.inputs import BatchSizes, Input, InputConfig
from twofold.results import Mask, Prediction
from twofold.types import Batch, HiddenSpec, InputBatch, OutputSpec, Target

Value = TypeVar("Value")
"""The right answer of one row, as numbers."""


@dataclass(frozen=True)
class OutputConfig(Part):
    """Settings of an output type: its column and what it learned from the training rows; they build the output."""

    role: ClassVar[Role] = "outputs"

    # --- what every type fills in ---

    takes: ClassVar[type]
    """The class of results that a decoder must write."""

    def build(self, name: str, input: Input[Any], tokenizer: TextTokenizer | None, spec: HiddenSpec) -> Output[Any]:
        """The output called `name`; `tokenizer` is for texts that are written, `spec` says what an encoder gives."""
        raise NotImplementedError

    # --- what has a default ---

    input: ClassVar[str | None] = None
    """The kind of input that it is told from unless a recipe says; without one the encoder says."""
    input_settings: ClassVar[Mapping[str, Any]] = {}
    """Settings of that input that suit it, where they differ from the defaults."""
    reads: ClassVar[type[InputBatch]] = InputBatch
    """What it must be told from."""
    parts: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Defaults of the parts among its settings, such as how candidates are read."""
    special_tokens: ClassVar[bool] = True
    """Whether texts that it is told from are read between their special tokens."""
    draws_items: ClassVar[bool] = False
    """Whether it changes at random what is read, of which a model can have one only."""
    writes_text: ClassVar[bool] = False
    """Whether it writes tokens, and so needs a tokenizer."""
    joins: ClassVar[bool] = True
    """Whether it can be told from two texts."""
    training: ClassVar[Mapping[str, Any]] = {}
    """Settings of `train` that suit it, where they differ from the defaults."""

    metrics: tuple[str, ...] = field(default=(), kw_only=True)
    """Further metric families that judge it: files of `metrics`, modules with a dot in their names, or ./mine.py."""

    def columns(self) -> tuple[str, ...]:
        """The columns that are learned from; none where the input itself is all there is to learn from."""
        return ()

    def check(self, input: InputConfig) -> None:
        """Refuse an input that it cannot be told from."""
        if not issubclass(input.gives, self.reads):
            raise TwofoldError(
                f"the output '{kind_of(self)}' is told from {self.reads.__name__.lower()}, but the input "
                f"'{kind_of(input)}' gives {input.gives.__name__.lower()}; take input: {{kind: {self.input}}}"
            )
        if input.texts > 1 and not self.joins:
            raise TwofoldError(f"the output '{kind_of(self)}' is told from one text, not from two that are read as one")

    def begins(self) -> bool:
        """Whether its texts may be begun, and the beginning read beside the input."""
        return False

    def required(self, row: Row) -> dict[str, tuple[str, ...]]:
        """The columns that a first row must have, by the settings that name them."""
        return {"target": self.columns()} if self.columns() else {}

    def prompts(self) -> tuple[str, ...]:
        """What stands before the texts that it reads itself."""
        return ()

    def row(self, row: Row, input: InputConfig) -> Row:
        """A row in the form that a cache is made of."""
        return row

    def row_texts(self, row: Row) -> Iterable[str]:
        """The texts of a row that a tokenizer is trained on."""
        return ()

    def input_texts(self, row: Row, input: InputConfig) -> Iterable[str]:
        """The texts of a row that the tokenizer of its input is trained on."""
        return input.row_texts(row)

    def check_batch_rows(self, rows: int | None) -> None:
        """Refuse batches that cannot be made."""

    def tokenizer_settings(self) -> TokenizerConfig | None:
        """How to train a tokenizer of its own, where it writes texts and does not share the input's."""
        return None

    def tokenized(self, input: InputConfig) -> bool:
        """Whether it needs a tokenizer under its own name."""
        return self.writes_text

    def name_files(self, rows: Iterable[Row], where: Sources) -> Iterator[Row]:
        """The same rows, in which names become the files that it reads itself."""
        return iter(rows)

    def in_folder(self, folder: str | None) -> Self:
        """The same, whose rows name files in a folder; without one, in the folder of their table."""
        return self

    def reads_files(self, input: InputConfig) -> bool:
        """Whether what it is told from, or reads itself, lies in files that rows name."""
        return bool(input.endings)

    def content(self, where: Sources) -> str:
        """A hash of the files that it reads itself."""
        return ""

    def files(self, where: Sources, setting: str) -> dict[str, DataFile]:
        """The files that it reads itself, by the settings that name them."""
        return {}

    def learned(self, rows: Callable[[], Iterable[Row]]) -> Self:
        """The same with what must be found in the training rows: the names of labels, the mean of numbers."""
        return self


@dataclass(frozen=True)
class ColumnConfig(OutputConfig):
    """Settings of an output type whose right answers stand in columns; a type gives its `column` a default."""

    column: str | tuple[str, ...] = ()
    """The column or columns of the right answers."""

    def columns(self) -> tuple[str, ...]:
        return (self.column,) if isinstance(self.column, str) else self.column


@dataclass(frozen=True)
class Output(Generic[Value]):
    """How rows become right answers, and what a decoder makes an answer; the column of a cache bears its name."""

    name: str
    config: OutputConfig
    spec: OutputSpec
    """What a decoder must know of it."""

    # --- what every type fills in ---

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metric families, files of `twofold.metrics`, that judge it."""
        raise NotImplementedError

    def gold(self, row: Row) -> Any:
        """The right answer of a row, in the form of the data; a type that is not `in_rows` has none."""
        raise NotImplementedError

    def target(self, values: Sequence[Value]) -> Target:
        """Right answers as tensors; a type with an `add_target` or a `whole_batch` of its own needs none."""
        raise NotImplementedError

    def answer(self, given: Any, item: Any, raw: Any, begun: Ids = ()) -> Prediction:
        """What the decoder made of an item, in the form of the data; a text may have been `begun`."""
        raise NotImplementedError

    # --- what has a default: right answers ---

    counted: ClassVar[bool] = False
    """Whether its values are tokens, which count with those that are read towards the size of a batch."""
    in_rows: ClassVar[bool] = True
    """Whether right answers stand in the rows, so that `gold` gives them."""
    whole: ClassVar[bool] = False
    """Whether right answers depend on all rows of a batch, so that it makes batches as a whole."""

    def columns(self) -> dict[str, Field]:
        """What a cache keeps of each row."""
        return {}

    def values(self, rows: Sequence[Row]) -> Sequence[Value]:
        """The right answers of some rows, if they stand in rows; what cannot be answered rightly is said."""
        return [None] * len(rows)  # type: ignore[list-item]

    def cached(self, cache: Cache, row: int) -> Value:
        """The right answer of a row, out of a cache."""
        return cache.columns[self.name].row(row) if self.columns() else None  # type: ignore[return-value]

    def change(
        self, items: Sequence[Any], values: Sequence[Value], draws: Sequence[Draw], other: Callable[[Draw], Any]
    ) -> tuple[Sequence[Any], Sequence[Value]]:
        """Items and right answers as they are learned from; `other` draws the item of any row."""
        return items, values

    def add_target(self, batch: Batch, values: Sequence[Value], draws: Sequence[Draw], training: bool) -> Batch:
        """The batch with the right answers of its rows; what is read may change with them."""
        return batch.with_target(self.name, self.target(values))

    def lengths(self, cache: Cache) -> NDArray[np.int64]:
        """For each row how many tokens are to be written, where they count."""
        return cache.columns[self.name].lengths

    def plan(self, rows: NDArray[np.int64], sizes: BatchSizes, epoch: int) -> Plan:
        """Where it makes batches as a whole: those of an epoch."""
        raise NotImplementedError

    def whole_batch(self, cache: Cache, rows: NDArray[np.int64], moment: Moment, sizes: BatchSizes) -> Batch:
        """Where it makes batches as a whole: the share of one process in a batch."""
        raise NotImplementedError

    # --- what has a default: answers ---

    def accept(self, rows: Sequence[Row], items: Sequence[Any]) -> None:
        """Refuse items that cannot be answered."""

    def plain(self, answer: Any) -> Any:
        """An answer as JSON can hold it."""
        return answer

    def caption(self, answer: Any) -> str:
        """An answer as it stands under an image in a figure."""
        return str(answer)

    def shown(self, prediction: Prediction, named: bool = False) -> str:
        """An answer on one line of a terminal; where there are several, `named` after its input."""
        answer = self.caption(prediction.output)
        return f"{prediction.input}: {answer}" if named else answer

    def mask(self, answer: Any) -> Mask | None:
        """What is drawn over the image that an answer was given to, if anything is."""
        return None

    def mask_paths(self, inputs: Sequence[Any], folder: Path) -> list[Path]:
        """Where the masks of some images go."""
        raise TwofoldError("--masks: what is asked writes text and paints no masks")

    def write_mask(self, answer: Any, path: Path) -> None:
        """A mask as a file."""
        raise NotImplementedError

    def conllu(self, answer: Any, lines: str | None) -> str:
        """An answer as a sentence of CoNLL-U; all else as it stands in `lines`."""
        raise TwofoldError("--conllu: what is asked writes neither trees nor the columns upos or xpos")


@dataclass(frozen=True)
class ColumnOutput(Output[Value]):
    """An output that keeps one column in a cache, as a field of that cache; a type fills in `numbers_in`."""

    config: ColumnConfig
    dtype: ClassVar[str] = "int32"

    def settings(self) -> list[Any]:
        """What its numbers depend on."""
        return [kind_of(self.config), *self.config.columns()]

    def numbers_in(self, row: Row) -> Any:
        """The right answer of a row as numbers."""
        raise NotImplementedError

    def encode(self, rows: Sequence[Row]) -> Encoded:
        """The numbers of some rows."""
        return Encoded([self.numbers_in(row) for row in rows])

    def columns(self) -> dict[str, Field]:
        return {self.name: self}

    def values(self, rows: Sequence[Row]) -> Sequence[Value]:
        return self.encode(rows).ids


def counted_numbers(values: Sequence[Ids]) -> Target:
    """(rows, numbers): as many numbers of each row, all of which count."""
    numbers = torch.from_numpy(np.stack([np.asarray(value) for value in values]))
    return Target(numbers.float(), torch.ones_like(numbers, dtype=torch.bool))
