"""The little language of filters, `lang = "ko" and year >= 2020`, as a condition with parameters for SQLite."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from twofold.errors import TwofoldError

LONGEST = 10_000
MOST = 500
EXAMPLE = 'write comparisons such as lang = "ko" and year >= 2020'
FIELD = "json_extract(fields, ?)"
_TOKEN = re.compile(
    r"""\s*(?: (?P<word>\w+) | (?P<sign><=|>=|!=|=|<|>) | (?P<mark>[(),]) | (?P<text>"(?:[^"\\]|\\.)*") )""", re.VERBOSE
)
_NUMBER = re.compile(r"\s*(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![\w.])")


@dataclass(frozen=True)
class Condition:
    """What stands after WHERE, and its parameters."""

    sql: str
    values: tuple[Any, ...]


def condition(text: str, fields: Collection[str]) -> Condition:
    """Comparisons of a field with texts or numbers, joined by and, or, not and parentheses."""
    if len(text) > LONGEST:
        raise TwofoldError(f"filter: over {LONGEST:,} characters long")
    return _Parser(text, fields).whole()


def _number(text: str) -> int | float:
    """SQLite knows whole numbers of 64 bits; larger ones are compared as it compares them, as floats."""
    value = float(text)
    return int(text) if abs(value) < 2**62 and set(text) <= set("-0123456789") else value


class _Parser:
    def __init__(self, text: str, fields: Collection[str]) -> None:
        self.fields, self.values, self.at, self.depth = fields, list[Any](), 0, 0
        self.text, self.count = text, 0
        self.tokens = list(self._split())

    def whole(self) -> Condition:
        sql = self._either()
        if self.tokens[self.at :]:
            raise self._wrong("'and' or 'or'")
        return Condition(sql, tuple(self.values))

    def _split(self) -> Any:
        place = 0
        while self.text[place:].strip():
            if number := _NUMBER.match(self.text, place):
                yield "value", _number(number[1])
                place = number.end()
                continue
            found = _TOKEN.match(self.text, place)
            if not found:
                raise TwofoldError(f"filter: cannot read {self.text[place : place + 20].strip()!r}; {EXAMPLE}")
            kind = str(found.lastgroup)
            if kind == "text":
                try:
                    text = json.loads(found["text"])
                    text.encode()
                except ValueError:
                    raise TwofoldError(f"filter: {found['text']!r} is not a text in quotes; {EXAMPLE}") from None
                yield "value", text
            else:
                yield kind, found[kind]
            place = found.end()

    def _either(self) -> str:
        parts = [self._both()]
        while self._take("word", "or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"

    def _both(self) -> str:
        parts = [self._one()]
        while self._take("word", "and"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else f"({' AND '.join(parts)})"

    def _one(self) -> str:
        self.depth += 1
        if self.depth > 50:
            raise TwofoldError("filter: nested too deeply")
        try:
            if self._take("word", "not"):
                return f"NOT {self._one()}"
            if self._take("mark", "("):
                inner = self._either()
                if not self._take("mark", ")"):
                    raise self._wrong("')'")
                return f"({inner})"
            return self._comparison()
        finally:
            self.depth -= 1

    def _comparison(self) -> str:
        self.count += 1
        if self.count > MOST:
            raise TwofoldError(f"filter: over {MOST} comparisons")
        name = self._next("word", "the name of a field")
        if name not in self.fields:
            known = f"the fields are {', '.join(sorted(self.fields))}" if self.fields else "no candidate has any field"
            raise TwofoldError(f"filter: there is no field '{name}'; {known}")
        path = f'$."{name}"'
        if self._take("word", "in"):
            if not self._take("mark", "("):
                raise self._wrong("'('")
            values = [self._value()]
            while self._take("mark", ","):
                values.append(self._value())
            if not self._take("mark", ")"):
                raise self._wrong("')'")
            self.values += [path, *values]
            return f"coalesce({FIELD} IN ({', '.join('?' * len(values))}), 0)"
        sign, value = self._next("sign", "=, !=, <, <=, >, >= or in"), self._value()
        if sign in ("=", "!="):
            self.values += [path, value]
            return f"coalesce({FIELD} {sign} ?, 0)"  # a candidate without the field never passes
        self.values += [path, path, value]
        kinds = "('text')" if isinstance(value, str) else "('integer', 'real')"
        return f"(typeof({FIELD}) IN {kinds} AND {FIELD} {sign} ?)"

    def _value(self) -> Any:
        for word in ("true", "false"):
            if self._take("word", word):
                return word == "true"
        return self._next("value", "a text in quotes or a number")

    def _take(self, kind: str, value: str) -> bool:
        if self.tokens[self.at : self.at + 1] == [(kind, value)]:
            self.at += 1
            return True
        return False

    def _next(self, kind: str, wanted: str) -> Any:
        if self.at < len(self.tokens) and self.tokens[self.at][0] == kind:
            self.at += 1
            return self.tokens[self.at - 1][1]
        raise self._wrong(wanted)

    def _wrong(self, wanted: str) -> TwofoldError:
        found = f"before {self.tokens[self.at][1]!r}" if self.at < len(self.tokens) else "at the end"
        return TwofoldError(f"filter: {wanted} is missing {found}; {EXAMPLE}")
