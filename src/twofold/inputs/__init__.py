"""X, the input of a model. Each input type is one file; this module defines the interface they share."""

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
from twofold.data.memory import list_in_memory
from twofold.data.passages import Splits
from twofold.data.ranking import TEXTS, Side
from twofold.data.tokenizer import TextTokenizer, TokenizerConfig
from twofold.errors import TwofoldError, as_list, require
from twofold.explaining import LeavesOut
from twofold.reading import ReadsElsewhere
from twofold.results import Timeline
from twofold.types import Features, InputBatch, InputSpec, Vocabulary

Item = TypeVar("Item")
"""Item of an input type, made from one row: token ids, an image, ..."""
INPUT = "input"
"""Name of the main input in caches, batches and tokenizers."""


@dataclass(frozen=True)
class BatchSizes:
    """Batch size of a training, and the seed of the shuffling."""

    tokens: int
    """Maximum number of tokens in a batch: rows × longest, padding included."""
    rows: int | None
    """Fixed number of rows in a batch, drawn at random, instead of `tokens`."""
    seed: int
    negatives: int | None = None
    """Number of negatives read with each context, for cross-encoders."""


@dataclass(frozen=True)
class InputConfig(Part):
    """Settings of an input type (columns and limits), which build the input."""

    role: ClassVar[Role] = "inputs"

    # --- every type defines these ---
    gives: ClassVar[type[InputBatch]]
    """Dataclass that encoders get to read."""

    column: str | tuple[str, ...] = ()
    """Columns to read; each type sets a default."""

    def build(self, tokenizer: TextTokenizer | None) -> Input[Any]:
        """Builds the input; `tokenizer` is for text."""
        raise NotImplementedError

    # --- defaults ---

    without_torch: ClassVar[bool] = False
    """True if `framed` gives token ids, so that an engine can encode them without torch."""
    texts: ClassVar[int] = 1
    """Number of texts joined to one input."""
    noun: ClassVar[str] = "text"
    """Noun for one input in messages."""
    endings: ClassVar[tuple[str, ...]] = ()
    """File name suffixes, for inputs that rows name as files; empty if rows hold the data."""
    training: ClassVar[Mapping[str, Any]] = {}
    """Defaults of `train` for this type, where they differ."""

    def columns(self) -> tuple[str, ...]:
        """Columns that are read."""
        return (self.column,) if isinstance(self.column, str) else self.column

    @property
    def apart(self) -> bool:
        """True if a pair's texts are encoded separately."""
        return False

    def tokenizer_settings(self) -> TokenizerConfig | None:
        """Settings of the tokenizer to train; None without text."""
        return None

    def with_special_tokens(self, wanted: bool) -> Self:
        """Copy with special tokens around texts as `wanted`, if the settings leave it open."""
        return self

    def limited(self, longest: int) -> Self:
        """Copy with at most `longest` tokens."""
        return self

    def limits(self) -> dict[str, int]:
        """Token limits by setting name."""
        return {}

    def prompts(self) -> tuple[str, ...]:
        """Prompts put before texts."""
        return ()

    def before(self) -> str | None:
        """Column with texts put before the turns of a dialogue, or None."""
        return None

    def in_folder(self, folder: str | None) -> Self:
        """Copy whose rows name files in `folder`; None means the folder of their table."""
        return self

    def row_texts(self, row: Row) -> Iterable[str]:
        """Texts of a row to train the tokenizer on."""
        return ()

    def skips(self) -> bool:
        """True if unusable rows are skipped."""
        return False

    def check_columns(self, where: Sources) -> bool:
        """Returns True if the first row of a file must have all columns."""
        return True

    def check_batch_rows(self, rows: int | None) -> None:
        """Raises an error for an impossible batch size."""

    def rows(self, where: Sources) -> Iterator[Row]:
        """Reads all rows of a file for this input."""
        return read_rows(where)

    def name_files(self, rows: Iterable[Row], where: Sources, columns: Sequence[str]) -> Iterator[Row]:
        """Replaces names in `columns` by the files."""
        return iter(rows)

    def side(self) -> Side:
        """Reader of this type's contexts or candidates in ranking rows."""
        return TEXTS

    def files(self, where: Sources, setting: str) -> dict[str, DataFile]:
        """Files that `rows` reads, by setting name."""
        named = {setting: where} if isinstance(where, str) else {}
        if isinstance(where, Mapping):
            named = {f"{setting}.{column}": path for column, path in where.items()}
        elif isinstance(where, tuple):
            named = {f"{setting}[{number}]": path for number, path in enumerate(where)}
        return {name: DataFile(path, partial(fingerprint, path)) for name, path in named.items()}

    def content(self, where: Sources) -> str:
        """Hash of everything that `rows` reads."""
        return fingerprint(where)


class Input(LeavesOut, Splits, ReadsElsewhere, Generic[Item]):
    """Input of a model: turns rows into items, and items into the batch that an encoder reads."""

    # --- every type implements these ---

    config: InputConfig

    def columns(self) -> dict[str, Field]:
        """Cache fields of each row."""
        raise NotImplementedError

    def items(self, rows: Sequence[Row]) -> list[Item]:
        """Makes an item for each row; warns about truncation."""
        raise NotImplementedError

    def cached(self, cache: Cache, row: int) -> Item:
        """Reads the item of a row from a cache."""
        raise NotImplementedError

    def batch(self, items: Sequence[Item], draws: Sequence[Draw] | None = None) -> InputBatch:
        """Turns items into tensors; `draws`, one random generator for each item, apply noise or augmentation."""
        raise NotImplementedError

    def value(self, row: Row) -> Any:
        """Value of a row, as a user would give it."""
        raise NotImplementedError

    # --- defaults: text ---

    @property
    def tokenizer(self) -> TextTokenizer | None:
        """Tokenizer of text inputs."""
        return None

    @property
    def limit(self) -> int:
        """Maximum number of tokens; 0 for inputs without text."""
        return self.config.limits().get("max_tokens", 0)

    @property
    def vocabulary(self) -> Vocabulary:
        """Vocabulary of the tokenizer."""
        return vocabulary_of(require(self.tokenizer, "this input reads no text"), self.limit)

    @property
    def spec(self) -> InputSpec:
        return self.vocabulary if self.tokenizer else Features()

    def length(self, item: Item) -> int:
        """Number of tokens of an item, without special tokens."""
        return 1

    def lengths(self, cache: Cache) -> NDArray[np.int64]:
        """Number of tokens of each cached row, special tokens included."""
        return np.ones(cache.rows, np.int64)

    def pieces(self, item: Item) -> list[str]:
        """Tokens of an item as text, for figures; empty for inputs without text."""
        return []

    def timeline(self, item: Item) -> Timeline | None:
        """Time axis of an item for figures, or None."""
        return None

    # --- contexts and candidates ---

    def placed(self, place: str) -> Self:
        """Copy whose errors name `place` in the recipe."""
        return self

    def accepted(self, value: Any, name: str, filled: bool = False) -> Any:
        """Checks a user's context; `filled` refuses an empty one."""
        turns = value if isinstance(value, list) else [value]  # turns of a dialogue
        if len(turns) != 1:
            raise TwofoldError(f"{name}: {len(turns)} {self.config.noun}s, where one is read; give one")
        return self.value(self.row(turns[0], name))

    def candidates(self, where: Any, blank: bool = False) -> Iterator[Candidate]:
        """Reads candidates from a file or a list; `blank` keeps empty texts."""
        if is_file(where):
            for number, row in enumerate(self.rows_to_answer(str(where), None), start=1):
                yield self._candidate(row, row.line or number)
            return
        for number, given in enumerate(list_in_memory(where, "candidates")):
            place = f"candidates[{number}]"
            yield self._candidate(Row(place, given) if isinstance(given, Mapping) else self.row(given, place), number)

    def _candidate(self, row: Row, number: int) -> Candidate:
        content, read = self.value(row), ("id", *self.config.columns())
        fields = {name: value for name, value in row.values.items() if name not in read}
        return Candidate(str(content), number, row.values.get("id"), fields, row.place, content)

    def items_of(self, values: Sequence[Any]) -> list[Item]:
        """Makes an item for each context or candidate."""
        return self.items([self.row(value, f"input {number}") for number, value in enumerate(values, start=1)])

    def encode_values(self, column: str, values: Sequence[Any]) -> Encoded:
        """Encodes contexts or candidates for a cache column."""
        rows = [self.row(value, f"value {number}") for number, value in enumerate(values, start=1)]
        return self.columns()[column].encode(rows)

    def box(self, size: tuple[int, int]) -> tuple[float, float, float, float]:
        """Left, top, right and bottom edge of the part read from an image of this height and width."""
        raise NotImplementedError

    def image(self, value: Any) -> Image | None:
        """Image to draw in figures, or None."""
        return None

    def plan(
        self, cache: Cache, rows: NDArray[np.int64], written: Sequence[NDArray[np.int64]], sizes: BatchSizes, epoch: int
    ) -> Plan:
        """Plans the batches of an epoch, deterministically, by the lengths of targets, `written`, then of inputs."""
        if sizes.rows:
            return plan_at_random(rows, sizes.rows, sizes.seed, epoch)
        return plan_by_length([self.lengths(cache), *written], rows, sizes.tokens, sizes.seed, epoch)

    def groups(self, items: Sequence[Item], tokens: int) -> Iterator[list[int]]:
        """Groups items to encode together, about `tokens` tokens at a time."""
        return by_length([self.length(item) for item in items], tokens)

    def usable(self, rows: Iterable[Row], further: Iterable[Field]) -> Iterable[Row]:
        """Rows that can be read, also by `further` columns; reports unusable rows as a warning or an error."""
        return rows

    def is_single(self, inputs: Any) -> bool:
        """Returns True for a single input, False for a list of inputs."""
        return isinstance(inputs, str)

    def several(self, inputs: Any) -> list[Any]:
        """Returns a list of inputs; a single one is wrapped."""
        return [inputs] if self.is_single(inputs) else as_list(inputs, "inputs")

    def row(self, value: Any, place: str) -> Row:
        """Turns a user's value into a row."""
        return Row(place, {self.config.columns()[0]: value})

    def rows_to_answer(self, where: str, folder: str | None) -> list[Row]:
        """Reads a user's file: rows in the form of the training data, or plain lines."""
        rows = list(read_rows(where))
        if "text" in rows[0].values and not set(self.config.columns()) <= rows[0].values.keys():
            return [self.row(row.text("text"), row.place) for row in rows]
        return rows
