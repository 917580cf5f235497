"""On a disk that is read-only or full an index is searched; what cannot be done is said in one line."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import twofold
from tests.attacks.disks import apart, fill, read_only, small_disk
from tests.commands import run
from tests.index.common import TEXTS, ranker_of
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.index import Index
from twofold.model import Ranker

CHANGES: dict[str, Callable[[Index], Any]] = {
    "add": lambda index: index.add(["one"]),
    "update": lambda index: index.update([{"id": 3, "text": "other"}]),
    "remove": lambda index: index.remove([3]),
    "compact": lambda index: index.compact(),
}


@pytest.fixture(scope="module")
def ranker(tokenizer: TextTokenizer) -> Ranker:
    return ranker_of(tokenizer)


@pytest.fixture(scope="module")
def whole(ranker: Ranker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "index"
    Index.build(folder, ranker, [{"id": id, "text": text} for id, text in enumerate(TEXTS[:30])]).close()
    return folder


def searched(index: Index) -> list[Any]:
    return [hit.id for hit in index.search("one", 100)]


def said(change: Callable[[Index], Any], index: Index) -> str:
    """The error of a change."""
    try:
        change(index)
    except TwofoldError as error:
        return str(error)
    return "no error"


def test_an_index_on_a_read_only_disk_is_searched_and_says_why_it_cannot_change(
    whole: Path, tmp_path: Path, ranker: Ranker
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "index"))

    def work() -> Any:
        read_only(folder)
        with Index(folder, ranker) as index:
            refused = [said(change, index) for change in CHANGES.values()]
            return searched(index), refused, index.info(check=True)["health"], [path.name for path in folder.iterdir()]

    ids, refused, health, names = apart(work)
    assert sorted(ids) == list(range(30))
    assert health == "good"
    assert sorted(names) == sorted(path.name for path in whole.iterdir())
    for line in refused:
        assert line.startswith(str(folder))
        assert "ead-only" in line
        assert "anew" not in line
        assert "\n" not in line


def test_an_index_on_a_read_only_disk_with_changes_in_its_log_says_so(
    whole: Path, tmp_path: Path, ranker: Ranker
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "index"))
    reading = sqlite3.connect(folder / "index.sqlite", isolation_level=None)
    reading.execute("BEGIN")
    reading.execute("SELECT * FROM about").fetchall()
    with Index(folder, ranker) as index:
        index.remove([3])
        copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    reading.close()
    (copy / "index.sqlite-shm").unlink()
    assert (copy / "index.sqlite-wal").stat().st_size

    def work() -> Any:
        read_only(copy)
        return said(searched, Index(copy, ranker))

    def refusal() -> Any:
        try:
            return work()
        except TwofoldError as error:
            return str(error)

    line = apart(refusal)
    assert line.startswith(f"{copy}/index.sqlite-wal: holds changes that cannot be read here")
    assert len(searched(Index(copy, ranker))) == 29  # where its folder can be written, it is whole


@pytest.mark.parametrize("kind", CHANGES)
def test_a_full_disk_is_said_and_nothing_is_lost(whole: Path, tmp_path: Path, ranker: Ranker, kind: str) -> None:
    disk = tmp_path / "disk"

    def work() -> Any:
        small_disk(disk, 1 << 20)
        folder = Path(shutil.copytree(whole, disk / "index"))
        fill(disk)
        with Index(folder, ranker) as index:
            before = searched(index)
            line = said(CHANGES[kind], index)
            full = searched(index)
        (disk / "filler").unlink()
        with Index(folder, ranker) as index:
            after, health = searched(index), index.info(check=True)["health"]
            again = said(CHANGES[kind], index)
            return before, line, full, after, health, again, searched(index)

    before, line, full, after, health, again, changed = apart(work)
    assert health == "good"
    assert full == after
    if line != "no error":
        assert line.startswith(str(disk))
        assert "space" in line
        assert "anew" not in line
        assert after == before
        assert again == "no error"
    assert sorted(map(str, changed)) == sorted(
        map(str, {"add": [*before, 30], "remove": set(before) - {3}}.get(kind, before))
    )


def test_opening_an_index_on_a_full_disk_needs_no_room(whole: Path, tmp_path: Path, ranker: Ranker) -> None:
    disk = tmp_path / "disk"

    def work() -> Any:
        small_disk(disk, 1 << 20)
        folder = Path(shutil.copytree(whole, disk / "index"))
        fill(disk)
        return searched(Index(folder, ranker))

    assert sorted(apart(work)) == list(range(30))


def test_the_command_line_searches_a_read_only_index(whole: Path, tmp_path: Path, ranker: Ranker) -> None:
    ranker.save_pretrained(tmp_path / "model")
    folder = Path(shutil.copytree(whole, tmp_path / "index"))

    def work() -> Any:
        read_only(folder)
        results = [
            run("search", folder, "one", "--model", tmp_path / "model", "-k", "3"),
            run("index", "info", folder),
            run("index", "copy", folder, tmp_path / "copy"),
            run("index", "remove", folder, "3"),
        ]
        return [(result.exit_code, result.output) for result in results]

    search, info, copy, remove = apart(work)
    assert (search[0], len(search[1].splitlines())) == (0, 3)
    assert info[0] == 0
    assert copy[0] == 0, copy
    assert remove[0] == 1
    assert len(remove[1].splitlines()) == 1


def test_without_a_folder_for_its_cache_numba_compiles_all_the_same(tmp_path: Path) -> None:
    package = Path(twofold.__file__).parent
    program = "from twofold.index import kernels; import numpy as np; out = np.zeros(1, np.int32); "
    program += "kernels.dot_products(np.ones((1, 8), np.int8), np.ones(8, np.int16), out); print(out[0])"

    def work() -> Any:
        read_only(package)
        places = {"HOME": str(tmp_path / "none"), "XDG_CACHE_HOME": "/proc/none", "NUMBA_CACHE_DIR": "/proc/none"}
        results = []
        for names in ([], ["NUMBA_CACHE_DIR"]):
            environment = {**os.environ, **{name: place for name, place in places.items() if name not in names}}
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
            results.append((done.stdout, done.stderr))
        return results

    (tmp_path / "none").touch()
    assert apart(work, 120) == [["8\n", ""], ["8\n", ""]]
