"""A damaged index is named clearly or answers right; it never answers wrong."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.index.common import TEXTS, ranker_of
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.index import Index
from twofold.model import Ranker
from twofold.storage import checksums

Answer = list[tuple[Any, str, float]]
ASKED: list[tuple[str, int, str | None]] = [
    ("seven hundred", 5, None),
    ("삼백", 1000, None),
    ("one", 3, "third = 1"),
    ("one", 1000, 'third != 2 and name = "a"'),
]


@pytest.fixture(scope="module", params=["poly", "late"])
def ranker(tokenizer: TextTokenizer, request: pytest.FixtureRequest) -> Ranker:
    return ranker_of(tokenizer, request.param)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many checksums a file, though the files are small."""
    monkeypatch.setattr(checksums, "BLOCK", 512)


@pytest.fixture(scope="module")
def whole(ranker: Ranker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of several shards, with fields, some of whose candidates are gone."""
    folder = tmp_path_factory.mktemp("whole") / "index"
    rows = [{"id": id, "text": text, "third": id % 3, "name": "ab"[id % 2]} for id, text in enumerate(TEXTS[:240])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checksums, "BLOCK", 512)
        patch.setattr("twofold.index.incoming.CHUNK_SIZE", 60)
        with Index.build(folder, ranker, rows) as index:
            index.remove([*range(7, 240, 5), 1, 2])
    assert not (folder / "index.sqlite-wal").exists()
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(whole, tmp_path / "index"))


def answer(index: Index, asked: tuple[str, int, str | None]) -> Answer:
    return [(hit.id, hit.text, round(hit.score, 3)) for hit in index.search(*asked)]


def answers(folder: Path, ranker: Ranker) -> list[Answer]:
    with Index(folder, ranker) as index:
        return [answer(index, asked) for asked in ASKED]


@pytest.fixture(scope="module")
def right(whole: Path, ranker: Ranker) -> list[Answer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checksums, "BLOCK", 512)
        return answers(whole, ranker)


def outcome(folder: Path, ranker: Ranker, right: list[Answer]) -> set[str]:
    """Outcome of searches in a damaged index."""
    outcomes_seen, opened = set[str](), list[Index]()
    for asked, expected in zip(ASKED, right, strict=True):
        try:
            opened = opened or [Index(folder, ranker)]
            outcomes_seen.add("right" if answer(opened[0], asked) == expected else "wrong answer")
        except TwofoldError as error:
            said = str(error)
            outcomes_seen.add(
                "named" if str(folder) in said and "\n" not in said else f"not named in one line: {said[:100]}"
            )
        except Exception as error:
            outcomes_seen.add(repr(error)[:100])
    for index in opened:
        index.close()
    return outcomes_seen


def outcomes(path: Path, places: Iterable[int], folder: Path, ranker: Ranker, right: list[Answer]) -> Counter[str]:
    """Outcomes of searches when one byte at a time is changed."""
    content, counts = path.read_bytes(), Counter[str]()
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        path.write_bytes(bytes(changed))
        counts.update(outcome(folder, ranker, right))
        for beside in folder.glob("index.sqlite-*"):
            beside.unlink()
    path.write_bytes(content)
    return counts


def parts_of(path: Path) -> dict[str, tuple[int, int]]:
    """Start and end of each part of a shard."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    places = {
        name: (start + about["data_offsets"][0], start + about["data_offsets"][1]) for name, about in header.items()
    }
    return {"length": (0, 8), "header": (8, start), **places}


def first_shard(folder: Path) -> Path:
    return min((folder / "shards").iterdir())


def test_another_byte_anywhere_in_a_shard_is_named(folder: Path, ranker: Ranker, right: list[Answer]) -> None:
    path = first_shard(folder)
    parts = parts_of(path)
    assert {"length", "header", "keys", "counts" if ranker.head.several else "integers", "vectors"} <= set(parts)
    for part, (start, stop) in parts.items():
        places = np.linspace(start, stop - 1, 4).astype(int).tolist()
        counts = outcomes(path, places, folder, ranker, right)
        assert set(counts) <= {"named", "right"}, (part, counts)
        assert counts["named"], part
    assert answers(folder, ranker) == right


@pytest.mark.parametrize("part", ["header", "keys", "vectors"])
def test_health_names_a_shard_with_another_byte(folder: Path, ranker: Ranker, part: str) -> None:
    path = first_shard(folder)
    content = bytearray(path.read_bytes())
    content[sum(parts_of(path)[part]) // 2] ^= 1
    path.write_bytes(content)
    assert str(path) in Index(folder, ranker).info(check=True)["health"]


def removed(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def lengthened(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def replaced(path: Path) -> None:
    """By another index's file of the same size."""
    path.write_bytes(bytes(path.stat().st_size))


def made_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = [removed, emptied, cut, halved, lengthened, replaced, made_a_folder]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_shard_is_named(folder: Path, ranker: Ranker, damage: Callable[[Path], None]) -> None:
    path = first_shard(folder)
    damage(path)
    for attempt in (
        lambda: answers(folder, ranker),
        lambda: Index(folder, ranker).compact(),
    ):
        with pytest.raises(TwofoldError) as caught:
            attempt()
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
    assert str(path) in Index(folder, ranker).info()["health"] or damage is replaced


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_catalog_is_named(
    folder: Path, ranker: Ranker, damage: Callable[[Path], None], right: list[Answer]
) -> None:
    damage(folder / "index.sqlite")
    slight = damage in (cut, lengthened)
    assert outcome(folder, ranker, right) <= ({"named", "right"} if slight else {"named"})
    said = []
    for attempt in (
        lambda: Index(folder, ranker).add(["one"]),
        lambda: Index(folder, ranker).remove([3]),
        lambda: Index(folder, ranker).compact(),
        lambda: Index(folder, ranker).info(check=True)["health"],
    ):
        try:
            said.append(str(attempt()))
        except TwofoldError as error:
            said.append(str(error))
    assert slight or all(str(folder) in one and "\n" not in one for one in said)


@pytest.mark.parametrize("step", [pytest.param(1601, id="some"), pytest.param(37, id="many", marks=pytest.mark.bench)])
def test_another_byte_in_the_catalog_never_gives_a_wrong_answer(
    folder: Path, ranker: Ranker, right: list[Answer], step: int
) -> None:
    path = folder / "index.sqlite"
    size = path.stat().st_size
    places = {*range(0, 100, 7), *range(step // 2, size, step)}
    # The beginning of each page says what and where its rows are.
    places |= {page + place for page in range(0, size, 4096) for place in range(0, 12 if step > 100 else 40, 2)}
    counts = outcomes(path, sorted(places), folder, ranker, right)
    assert set(counts) <= {"named", "right"}, counts


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE gone SET key = (SELECT key FROM candidates WHERE id = BEST) WHERE key = (SELECT min(key) FROM gone)",
        "DELETE FROM gone WHERE key = (SELECT max(key) FROM gone)",
        "DELETE FROM shards WHERE name = (SELECT max(name) FROM shards)",
        "DELETE FROM candidates WHERE id = BEST",
        "UPDATE candidates SET text = 'one' WHERE id = BEST",
        "UPDATE candidates SET id = 1000 WHERE id = BEST",
        "UPDATE candidates SET fields = replace(fields, '\"a\"', '\"b\"') WHERE id % 4 = 0",
        "UPDATE candidates SET fields = '{' WHERE id = BEST",
        "UPDATE shards SET rows = 1, first = 99999",
        "UPDATE shards SET sums = x'00'",
        "UPDATE shards SET size = size + 1",
        "UPDATE about SET value = 'x' WHERE name = 'version'",
        "UPDATE about SET value = 'x' WHERE name = 'state'",
        "UPDATE about SET value = 2 WHERE name = 'format'",
        "DELETE FROM about",
        "DROP TABLE gone",
    ],
)
def test_a_catalog_with_another_content_is_named_or_answers_right(
    folder: Path, ranker: Ranker, right: list[Answer], change: str
) -> None:
    database = sqlite3.connect(folder / "index.sqlite")
    with database:
        database.execute(change.replace("BEST", str(right[0][0][0])))
    database.close()
    assert outcome(folder, ranker, right) <= {"named", "right"}


@pytest.mark.parametrize("what", ["shard", "catalog"])
def test_a_file_of_another_index_is_not_taken_for_ones_own(
    folder: Path, tmp_path: Path, tokenizer: TextTokenizer, ranker: Ranker, right: list[Answer], what: str
) -> None:
    other = ranker_of(tokenizer, ranker.kind, seed=5)
    rows = [{"id": id, "text": text, "third": id % 3, "name": "ab"[id % 2]} for id, text in enumerate(TEXTS[:240])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("twofold.index.incoming.CHUNK_SIZE", 60)
        Index.build(tmp_path / "other", other, rows).close()
    name = "index.sqlite" if what == "catalog" else f"shards/{first_shard(folder).name}"
    assert (folder / name).stat().st_size == (tmp_path / "other" / name).stat().st_size or what == "catalog"
    shutil.copy(tmp_path / "other" / name, folder / name)
    assert outcome(folder, ranker, right) <= {"named", "right"}
