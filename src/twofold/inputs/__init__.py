"""X: what a model reads. Each type is one file; this one says what every type offers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image

from twofold.config import Part, Role
from twofold.data.batches import Draw, Plan, by_length, plan_at_random, plan_by_length
from twofold.data.cache import Cache, Encoded, Field
from twofold.data.candidates import Candidate, is_file
from twofold.data.columns import vocabulary_of
from twofold.data.files import DataFile, Row, Sources, fingerprint, read_rows
from twofold.data.ranking import TEXTS, Side
from twofold.data.tokenizer import TextTokenizer, TokenizerConfig
from twofold.errors import TwofoldError, as_list
from twofold.results import Timeline
from twofold.types import Features, InputBatch, InputSpec, Vocabulary, require

Item = TypeVar("Item")
"""What an input type makes of one row: token ids, an image, ..."""
INPUT = "input"
"""The name of what a model is asked about, among the columns of a cache, the inputs of a batch and the tokenizers."""


@dataclass(frozen=True)
class BatchSizes:
    """How large the batches of a training are, and the seed that they are drawn by."""

    tokens: int
    """The most tokens of a batch, rows × longest with padding."""
    rows: int | None
    """Instead: a fixed number of rows, drawn at random."""
    seed: int
    negatives: int | None = None
    """Where a context is read with each candidate as one text: with how many wrong ones."""


@dataclass(frozen=True)
class InputConfig(Part):
    """Settings of an input type: its columns and limits; they build the input."""

    role: ClassVar[Role] = "inputs"

    # --- what every type fills in ---

    gives: ClassVar[type[InputBatch]]
    """What an encoder is given to read."""

    column: str | tuple[str, ...] = ()
    """The column or columns to read; a type gives it a default."""

    def build(self, tokenizer: TextTokenizer | None) -> Input[Any]:
        """The input; `tokenizer` is for texts."""
        raise NotImplementedError

    # --- what has a default ---

    texts: ClassVar[int] = 1
    """How many texts are read as one."""
    noun: ClassVar[str] = "text"
    """What is read, as messages call one of it."""
    endings: ClassVar[tuple[str, ...]] = ()
    """How the names of the files end that rows name, and that may lie in another folder; none where rows hold all."""
    training: ClassVar[Mapping[str, Any]] = {}
    """Settings of `train` that suit it, where they differ from the defaults."""

    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        return (self.column,) if isinstance(self.column, str) else self.column

    @property
    def apart(self) -> bool:
        """Whether its texts are read each by itself."""
        return False

    def tokenizer_settings(self) -> TokenizerConfig | None:
        """How to train the tokenizer that it needs; nothing where it reads no text."""
        return None

    def with_special_tokens(self, wanted: bool) -> Self:
        """The same with special tokens around its texts as `wanted`, where the settings leave that open."""
        return self

    def limited(self, longest: int) -> Self:
        """The same, reading at most so many tokens."""
        return self

    def limits(self) -> dict[str, int]:
        """The settings that say how many tokens are read, with their values."""
        return {}

    def prompts(self) -> tuple[str, ...]:
        """What stands before its texts."""
        return ()

    def before(self) -> str | None:
        """The column whose texts stand before the turns of a dialogue, if there is one."""
        return None

    def in_folder(self, folder: str | None) -> Self:
        """The same, whose rows name files in a folder; without one, in the folder of their table."""
        return self

    def row_texts(self, row: Row) -> Iterable[str]:
        """The texts of a row that a tokenizer is trained on."""
        return ()

    def skips(self) -> bool:
        """Whether rows that cannot be used are left out."""
        return False

    def check_columns(self, where: Sources) -> bool:
        """Whether the first row of a file must have all columns."""
        return True

    def check_batch_rows(self, rows: int | None) -> None:
        """Refuse batches that cannot be made."""

    def rows(self, where: Sources) -> Iterator[Row]:
        """Every row of a file, in the form in which this input reads it."""
        return read_rows(where)

    def name_files(self, rows: Iterable[Row], where: Sources, columns: Sequence[str]) -> Iterator[Row]:
        """The same rows, in whose `columns` names become the files that this input reads."""
        return iter(rows)

    def side(self) -> Side:
        """How contexts or candidates of this type stand in the rows of a ranker."""
        return TEXTS

    def files(self, where: Sources, setting: str) -> dict[str, DataFile]:
        """The files that `rows` reads, by the settings that name them."""
        if isinstance(where, Mapping):
            named = {f"{setting}.{column}": path for column, path in where.items()}
        elif isinstance(where, tuple):
            named = {f"{setting}[{number}]": path for number, path in enumerate(where)}
        else:
            named = {setting: where}
        return {name: DataFile(path, partial(fingerprint, path)) for name, path in named.items()}

    def content(self, where: Sources) -> str:
        """A hash of all that `rows` reads."""
        return fingerprint(where)


class Input(Generic[Item]):
    """How rows become items, and items what an encoder reads."""

    # --- what every type fills in ---

    config: InputConfig

    def columns(self) -> dict[str, Field]:
        """What a cache keeps of each row."""
        raise NotImplementedError

    def items(self, rows: Sequence[Row]) -> list[Item]:
        """An item for each row; what had to be cut is said."""
        raise NotImplementedError

    def cached(self, cache: Cache, row: int) -> Item:
        """The item of a row, out of a cache."""
        raise NotImplementedError

    def batch(self, items: Sequence[Item], draws: Sequence[Draw] | None = None) -> InputBatch:
        """Items as tensors; with `draws`, one for each item, in the random form that is learned from."""
        raise NotImplementedError

    def value(self, row: Row) -> Any:
        """What a row holds, as a user would give it."""
        raise NotImplementedError

    # --- what has a default: of texts ---

    @property
    def tokenizer(self) -> TextTokenizer | None:
        """What cuts texts into tokens, where texts are read."""
        return None

    @property
    def limit(self) -> int:
        """The most tokens that are read at once; 0 where nothing of it is text."""
        return self.config.limits().get("max_tokens", 0)

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens that are read."""
        return vocabulary_of(require(self.tokenizer, "this input reads no text"), self.limit)

    @property
    def spec(self) -> InputSpec:
        return self.vocabulary if self.tokenizer else Features()

    def length(self, item: Item) -> int:
        """How many tokens an item has, special ones around it not counted."""
        return 1

    def lengths(self, cache: Cache) -> NDArray[np.int64]:
        """For each row of a cache how many tokens are read, special ones included."""
        return np.ones(cache.rows, np.int64)

    def pieces(self, item: Item) -> list[str]:
        """The tokens of an item as text, for figures; none where nothing of it is text."""
        return []

    def timeline(self, item: Item) -> Timeline | None:
        """What of an item is drawn along its time, if it has one."""
        return None

    # --- of contexts and candidates ---

    def placed(self, place: str) -> Self:
        """The same, whose settings stand at a place of a recipe."""
        return self

    def accepted(self, value: Any, name: str, filled: bool = False) -> Any:
        """What a user gives as a context, checked; `filled` refuses an empty one."""
        turns = value if isinstance(value, list) else [value]  # of a dialogue
        if len(turns) != 1:
            raise TwofoldError(f"{name}: {len(turns)} {self.config.noun}s, where one is read; give one")
        return self.value(self.row(turns[0], name))

    def candidates(self, where: Any, blank: bool = False) -> Iterator[Candidate]:
        """The candidates of a file, or at hand; `blank` keeps empty texts."""
        if is_file(where):
            for number, row in enumerate(self.rows_to_answer(str(where), None), start=1):
                yield self._candidate(row, row.line or number)
            return
        for number, given in enumerate(as_list(where, "candidates")):
            place = f"candidates[{number}]"
            yield self._candidate(Row(place, given) if isinstance(given, Mapping) else self.row(given, place), number)

    def _candidate(self, row: Row, number: int) -> Candidate:
        content, read = self.value(row), ("id", *self.config.columns())
        fields = {name: value for name, value in row.values.items() if name not in read}
        return Candidate(str(content), number, row.values.get("id"), fields, row.place, content)

    def items_of(self, values: Sequence[Any]) -> list[Item]:
        """An item for each context or candidate."""
        return self.items([self.row(value, f"input {number}") for number, value in enumerate(values, start=1)])

    def encode_values(self, column: str, values: Sequence[Any]) -> Encoded:
        """The numbers of contexts or candidates in a column of a cache."""
        rows = [self.row(value, f"value {number}") for number, value in enumerate(values, start=1)]
        return self.columns()[column].encode(rows)

    # --- of images ---

    def box(self, size: tuple[int, int]) -> tuple[float, float, float, float]:
        """Left, upper, right and lower edge of what is read of an image of this height and width."""
        raise NotImplementedError

    def image(self, value: Any) -> Image | None:
        """What a user gave as an image to draw, if it is one."""
        return None

    # --- of all types ---

    def plan(
        self, cache: Cache, rows: NDArray[np.int64], written: Sequence[NDArray[np.int64]], sizes: BatchSizes, epoch: int
    ) -> Plan:
        """The batches of an epoch, the same whenever asked; `written` has the lengths of what is to be written."""
        if sizes.rows:
            return plan_at_random(rows, sizes.rows, sizes.seed, epoch)
        # Rows are sorted by what is written first, by what is read second.
        return plan_by_length([self.lengths(cache), *written], rows, sizes.tokens, sizes.seed, epoch)

    def groups(self, items: Sequence[Item], tokens: int) -> Iterator[list[int]]:
        """The numbers of items that are read together, about `tokens` tokens at a time."""
        return by_length([self.length(item) for item in items], tokens)

    def usable(self, rows: Iterable[Row], further: Iterable[Field]) -> Iterable[Row]:
        """The rows that can be read, also by `further` columns; what is wrong with the others is said or an error."""
        return rows

    def several(self, inputs: Any) -> Sequence[Any]:
        """What a user gives as a list: one text is one input."""
        if isinstance(inputs, str):
            return [inputs]
        if isinstance(inputs, bytes | bytearray) or not isinstance(inputs, Sequence):
            raise TwofoldError(f"predict takes one input or a list of them, not {type(inputs).__name__}; give a list")
        return inputs

    def row(self, value: Any, place: str) -> Row:
        """What a user gives, as a row."""
        return Row(place, {self.config.columns()[0]: value})

    def rows_to_answer(self, where: str, folder: str | None) -> list[Row]:
        """The rows of a file that a user gives: of the form of the training data, or plain lines."""
        rows = list(read_rows(where))
        if "text" in rows[0].values and not set(self.config.columns()) <= rows[0].values.keys():
            return [self.row(row.text("text"), row.place) for row in rows]
        return rows
