"""Data files of every format, malformed in every way, met by training, evaluating, predicting, ranking and indexing."""

from __future__ import annotations

import gzip
import json

from tests.attacks.inputs import Case, Make, fifo, folder, link, nothing, put

OUT = ("--out", "HERE/out")
COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "train": (("train", "STAGE/recipe.yaml", "data.train=FILE", *OUT), ("out",)),
    "dev": (("train", "STAGE/recipe.yaml", "data.dev=FILE", *OUT), ("out",)),
    "evaluate": (("evaluate", "STAGE/text", "FILE"), ()),
    "predict": (("predict", "STAGE/text", "--file", "FILE"), ()),
    "rank": (("rank", "STAGE/bi", "one", "--candidates", "FILE"), ()),
    "build": (("index", "build", "HERE/index", "--model", "STAGE/bi", "--texts", "FILE"), ("index",)),
    "update": (("index", "update", "STAGE/bi.index", "--texts", "FILE"), ()),
    "corpus": (("evaluate", "STAGE/bi", "STAGE/pairs.jsonl", "--corpus", "FILE"), ()),
}
"""Commands that read a file, and the files that they may leave if it is wrong."""


def reading(
    command: str, name: str, file: str, make: Make, says: str = "", status: int = 1, says_file: bool = True
) -> Case:
    """A command that reads the file HERE/`file`."""
    arguments, leaves = COMMANDS[command]
    placed = tuple(argument.replace("FILE", f"HERE/{file}") for argument in arguments)
    place = f"HERE/{file}{says}" if says_file else says
    return Case(f"{command}, {name}", make, placed, place, status, leaves)


def everywhere(name: str, file: str, make: Make, says: str = "") -> list[Case]:
    return [reading(command, name, file, make, says) for command in COMMANDS]


RIGHT = '{"source": "one", "target": "1", "text": "one", "context": "one", "response": "1"}\n'
HALF = gzip.compress(RIGHT.encode() * 5000)
UNREADABLE: list[Case] = [
    *everywhere("a file that is not there", "none.jsonl", nothing),
    *everywhere("an empty file", "rows.jsonl", put("rows.jsonl", ""), ": holds no rows"),
    *everywhere("a folder", "rows.jsonl", folder("rows.jsonl")),
    *everywhere("a pipe", "rows.jsonl", fifo("rows.jsonl")),
    *everywhere("a device without an end", "rows.jsonl", link("rows.jsonl", "/dev/zero")),
    *everywhere("half a gz", "rows.jsonl.gz", put("rows.jsonl.gz", HALF[: len(HALF) // 2])),
    *everywhere("no gz", "rows.jsonl.gz", put("rows.jsonl.gz", RIGHT)),
    *everywhere("not JSON in line 2", "rows.jsonl", put("rows.jsonl", f"{RIGHT}{{'source': 'one'}}\n"), ":2: not JSON"),
    *everywhere("another encoding", "rows.jsonl", put("rows.jsonl", RIGHT.encode("utf-16"))),
]
LINES = {
    "zero bytes": "\0\0\0\n",
    "a list": "[1, 2]\n",
    "a number": "17\n",
    "null": "null\n",
    "two objects": "{} {}\n",
    "NaN as a text": '{"source": NaN, "target": "1"}\n',
    "infinity as a text": '{"source": "one", "target": 1e999}\n',
    "brackets a hundred thousand deep": '{"source": ' + "[" * 100_000 + "]" * 100_000 + "}\n",
    "a number of ten thousand digits": '{"source": ' + "9" * 10_000 + ', "target": "1"}\n',
    "null as a text": '{"source": null, "target": "1"}\n',
    "a mapping as a text": '{"source": {"a": 1}, "target": "1"}\n',
    "lists in lists": '{"source": [["one"]], "target": "1"}\n',
    "an empty list": '{"source": [], "target": "1"}\n',
    "half a character": '{"source": "one", "target": "\\udc00"}\n',
    "only blanks": '{"source": " \\t\\u00a0\\u2003", "target": "1"}\n',
    "a wrong byte": '{"source": "\udcff", "target": "1"}\n',
    "an open quote": '{"source": "one}\n',
    "a key twice": '{"source": "one", "source": "two", "target": "1"}\n',
    "other columns": '{"quelle": "one", "ziel": "1"}\n',
    "a column of an escape sequence": '{"\\u001b[31m": "one"}\n',
    "a column of two lines": '{"a\\nerror: b": "one"}\n',
    "a thousand columns": json.dumps({f"column {number}": "x" for number in range(1000)}) + "\n",
    "a column of ten thousand letters": json.dumps({"c" * 10_000: "x"}) + "\n",
}
JSON_LINES = [
    reading(command, name, "rows.jsonl", put("rows.jsonl", RIGHT + line), ":2: ")
    for name, line in LINES.items()
    for command in ("train", "evaluate")
]
TABLES = {
    ("fields too many", "a.tsv"): "source\ttarget\none\t1\t2\n",
    ("fields too few", "a.csv"): "source,target\none\n",
    ("a column twice", "a.tsv"): "source\tsource\none\t1\n",
    ("a header alone", "a.csv"): "source,target\n",
    ("a quote without an end", "a.csv"): 'source,target\n"one,1\n',
    ("a quote inside a field", "a.csv"): 'source,target\n"one"x,1\n',
    ("a zero byte", "a.csv"): "source,target\no\0ne,\n",
    ("semicolons", "a.csv"): "source;target\none;1\n",
    ("a column without a name", "a.tsv"): "\ttarget\none\t1\n",
    ("lone carriage returns", "a.tsv"): "source\ttarget\rone\t1\rtwo\t2\r",
    ("ten thousand columns", "a.csv"): ",".join(f"c{n}" for n in range(10_000)) + "\n" + "1," * 9999 + "1\n",
    ("an ending nobody knows", "a.xlsx"): "PK\x03\x04",
    ("JSON, not lines of it", "a.json"): '[{"source": "one", "target": "1"}]\n',
    ("lines of text", "a.txt"): "one\n",
}
WRITTEN_TABLES = [
    reading(command, name, file, put(file, content))
    for (name, file), content in TABLES.items()
    for command in ("train", "evaluate")
]


def word(*cells: str) -> str:
    """A line of CoNLL-U whose first cells are given."""
    return "\t".join([*cells, *["_"] * (10 - len(cells))]) + "\n"


TREES = {
    "a cycle": word("1", "a", *"____", "2", "x") + word("2", "b", *"____", "1", "x"),
    "a word that is its own head": word("1", "a", *"____", "1", "x"),
    "a head outside": word("1", "a", *"____", "9", "x"),
    "a head below 0": word("1", "a", *"____", "-1", "x"),
    "a head that is no number": word("1", "a", *"____", "²", "root"),
    "a head of a thousand digits": word("1", "a", *"____", "9" * 1000, "root"),
    "no root": word("1", "a", *"____", "2", "x") + word("2", "b", *"____", "1", "x"),
    "two roots": word("1", "a", *"____", "0", "root") + word("2", "b", *"____", "0", "root"),
    "ids that begin with 0": word("0", "a", *"____", "0", "root"),
    "ids that go back": word("1", "a", *"____", "0", "root") + word("1", "b", *"____", "1", "x"),
    "an id that is a word": word("one", "a", *"____", "0", "root"),
    "a multi-word token that ends nowhere": word("1-9", "ab") + word("1", "a", *"____", "0", "root"),
    "nine columns": "1\ta\t_\t_\t_\t_\t0\troot\t_\n",
    "blanks for tabs": "1 a _ _ _ _ 0 root _ _\n",
    "a form that is blank": word("1", " ", *"____", "0", "root"),
    "only comments": "# one\n# two\n",
    "only empty nodes": word("0.1", "a"),
    "a relation that is missing": word("1", "a", *"____", "0", " "),
    "a wrong byte": "1\t\udcff\t_\t_\t_\t_\t0\troot\t_\t_\n",
    "no heads": word("1", "a") + word("2", "b"),
}
CONLLU = [
    Case(
        f"{command}, conllu, {name}",
        put("rows.conllu", f"{content}\n"),
        arguments,
        "HERE/rows.conllu",
        leaves=("out",) if command == "train" else (),
    )
    for name, content in TREES.items()
    for command, arguments in {
        "train": ("train", "STAGE/tree.yaml", "data.train=HERE/rows.conllu", *OUT),
        "evaluate": ("evaluate", "STAGE/tree", "HERE/rows.conllu"),
    }.items()
]
ODD_BUT_RIGHT: dict[str, tuple[str, str | bytes]] = {
    "a byte order mark": ("a.txt", "\ufeffone\ntwo\n"),
    "ends of Windows": ("a.txt", "one\r\ntwo\r\n"),
    "no last line end": ("a.txt", "two\none"),
    "blank lines": ("a.txt", "\n\n  \none\n"),
    "two files packed as one": ("a.txt.gz", gzip.compress(b"one\n") + gzip.compress(b"two\n")),
    "zeros behind a gz": ("a.txt.gz", gzip.compress(b"one\n") + bytes(100)),
    "zero bytes in a text": ("a.txt", "one\0\ntwo\n"),
    "right-to-left marks": ("a.txt", "\u202eone\u202c\n"),
    "an emoji of seven characters": ("a.txt", "one 👨‍👩‍👧‍👦\n"),
    "ten thousand combining marks": ("a.txt", "one e" + "\u0301" * 10_000 + "\n"),
    "a word of a million letters": ("a.txt", "one\n" + "x" * 1_000_000 + "\n"),
    "a row in a quoted field of two lines": ("a.csv", 'text,id\n"one\ntwo",7\n'),
    "ids like commands": ("a.jsonl", '{"text": "one", "id": "\'); DROP TABLE candidates; --"}\n'),
    "fields of null": ("a.jsonl", '{"text": "one", "note": null}\n'),
}
ANSWERED = [
    reading(command, name, file, put(file, content), "one", 0, False)
    for name, (file, content) in ODD_BUT_RIGHT.items()
    for command in ("rank",)
]
ROWS = {
    "files": UNREADABLE,
    "lines of JSON": JSON_LINES,
    "tables": WRITTEN_TABLES,
    "trees": CONLLU,
    "odd but right": ANSWERED,
}
