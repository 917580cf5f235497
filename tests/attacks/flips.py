"""One flipped bit at a time in every kind of file: each is named or harmless, and none gives a wrong answer."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.index.common import TEXTS
from twofold.errors import TwofoldError
from twofold.index import Index
from twofold.model import Ranker

RIGHT, NAMED = "right", "named"
Answer = Callable[[Path], Any]
"""Whatever is read from, or done in, a copy of the folder; equal if all is well."""


def changed_index(folder: Path, model: Ranker) -> Path:
    """An index whose last changes stand in its write-ahead log, as after a kill while another process searched."""
    rows = [{"id": number, "text": text} for number, text in enumerate(TEXTS[:40])]
    with Index.build(folder / "open", model, rows) as index:
        reading = sqlite3.connect(folder / "open" / "index.sqlite", isolation_level=None)
        reading.execute("BEGIN")
        reading.execute("SELECT * FROM about").fetchall()
        index.add([{"id": "new", "text": "one", "lang": "en"}])
        index.remove([3, 4])
        shutil.copytree(folder / "open", folder / "index", ignore=shutil.ignore_patterns("*-shm"))
        reading.close()
    return folder / "index"


def kinds_of(folder: Path) -> dict[str, list[Path]]:
    """The files of a folder by kind: numbers in names, as of steps and shards, do not tell kinds apart."""
    kinds: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.stat().st_size:
            name = "".join("#" if letter.isdigit() else letter for letter in path.relative_to(folder).as_posix())
            kinds.setdefault(name, []).append(path)
    return kinds


def flipped(content: bytes, place: int, bit: int) -> bytes:
    """Copies bytes with one bit flipped."""
    changed = bytearray(content)
    changed[place] ^= 1 << bit
    return bytes(changed)


def places(size: int, count: int, seed: int) -> Iterator[tuple[int, int]]:
    """Places and bits to flip: the first and the last byte, and others drawn by seed."""
    draw = random.Random(seed)
    chosen = [0, size - 1, *(draw.randrange(size) for _ in range(count - 2))]
    return ((place, draw.randrange(8)) for place in chosen[:count])


def flip_all(folder: Path, answer: Answer, count: int, aside: Path, seed: int = 1) -> dict[str, Counter[str]]:
    """For each kind of file what becomes of `answer` when one bit is another, so many times."""
    expected = answer(Path(shutil.copytree(folder, aside)))
    shutil.rmtree(aside)
    outcomes: dict[str, Counter[str]] = {}
    for kind, paths in kinds_of(folder).items():
        outcomes[kind] = Counter()
        path = paths[-1]
        content = path.read_bytes()
        for place, bit in places(len(content), count, seed):
            copy = Path(shutil.copytree(folder, aside))
            (copy / path.relative_to(folder)).write_bytes(flipped(content, place, bit))
            outcomes[kind][_outcome(copy, answer, expected)] += 1
            shutil.rmtree(aside)
    return outcomes


def _outcome(copy: Path, answer: Answer, expected: Any) -> str:
    try:
        return RIGHT if answer(copy) == expected else "wrong answer"
    except TwofoldError as error:
        line = str(error)
        return NAMED if str(copy) in line and "\n" not in line else f"not named in one line: {line[:200]}"
    except Exception as error:
        return f"traceback: {error!r:.200}"


def summed(outcomes: dict[str, Counter[str]]) -> Counter[str]:
    """Over all kinds of files; what is wrong bears the kind's name."""
    total: Counter[str] = Counter()
    for kind, counts in outcomes.items():
        for outcome, number in counts.items():
            total[outcome if outcome in (RIGHT, NAMED) else f"{kind}: {outcome}"] += number
    return total
