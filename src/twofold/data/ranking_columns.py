"""What a cache keeps of ranking rows, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twofold.data.cache import Encoded, Field
from twofold.data.files import Row
from twofold.data.ranking import RankingReader, text_key
from twofold.data.relevance import LABEL_LIKE
from twofold.data.text_column import TextColumn

UNREAD = tuple(sorted({*LABEL_LIKE["pair"], *LABEL_LIKE["candidates"]}))
"""Names that look like labels, as they are numbered in a cache."""


def ranking_columns(contexts: TextColumn, candidates: TextColumn, reader: RankingReader) -> dict[str, Field]:
    """The columns of rows that `reader` reads."""
    return {
        "context": TextInRow(contexts, "context"),
        "response": TextInRow(candidates, "response"),
        "others": TextsColumn(candidates, "others"),
        "negatives": TextsColumn(candidates),
        "keys": KeysColumn(reader),
        "other_keys": OtherKeysColumn(),
        "scores": ScoresColumn(),
        "unread": UnreadColumn(),
    }


@dataclass(frozen=True)
class TextInRow:
    """One side of a pair, in the one form of ranking rows."""

    side: TextColumn
    column: str

    @property
    def dtype(self) -> str:
        return self.side.dtype

    def settings(self) -> list[Any]:
        return [self.column, *self.side.settings()]

    def encode(self, rows: Sequence[Row]) -> Encoded:
        return self.side.encode_texts([row.text(self.column) for row in rows])


@dataclass(frozen=True)
class TextsColumn:
    """The given negatives of a row, or its other right texts, one after the other, each with its length before it."""

    side: TextColumn
    column: str = "negatives"

    @property
    def dtype(self) -> str:
        return "uint32"

    def settings(self) -> list[Any]:
        return [self.column, *self.side.settings()]

    def encode(self, rows: Sequence[Row]) -> Encoded:
        texts = [row.values.get(self.column, ()) for row in rows]
        whole = [text for some in texts for text in some]
        encoded = self.side.encode_texts(whole) if whole else Encoded([], 0)
        found = iter(encoded.ids)
        flat = [[number for _ in some for ids in (next(found),) for number in (len(ids), *ids)] for some in texts]
        return Encoded(flat, encoded.cut)


@dataclass(frozen=True)
class KeysColumn:
    """What tells equal texts: a hash of the context, of the response, and of each negative."""

    reader: RankingReader
    dtype: str = "uint64"

    def settings(self) -> list[Any]:
        return ["keys", repr(self.reader)]

    def encode(self, rows: Sequence[Row]) -> Encoded:
        values = [row.values for row in rows]
        return Encoded(
            [[text_key(" \n".join(v["context"])), *map(text_key, (v["response"], *v["negatives"]))] for v in values], 0
        )


@dataclass(frozen=True)
class ScoresColumn:
    """A teacher's scores of the right texts and of each negative."""

    dtype: str = "float32"

    def settings(self) -> list[Any]:
        return ["scores"]

    def encode(self, rows: Sequence[Row]) -> Encoded:
        return Encoded([row.values.get("scores", []) for row in rows], 0)


@dataclass(frozen=True)
class OtherKeysColumn:
    """What tells equal texts: a hash of each right text of a row but for its response."""

    dtype: str = "uint64"

    def settings(self) -> list[Any]:
        return ["other keys"]

    def encode(self, rows: Sequence[Row]) -> Encoded:
        return Encoded([list(map(text_key, row.values.get("others", ()))) for row in rows], 0)


@dataclass(frozen=True)
class UnreadColumn:
    """The numbers of the columns of a row that look like labels and are not read."""

    dtype: str = "uint8"

    def settings(self) -> list[Any]:
        return ["unread", *UNREAD]

    def encode(self, rows: Sequence[Row]) -> Encoded:
        return Encoded([[UNREAD.index(name.casefold()) for name in row.values.get("unread", ())] for row in rows], 0)
