"""The little language of filters, `lang = "ko" and year >= 2020`, as a condition with parameters for SQLite."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from twofold.errors import TwofoldError

MAX_CHARACTERS = 10_000
MAX_COMPARISONS = 500
MAX_DEPTH = 50
EXAMPLE = 'write comparisons such as lang = "ko" and year >= 2020'
FIELD = "json_extract(fields, ?)"
_TOKEN = re.compile(
    r"""\s*(?: (?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![\w.]) |
    (?P<word>\w+) | (?P<sign><=|>=|!=|=|<|>) | (?P<mark>[(),]) | (?P<text>"(?:[^"\\]|\\.)*") )""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Condition:
    """What stands after WHERE, and its parameters."""

    sql: str
    values: tuple[Any, ...]


def condition(text: str, fields: Collection[str]) -> Condition:
    """Parse comparisons of fields with texts or numbers, joined by and, or, not and parentheses."""
    if len(text) > MAX_CHARACTERS:
        raise TwofoldError(f"filter: over {MAX_CHARACTERS:,} characters long")
    return _Parser(text, fields).parse()


def _tokens(text: str) -> Iterator[tuple[str, Any]]:
    """The kind and the value of each token."""
    place = 0
    while text[place:].strip():
        token = _TOKEN.match(text, place)
        if not token:
            raise TwofoldError(f"filter: cannot read {text[place : place + 20].strip()!r}; {EXAMPLE}")
        kind = str(token.lastgroup)
        value_of = {"number": _number, "text": _quoted}.get(kind)
        yield ("value", value_of(token[kind])) if value_of else (kind, token[kind])
        place = token.end()


def _number(digits: str) -> int | float:
    """A number as SQLite compares it: whole ones have 64 bits, larger ones are floats."""
    value = float(digits)
    return int(digits) if abs(value) < 2**62 and set(digits) <= set("-0123456789") else value


def _quoted(token: str) -> str:
    try:
        text = str(json.loads(token))
        text.encode()
    except ValueError:
        raise TwofoldError(f"filter: {token!r} is not a text in quotes; {EXAMPLE}") from None
    return text


class _Parser:
    """A recursive descent over the tokens, one method for each rule of the grammar."""

    def __init__(self, text: str, fields: Collection[str]) -> None:
        self.tokens, self.fields, self.values = deque(_tokens(text)), fields, list[Any]()
        self.depth = self.comparisons = 0

    def parse(self) -> Condition:
        sql = self._disjunction()
        if self.tokens:
            raise self._missing("'and' or 'or'")
        return Condition(sql, tuple(self.values))

    def _disjunction(self) -> str:
        return self._joined("or", lambda: self._joined("and", self._term))

    def _joined(self, word: str, part: Callable[[], str]) -> str:
        parts = [part()]
        while self._take("word", word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else f"({f' {word.upper()} '.join(parts)})"

    def _term(self) -> str:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TwofoldError("filter: nested too deeply")
        try:
            if self._take("word", "not"):
                return f"NOT {self._term()}"
            if self._take("mark", "("):
                inner = self._disjunction()
                self._expect(")")
                return f"({inner})"
            return self._comparison()
        finally:
            self.depth -= 1

    def _comparison(self) -> str:
        self.comparisons += 1
        if self.comparisons > MAX_COMPARISONS:
            raise TwofoldError(f"filter: over {MAX_COMPARISONS} comparisons")
        name = self._next("word", "the name of a field")
        if name not in self.fields:
            known = f"the fields are {', '.join(sorted(self.fields))}" if self.fields else "no candidate has any field"
            raise TwofoldError(f"filter: there is no field '{name}'; {known}")
        path = f'$."{name}"'
        if self._take("word", "in"):
            self._expect("(")
            values = [self._value()]
            while self._take("mark", ","):
                values.append(self._value())
            self._expect(")")
            self.values += [path, *values]
            return f"coalesce({FIELD} IN ({', '.join('?' * len(values))}), 0)"
        sign, value = self._next("sign", "=, !=, <, <=, >, >= or in"), self._value()
        if sign in ("=", "!="):
            self.values += [path, value]
            return f"coalesce({FIELD} {sign} ?, 0)"  # a candidate without the field never passes
        self.values += [path, path, value]
        types = "('text')" if isinstance(value, str) else "('integer', 'real')"
        return f"(typeof({FIELD}) IN {types} AND {FIELD} {sign} ?)"

    def _value(self) -> Any:
        for word in ("true", "false"):
            if self._take("word", word):
                return word == "true"
        return self._next("value", "a text in quotes or a number")

    def _take(self, kind: str, value: str) -> bool:
        taken = bool(self.tokens) and self.tokens[0] == (kind, value)
        if taken:
            self.tokens.popleft()
        return taken

    def _expect(self, mark: str) -> None:
        if not self._take("mark", mark):
            raise self._missing(f"'{mark}'")

    def _next(self, kind: str, wanted: str) -> Any:
        if self.tokens and self.tokens[0][0] == kind:
            return self.tokens.popleft()[1]
        raise self._missing(wanted)

    def _missing(self, wanted: str) -> TwofoldError:
        place = f"before {self.tokens[0][1]!r}" if self.tokens else "at the end"
        return TwofoldError(f"filter: {wanted} is missing {place}; {EXAMPLE}")
