"""Inputs of few bytes that ask for gigabytes, each for a process of its own whose memory is measured."""

from __future__ import annotations

import gzip
from pathlib import Path

from tests.attacks.cases.images import PREDICTED, TRAINED, ZIPS
from tests.attacks.cases.models import DAMAGED, IMPORTED
from tests.attacks.cases.recipes import FILES, OUT
from tests.attacks.cases.rows import COMMANDS, reading
from tests.attacks.inputs import Case, Make, put

PIECE = 1 << 24
TAKEN = {
    "recipe, a billion laughs",
    "recipe, a billion laughs in train.learning_rate_multipliers",
    "recipe, without an end",
    "predict, image, a million by a million",
    "predict, image, a note of 100 MB",
    "train, image, a million by a million",
    "train, archive with a bomb",
    "train, archive that lies about a size",
    "model, weights that claim 2^60 bytes",
    "model, weights of 2^60 numbers",
    "model, weights that are a pickle",
    "model, an encoder 10^12 wide",
    "model, an encoder of 10^9 layers",
    "model, a config nested deep",
    "import a pickle that runs code",
    "import safetensors of 2^60",
    "model without checksums, a tokenizer nested deep",
}
"""Those of the quick cases that threaten the memory, or that would run code."""


def packed_zeros(name: str, size: int) -> Make:
    """A gz of so many zeros, a thousandth of that on the disk."""

    def make(here: Path) -> None:
        with gzip.open(here / name, "wb", compresslevel=1) as file:
            for _ in range(size // PIECE):
                file.write(bytes(PIECE))

    return make


def long_line(here: Path) -> None:
    (here / "a.jsonl").write_bytes(b'{"source": "' + b"x" * 100_000_000 + b'", "target": "1"}\n')


BOMBS = [
    reading(command, f"a gigabyte of zeros, {ending}", f"a{ending}", packed_zeros(f"a{ending}", 1 << 30))
    for command, ending in {
        "train": ".jsonl.gz",
        "evaluate": ".tsv.gz",
        "rank": ".txt.gz",
        "build": ".csv.gz",
    }.items()
]
BOMBS += [reading(command, "a line of 100 MB", "a.jsonl", long_line) for command in ("train", "rank")]
BOMBS += [
    Case(
        "train, a gigabyte of zeros, .conllu.gz",
        packed_zeros("a.conllu.gz", 1 << 30),
        ("train", "STAGE/tree.yaml", "data.train=HERE/a.conllu.gz", *OUT),
        "HERE/a.conllu.gz",
        leaves=COMMANDS["train"][1],
    ),
    Case(
        "evaluate, brackets a million deep",
        put("a.jsonl", '{"source": ' + "[" * 1_000_000 + "]" * 1_000_000 + "}\n"),
        ("evaluate", "STAGE/text", "HERE/a.jsonl"),
        "HERE/a.jsonl:1",
    ),
]
MEMORY = [case for case in (*FILES, *PREDICTED, *TRAINED, *ZIPS, *DAMAGED, *IMPORTED) if case.name in TAKEN] + BOMBS
