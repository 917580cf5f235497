"""Filters that try to inject, things that are no index, indexes that are damaged, and what is asked of them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tests.attacks.inputs import Case, Make, all_of, fifo, folder, link, nothing, put

SEARCH = ("search", "STAGE/bi.index", "one")
FILTERS = {
    'lang = "x" or 1=1': "the name of a field is missing before 1",
    '"; DROP TABLE candidates; --': "",
    "lang = 'ko": "",
    'lang = "ko"; DROP TABLE candidates': "cannot read",
    'lang = "ko" --': "",
    'lang = "ko" UNION SELECT * FROM about': "",
    "1 = 1": "",
    "true": "",
    "": "",
    " ": "",
    "lang": "",
    "lang =": "",
    '= "ko"': "",
    'lang === "ko"': "",
    'lang = "ko': "",
    'lang = "ko" and': "",
    'lang = "ko" and and year = 1': "",
    "not": "",
    "(": "",
    ")": "",
    "lang in ()": "",
    'lang in ("ko"': "",
    'lang in "ko"': "",
    'lang like "k%"': "",
    "year = 0x10": "",
    "year = 1_000": "",
    "year = nan": "",
    "year = ٣": "",
    'nowhere = "x"': "no field 'nowhere'",
    "rowid = 1": "no field 'rowid'",
    'fields = "x"': "no field 'fields'",
    '언어 = "ko"': "no field '언어'",
    'lang = "\\ud83d"': "",
    "\x1b[31m = 1": "",
    "(" * 5000 + 'lang = "ko"' + ")" * 5000: "",
    "(" * 100 + 'lang = "ko"' + ")" * 100: "nested too deeply",
    "not " * 100 + 'lang = "ko"': "nested too deeply",
    " or ".join(['lang = "ko"'] * 10_000): "over",
    " or ".join(["year=1"] * 600): "over 500 comparisons",
    f"year in ({', '.join(['1'] * 3000)})": "",
    "$.lang = 1": "",
    'lang."x" = 1': "",
    "json_extract(fields, '$') = 1": "",
}
WHERE = [
    Case(f"filter {text[:30]!r}…{len(text)}", nothing, (*SEARCH, "--where", text), says or "filter: ")
    for text, says in FILTERS.items()
    if text != f"year in ({', '.join(['1'] * 3000)})"
]
WHERE += [
    Case("filter, 3000 numbers", nothing, (*SEARCH, "--where", f"year in ({', '.join(['1'] * 3000)})"), "", 0),
    Case("filter that none passes", nothing, (*SEARCH, "--where", 'lang = "\'; DROP TABLE candidates; --"'), "", 0),
    Case(
        "filter in Korean", nothing, (*SEARCH, "--where", 'lang = "한국어" or lang = "ko"', "--json"), '"hits": [{', 0
    ),
]
OPEN: dict[str, tuple[str, ...]] = {
    "search": ("search", "INDEX", "one"),
    "info": ("index", "info", "INDEX"),
    "check": ("index", "info", "INDEX", "--check"),
    "add": ("index", "add", "INDEX", "--texts", "STAGE/candidates.jsonl"),
    "remove": ("index", "remove", "INDEX", "n2"),
    "compact": ("index", "compact", "INDEX"),
    "copy": ("index", "copy", "INDEX", "HERE/copy"),
}


def _other(here: Path) -> None:
    (here / "i").mkdir()
    database = sqlite3.connect(here / "i/index.sqlite")
    database.execute("CREATE TABLE about (name, value)")
    database.execute("INSERT INTO about VALUES ('format', 'x''y')")
    database.commit()
    database.close()


NO_INDEX: dict[str, Make] = {
    "not there": nothing,
    "an empty folder": folder("i"),
    "a file": put("i", "x"),
    "a pipe": fifo("i"),
    "a link to itself": link("i", "i"),
    "a folder of text": put("i/index.sqlite", "no database at all\n"),
    "an empty database": put("i/index.sqlite", ""),
    "another database": _other,
    "a database that is a folder": folder("i/index.sqlite"),
    "a database that is a pipe": all_of(folder("i"), fifo("i/index.sqlite")),
    "a database without an end": all_of(folder("i"), link("i/index.sqlite", "/dev/zero")),
}
NONE = [
    Case(f"{command} {name}", make, tuple(a.replace("INDEX", "HERE/i") for a in arguments), "HERE/i")
    for name, make in NO_INDEX.items()
    for command, arguments in OPEN.items()
]


def _database(here: Path, *statements: str) -> None:
    database = sqlite3.connect(here / "i/index.sqlite")
    for statement in statements:
        database.execute(statement)
    database.commit()
    database.close()


def _statement(statement: str) -> Make:
    return lambda here: _database(here, statement)


def _cut(here: Path) -> None:
    path = here / "i/index.sqlite"
    path.write_bytes(path.read_bytes()[:5000])


def _shard(here: Path) -> Path:
    """The largest file beside the database."""
    files = [path for path in (here / "i").rglob("*") if path.is_file() and "sqlite" not in path.name]
    return max(files, key=lambda path: path.stat().st_size)


DAMAGED: dict[str, Make] = {
    "a table that is gone": _statement("DROP TABLE candidates"),
    "no format": _statement("DELETE FROM about WHERE name = 'format'"),
    "a format to come": _statement("UPDATE about SET value = '999' WHERE name = 'format'"),
    "about that is gone": _statement("DROP TABLE about"),
    "a database cut short": _cut,
    "a database of zeros": lambda here: (here / "i/index.sqlite").write_bytes(bytes(8192)),
    "vectors that are gone": lambda here: _shard(here).unlink(),
    "vectors cut short": lambda here: _shard(here).write_bytes(_shard(here).read_bytes()[:-40]),
    "vectors that are empty": lambda here: _shard(here).write_bytes(b""),
}
WORKING = ("i/index.sqlite-wal", "i/index.sqlite-shm")
"""Files that SQLite writes beside an open database."""
BROKEN = [
    Case(
        f"{command} {name}",
        make,
        tuple(a.replace("INDEX", "HERE/i") for a in OPEN[command]),
        "HERE/i",
        copies=("bi.index", "i"),
        leaves=WORKING,
    )
    for name, make in DAMAGED.items()
    for command in ("search", "copy", "remove")
    if not (command == "remove" and name.startswith("vectors"))  # which does not read them
]
INDEX = "STAGE/bi.index"
ASKED = [
    *(Case(f"search -k {k[:9]}", nothing, (*SEARCH, "-k", k), "'-k'", 2) for k in ("0", "-1", "x", "1.5", "", "nan")),
    Case("search -k 10^30", nothing, (*SEARCH, "-k", str(10**30)), "", 0),
    Case("search -k 10^12", nothing, (*SEARCH, "-k", str(10**12)), "", 0),
    *(
        Case(f"search --then {then[:20]!r}", nothing, (*SEARCH, "--then", then), "--then", 2)
        for then in ("", ":", "x", "x:", ":5", "STAGE/cross:0", "STAGE/cross:-1", "STAGE/cross:x", "STAGE/cross:1e3")
    ),
    Case("search --then no model", nothing, (*SEARCH, "--then", "HERE/none:5"), "HERE/none"),
    Case("search --then a writer", nothing, (*SEARCH, "--then", "STAGE/text:5"), "STAGE/text"),
    Case("search --then 10^30", nothing, (*SEARCH, "--then", f"STAGE/cross:{10**30}"), "", 0),
    Case("search --mode x", nothing, (*SEARCH, "--mode", "x"), "--mode", 2),
    Case("search --device x", nothing, (*SEARCH, "--device", "x"), "x"),
    Case("search --device meta", nothing, (*SEARCH, "--device", "meta"), "meta"),
    Case("search --device cuda:99", nothing, (*SEARCH, "--device", "cuda:99"), "cuda"),
    Case("search --model elsewhere", nothing, (*SEARCH, "--model", "HERE/none"), "HERE/none"),
    Case("search --model another", nothing, (*SEARCH, "--model", "STAGE/poly"), "STAGE"),
    Case("search --exclude unknown", nothing, (*SEARCH, "--exclude", "no such id"), "", 0),
    Case("search --exclude 10^30", nothing, (*SEARCH, "--exclude", str(10**30)), "", 0),
    Case("search --exclude zero byte", nothing, (*SEARCH, "--exclude", "a\0b"), "zero byte", 2),
    Case("search --exclude half a character", nothing, (*SEARCH, "--exclude", "\udcff"), "", 0),
    Case("search for nothing", nothing, ("search", INDEX, ""), "empty"),
    Case("search for blanks", nothing, ("search", INDEX, " \t"), "empty"),
    Case("search for half a character", nothing, ("search", INDEX, "\udcff"), "half a character"),
    Case("search for a million letters", nothing, ("search", INDEX, "one " * 250_000), "", 0),
    Case("search without a context", nothing, ("search", INDEX), "CONTEXT", 2),
    Case("remove an unknown id", nothing, ("index", "remove", INDEX, "no such id"), "no such id"),
    Case("remove an id of 10^30", nothing, ("index", "remove", INDEX, str(10**30)), "1000"),
    Case("remove half a character", nothing, ("index", "remove", INDEX, "\udcff"), "INDEX".lower()),
    Case("remove an id of a million letters", nothing, ("index", "remove", INDEX, "x" * 100_000), "xxx"),
    Case("remove an injection", nothing, ("index", "remove", INDEX, "1'; DROP TABLE candidates"), "DROP"),
    Case("remove an escape sequence", nothing, ("index", "remove", INDEX, "\x1b[31m"), "[31m"),
    Case("copy onto itself", nothing, ("index", "copy", INDEX, INDEX), INDEX),
    Case("copy into itself", nothing, ("index", "copy", INDEX, f"{INDEX}/copy"), INDEX),
    Case("copy onto a file", put("x", "mine"), ("index", "copy", INDEX, "HERE/x"), "HERE/x"),
    Case("copy onto another index", nothing, ("index", "copy", INDEX, "STAGE/poly.index"), "STAGE/poly.index"),
    Case("copy to no name", nothing, ("index", "copy", INDEX, ""), "NEW", 2),
    Case("copy to a zero byte", nothing, ("index", "copy", INDEX, "HERE/a\0b"), "zero byte", 2),
    Case("info of no name", nothing, ("index", "info", ""), "INDEX", 2),
    Case("info of a zero byte", nothing, ("index", "info", "HERE/a\0b"), "zero byte", 2),
]
BUILD = ("index", "build", "HERE/i", "--texts", "STAGE/candidates.jsonl", "--model")
ASKED += [
    Case("build with a cross-encoder", nothing, (*BUILD, "STAGE/cross"), "cross-encoder"),
    Case("build with a writer", nothing, (*BUILD, "STAGE/text"), "STAGE/text"),
    Case("build with no model", nothing, (*BUILD, "HERE/none"), "HERE/none"),
    Case("build with an index", nothing, (*BUILD, INDEX), INDEX),
    Case("build onto a file", put("i", "mine"), (*BUILD, "STAGE/bi"), "HERE/i"),
    Case("build onto a folder", put("i/x", "mine"), (*BUILD, "STAGE/bi"), "HERE/i"),
    Case("build --stored int4", nothing, (*BUILD, "STAGE/bi", "--stored", "int4"), "--stored", 2),
    Case("build --stored float64", nothing, (*BUILD, "STAGE/bi", "--stored", "float64"), "--stored", 2),
    Case("build at a zero byte", nothing, ("index", "build", "HERE/a\0", *BUILD[3:], "STAGE/bi"), "zero byte", 2),
    Case("build at no name", nothing, ("index", "build", "", *BUILD[3:], "STAGE/bi"), "INDEX", 2),
]
KEPT = {
    "an id of 10^30": '{"text": "a", "id": 1000000000000000000000000000000}',
    "an id that is a list": '{"text": "a", "id": []}',
    "an id that is null": '{"text": "a", "id": {}}',
    "an id twice": '{"text": "a", "id": "x"}\n{"text": "b", "id": "x"}',
    "a field of half a character": '{"text": "a", "note": "\\ud83d"}',
    "a text that is a number": '{"text": 17}',
    "a text that is a list": '{"text": ["a", "b"]}',
    "a text of blanks": '{"text": "  "}',
    "no text": '{"id": 7}',
    "a field of NaN": '{"text": "a", "note": NaN}',
    "a field that is too large": '{"text": "a", "note": 1e999}',
}
ADDED = [
    Case(
        f"{command} {name}",
        put("a.jsonl", f"{line}\n"),
        ("index", command, "HERE/i", "--texts", "HERE/a.jsonl", *model),
        "HERE/a.jsonl:",
        copies=None if command == "build" else ("bi.index", "i"),
        leaves=("i",) if command == "build" else ("i/index.sqlite-wal", "i/index.sqlite-shm"),
    )
    for name, line in KEPT.items()
    for command, model in {"build": ("--model", "STAGE/bi"), "add": ()}.items()
]
INDEXES = {"filters": WHERE, "no index": NONE, "damaged indexes": BROKEN, "asked of an index": ASKED, "added": ADDED}
