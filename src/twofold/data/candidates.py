"""Contexts and candidates given by users: texts, dialogues, and rows with `text`, `id` and further fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from twofold.data.files import Row, Where, read_rows
from twofold.data.memory import RowsInMemory, is_file_name, list_in_memory
from twofold.errors import TwofoldError, as_list, as_texts, check_text, kind_of_value

Text = str | list[str]
"""Text, or the turns of a dialogue, oldest first."""
Texts = Where | Path | RowsInMemory
"""File, or texts or rows in memory: any iterable of texts or dicts, a `datasets.Dataset` or a pandas DataFrame."""


@dataclass(frozen=True)
class Candidate:
    """Candidate with its id and fields."""

    text: str
    """Text, or the name of content of another type."""
    number: int
    """Line number in a file, from 1, or position in a list, from 0."""
    own_id: Any = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the row."""
    place: str = ""
    content: Any = None
    """Content that is not text, such as an image."""
    title: str = ""
    """Title at the beginning of the text, before a blank."""

    @property
    def read(self) -> Any:
        """Content that the model reads."""
        return self.text if self.content is None else self.content

    @property
    def id(self) -> Any:
        """Id of the candidate, or its line number or position if it has none."""
        return self.number if self.own_id is None else self.own_id


def read_candidates(where: Texts, blank: bool = False) -> Iterator[Candidate]:
    """Reads all candidates of a file or a list.

    blank: keep rows whose text is empty; by default these are skipped, and blank lines of plain text always are
    """
    empty = True
    for number, row in _numbered(where):
        text = row.values.get("text")
        if not isinstance(text, str):
            raise TwofoldError(f"{row.place}: no 'text' here; give lines of text, or rows with 'text' and 'id'")
        title = row.values.get("title")
        title = title if isinstance(title, str) else ""
        whole = f"{title} {text}" if title else text
        if whole.strip():
            Row(row.place, {"text": whole}).text("text")  # checks for whole characters
        elif not blank:
            continue
        empty = False
        fields = {name: value for name, value in row.values.items() if name not in ("id", "text")}
        yield Candidate(whole, number, row.values.get("id"), fields, row.place, title=title)
    if empty:
        name = where if isinstance(where, str | Path) else "the texts"
        raise TwofoldError(f"{name}: holds no candidates; give one on each line")


def is_file(texts: Texts) -> bool:
    """Returns True if texts come from a file, where they are numbered from 1, rather than from a list."""
    return is_file_name(texts)


def at_hand(texts: Any) -> Texts:
    """Makes texts readable more than once: a file stays, anything in memory becomes a list."""
    given: Texts = texts if is_file(texts) else list_in_memory(texts, "texts")
    return given


def given_texts(texts: Any) -> list[Candidate]:
    """Reads texts, or rows with `text` and optionally `id`, from memory; keeps all of them."""
    given = list_in_memory(texts, "texts")
    if any(isinstance(text, Mapping) for text in given):
        return list(read_candidates(given, blank=True))
    checked = enumerate(as_texts(given, "texts"))
    return [Candidate(str(text), number, place=f"texts[{number}]") for number, text in checked]


def with_ids(candidates: list[Candidate], ids: Any = None) -> list[Candidate]:
    """Assigns the given ids, or keeps the candidates' own; ids must be unique."""
    if ids is not None:
        names = as_list(ids, "ids")
        if len(names) != len(candidates):
            raise TwofoldError(f"ids: there are {len(names)}, but {len(candidates)} texts; give one for each text")
        named = enumerate(zip(candidates, names, strict=True))
        candidates = [replace(candidate, own_id=id, place=f"ids[{place}]") for place, (candidate, id) in named]
    check_ids(candidates)
    return candidates


def as_context(context: Any, name: str) -> Text:
    """Checks a context: a text, or the list of turns of a dialogue."""
    if isinstance(context, str):
        check_text(context, name)
        return context
    if not isinstance(context, Iterable):
        raise TwofoldError(f"{name}: {kind_of_value(context)}; give a text, or a list of turns")
    turns = as_list(context, name)
    for number, turn in enumerate(turns, start=1):
        check_text(turn, f"{name}: turn {number}")
    return turns


def check_ids(candidates: Iterable[Candidate]) -> None:
    """Raises an error if two candidates have the same id."""
    places: dict[Any, str] = {}
    for candidate in candidates:
        id, place = candidate.id, candidate.place
        try:
            before = places.get(id)
        except TypeError:
            raise TwofoldError(f"{place}: {id!r:.60} cannot be an id; give a text or a number") from None
        if before is not None:
            raise TwofoldError(f"{place}: the id {id!r:.60} is that of {before} too; ids must differ")
        places[id] = place


def _numbered(where: Texts) -> Iterable[tuple[int, Row]]:
    """Numbers the rows; the numbers name rows without an id."""
    if not is_file(where):
        for number, text in enumerate(list_in_memory(where, "texts")):
            values = {"text": text} if isinstance(text, str) else text
            if not isinstance(values, Mapping):
                check_text(text, f"texts[{number}]")
            yield number, Row(f"texts[{number}]", values)
        return
    source: Any = str(where) if isinstance(where, Path) else where
    for number, row in enumerate(read_rows(source), start=1):
        yield row.line or number, row
