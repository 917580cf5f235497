"""What a cache keeps of ranking rows, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twofold.data.cache import Encoded, Field
from twofold.data.files import Row
from twofold.data.ranking import KeysField, NegativesField, RankingReader, ScoresField, SideField, text_key
from twofold.data.relevance import LABEL_LIKE

UNREAD = tuple(sorted({*LABEL_LIKE["pair"], *LABEL_LIKE["candidates"]}))
"""Names that look like labels, as they are numbered in a cache."""


def ranking_columns(contexts: SideField, candidates: SideField, reader: RankingReader) -> dict[str, Field]:
    """The columns of rows that `reader` reads."""
    return {
        "context": contexts,
        "response": candidates,
        "others": NegativesField(candidates, "others"),
        "negatives": NegativesField(candidates),
        "keys": KeysField(reader),
        "other_keys": OtherKeysField(),
        "scores": ScoresField(),
        "unread": UnreadField(),
    }


@dataclass(frozen=True)
class OtherKeysField:
    """What tells equal texts: a hash of each right text of a row but for its response."""

    dtype: str = "uint64"

    def settings(self) -> list[Any]:
        return ["other keys"]

    def encode(self, rows: Sequence[Row]) -> Encoded:
        return Encoded([list(map(text_key, row.values.get("others", ()))) for row in rows], 0)


@dataclass(frozen=True)
class UnreadField:
    """The numbers of the columns of a row that look like labels and are not read."""

    dtype: str = "uint8"

    def settings(self) -> list[Any]:
        return ["unread", *UNREAD]

    def encode(self, rows: Sequence[Row]) -> Encoded:
        return Encoded([[UNREAD.index(name.casefold()) for name in row.values.get("unread", ())] for row in rows], 0)
