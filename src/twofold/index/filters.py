"""Filter language of the index, such as `lang = 'ko' and year >= 2020`: a parser that writes a condition for SQLite."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from twofold.errors import TwofoldError

MAX_CHARACTERS = 10_000
MAX_COMPARISONS = 500
MAX_DEPTH = 50
EXAMPLE = "write comparisons such as lang = 'ko' and year >= 2020"
ID = "id"
"""Name by which filters reach the ids of candidates."""
TEXT, NUMBER, OTHER = "texts", "numbers", "lists or objects"
"""Types of values, as messages name them; `true` and `false` are numbers to SQLite."""
_TYPES = {"text": TEXT, "integer": NUMBER, "real": NUMBER, "true": NUMBER, "false": NUMBER}
_TOKEN = re.compile(
    r"""\s*(?: (?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![\w.]) |
    (?P<word>\w+) | (?P<sign><=|>=|!=|==|=|<|>) | (?P<mark>[(),]) |
    (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*') )""",
    re.VERBOSE,
)
_ESCAPED_OR_QUOTE = re.compile(r'\\.|"', re.DOTALL)


@dataclass(frozen=True)
class Column:
    """Field of the candidates, or their id, as SQL expressions with parameters."""

    name: str

    @property
    def value(self) -> str:
        return ID if self.name == ID else "json_extract(fields, ?)"

    @property
    def type(self) -> str:
        return f"typeof({ID})" if self.name == ID else "json_type(fields, ?)"

    @property
    def parameters(self) -> tuple[str, ...]:
        """Parameters of either expression."""
        return () if self.name == ID else (f'$."{self.name}"',)


@dataclass(frozen=True)
class Comparison:
    """Comparison of a column with a value."""

    column: Column
    sign: str
    value: Any

    @property
    def type(self) -> str:
        return TEXT if isinstance(self.value, str) else NUMBER


@dataclass(frozen=True)
class Condition:
    """SQL condition for a WHERE clause, with its parameters."""

    sql: str
    values: tuple[Any, ...]
    comparisons: tuple[Comparison, ...] = ()


Query = Callable[[str, Sequence[Any]], list[Any]]
"""Runs an SQL query with parameters and returns its rows."""


def condition(text: str, fields: Collection[str]) -> Condition:
    """Parses comparisons of fields with texts or numbers, joined by and, or, not and parentheses."""
    if len(text) > MAX_CHARACTERS:
        raise TwofoldError(f"filter: over {MAX_CHARACTERS:,} characters long")
    return _Parser(text, fields).parse()


def mismatches(condition: Condition, query: Query) -> list[str]:
    """Describes comparisons whose result is the same for all candidates, because no value has the type to compare."""
    messages = []
    for comparison in condition.comparisons:
        column = comparison.column
        names = [name for name, type in _TYPES.items() if type == comparison.type]
        same_type = f"SELECT 1 FROM candidates WHERE {column.type} IN ({', '.join('?' * len(names))}) LIMIT 1"  # noqa: S608
        if query(same_type, [*column.parameters, *names]):
            continue
        rows = query(f"SELECT DISTINCT {column.type} FROM candidates", column.parameters)  # noqa: S608
        types = {_TYPES.get(name, OTHER) for (name,) in rows if name not in (None, "null")}
        if types:
            messages.append(_mismatch(comparison, types))
    return list(dict.fromkeys(messages))


def _mismatch(comparison: Comparison, types: set[str]) -> str:
    name, value = comparison.column.name, json.dumps(comparison.value, ensure_ascii=False)
    outcome = "is true of every candidate with this field" if comparison.sign == "!=" else "is never true"
    remedy = ""
    if types == {TEXT} and not isinstance(comparison.value, bool):
        remedy = f'; write "{value}" in quotes'
    elif types == {NUMBER}:
        remedy = "; write numbers without quotes"
    known = " and ".join(sorted(types))
    return f"filter: {name} {comparison.sign} {value} {outcome}, because the values of '{name}' are {known}{remedy}"


def _tokens(text: str) -> Iterator[tuple[str, Any]]:
    """Kind and value of each token."""
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
    """Number as SQLite compares it: integers have 64 bits, larger numbers are floats."""
    value = float(digits)
    return int(digits) if abs(value) < 2**62 and set(digits) <= set("-0123456789") else value


def _quoted(token: str) -> str:
    """Text in quotes, with the escapes of JSON."""
    inner = token[1:-1]
    if token[0] == "'":
        inner = _ESCAPED_OR_QUOTE.sub(lambda match: {r"\'": "'", '"': r"\""}.get(match[0], match[0]), inner)
    try:
        text = str(json.loads(f'"{inner}"'))
        text.encode()
    except ValueError:
        raise TwofoldError(f"filter: {token!r} is not a text in quotes; {EXAMPLE}") from None
    return text


class _Parser:
    """Recursive descent parser with one method for each rule of the grammar."""

    def __init__(self, text: str, fields: Collection[str]) -> None:
        self.tokens, self.fields, self.values = deque(_tokens(text)), fields, list[Any]()
        self.comparisons: list[Comparison] = []
        self.depth = self.count = 0

    def parse(self) -> Condition:
        sql = self._disjunction()
        if self.tokens:
            raise self._missing("'and' or 'or'")
        return Condition(sql, tuple(self.values), tuple(self.comparisons))

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
        self.count += 1
        if self.count > MAX_COMPARISONS:
            raise TwofoldError(f"filter: over {MAX_COMPARISONS} comparisons")
        column = self._column()
        if self._take("word", "in"):
            values = self._list()
            self.values += [*column.parameters, *values]
            self.comparisons += [Comparison(column, "=", value) for value in values]
            return f"coalesce({column.value} IN ({', '.join('?' * len(values))}), 0)"
        sign = self._next("sign", "=, !=, <, <=, >, >= or in").replace("==", "=")
        value = self._value()
        self.comparisons.append(Comparison(column, sign, value))
        if sign in ("=", "!="):
            self.values += [*column.parameters, value]
            return f"coalesce({column.value} {sign} ?, 0)"  # a candidate without the field never passes
        self.values += [*column.parameters, *column.parameters, value]
        types = "('text')" if isinstance(value, str) else "('integer', 'real')"
        return f"(typeof({column.value}) IN {types} AND {column.value} {sign} ?)"

    def _column(self) -> Column:
        name = self._next("word", "the name of a field")
        if name != ID and name not in self.fields:
            known = (
                f"the fields are {', '.join([ID, *sorted(self.fields)])}" if self.fields else "candidates have only id"
            )
            raise TwofoldError(f"filter: there is no field '{name}'; {known}")
        return Column(name)

    def _list(self) -> list[Any]:
        self._expect("(")
        values = [self._value()]
        while self._take("mark", ","):
            values.append(self._value())
        self._expect(")")
        return values

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
