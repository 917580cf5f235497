"""Acknowledged changes are in the main file, or opening says that they are not; copies are whole."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.index.common import TEXTS, make_shards_small, ranker_of
from tests.index.test_kills import check
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.index import Index
from twofold.index.snapshot import copy_index
from twofold.model import Ranker

LOG = "index.sqlite-wal"


@pytest.fixture(scope="module")
def ranker(tokenizer: TextTokenizer) -> Ranker:
    return ranker_of(tokenizer)


@pytest.fixture
def folder(tmp_path: Path, ranker: Ranker) -> Path:
    Index.build(tmp_path / "index", ranker, [{"id": id, "text": text} for id, text in enumerate(TEXTS[:30])]).close()
    return tmp_path / "index"


@pytest.fixture
def reading(folder: Path) -> Iterator[sqlite3.Connection]:
    """Another process's search that has not ended: what changes meanwhile stays in the write-ahead log."""
    database = sqlite3.connect(folder / "index.sqlite", isolation_level=None)
    database.execute("BEGIN")
    database.execute("SELECT * FROM about").fetchall()
    yield database
    database.close()


def copied(folder: Path, *names: str) -> Path:
    """A copy of some of the files."""
    target = folder.with_name("copy")
    target.mkdir()
    for name in names:
        (shutil.copytree if (folder / name).is_dir() else shutil.copy)(folder / name, target / name)
    return target


def ids(folder: Path, ranker: Ranker) -> set[Any]:
    return set(check(folder, ranker))


def changes(index: Index) -> Iterator[set[Any]]:
    """Every kind of change, one after the other, and the ids that are there after it."""
    expected: set[Any] = set(range(30))
    index.add([{"id": "new", "text": "one"}])
    yield (expected := expected | {"new"})
    index.update([{"id": "new", "text": "two"}, {"id": 100, "text": "three"}])
    yield (expected := expected | {100})
    index.remove([3, 4])
    yield (expected := expected - {3, 4})
    index.compact()
    yield expected


def test_the_main_file_holds_every_acknowledged_change_while_the_index_stays_open(folder: Path, ranker: Ranker) -> None:
    with Index(folder, ranker) as index, Index(folder, ranker) as reader:
        for expected in changes(index):
            reader.search("one")
            copy = copied(folder, "index.sqlite", "shards", "version")
            assert ids(copy, ranker) == expected
            shutil.rmtree(copy)


def test_a_lost_write_ahead_log_is_noticed(folder: Path, ranker: Ranker, reading: sqlite3.Connection) -> None:
    index = Index(folder, ranker)
    index.remove([1])
    index.remove([2])
    assert (folder / LOG).stat().st_size
    with pytest.raises(TwofoldError, match="lacks 2 of its last changes") as refused:
        Index(copied(folder, "index.sqlite", "shards", "version"), ranker)
    assert "\n" not in str(refused.value)
    shutil.rmtree(folder.with_name("copy"))
    assert ids(copied(folder, "index.sqlite", "shards", "version", LOG), ranker) == set(range(30)) - {1, 2}


def test_any_other_byte_in_the_write_ahead_log_is_named_or_harmless(
    folder: Path, ranker: Ranker, reading: sqlite3.Connection
) -> None:
    index = Index(folder, ranker)
    index.add([{"id": "new", "text": "one"}])
    index.remove([1])
    expected, content = set(range(30)) - {1} | {"new"}, (folder / LOG).read_bytes()
    outcomes = set()
    for place in range(0, len(content), max(1, len(content) // 40)):
        copy = copied(folder, "index.sqlite", "shards", "version", LOG)
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        (copy / LOG).write_bytes(damaged)
        try:
            outcomes.add("right" if ids(copy, ranker) == expected else "wrong")
        except TwofoldError as error:
            outcomes.add("named" if str(copy) in str(error) else str(error))
        shutil.rmtree(copy)
    assert "named" in outcomes <= {"named", "right"}


def test_a_write_ahead_log_of_an_earlier_time_is_noticed(folder: Path, ranker: Ranker) -> None:
    held = sqlite3.connect(folder / "index.sqlite", isolation_level=None)
    held.execute("BEGIN")
    held.execute("SELECT * FROM about").fetchall()
    with Index(folder, ranker) as index:
        index.remove([1])
        stale = (folder / LOG).read_bytes()
        held.close()
        index.remove([2])
    assert not (folder / LOG).exists()
    (folder / LOG).write_bytes(stale)
    with pytest.raises(TwofoldError, match=str(folder)):
        Index(folder, ranker)


@pytest.mark.parametrize("damage", ["missing", "empty", "another digit", "another index's"])
def test_a_damaged_record_of_the_version_is_named_and_what_is_left_can_be_kept(
    folder: Path, ranker: Ranker, damage: str
) -> None:
    with Index(folder, ranker) as index:
        index.remove([1])
    path = folder / "version"
    content = path.read_bytes()
    match damage:
        case "missing":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "another digit":
            path.write_bytes(b"1" + content[1:])
        case _:
            path.write_bytes(b"%020d %08x\n" % (99, zlib.crc32(b"%020d" % 99)))
    with pytest.raises(TwofoldError, match="twofold index copy INDEX NEW --anyway"):
        Index(folder, ranker)
    assert copy_index(folder, folder.with_name("left"), anyway=True) == 29
    assert ids(folder.with_name("left"), ranker) == set(range(30)) - {1}


def test_an_older_copy_in_the_place_of_an_open_index_is_noticed(folder: Path, ranker: Ranker) -> None:
    older = copied(folder, "index.sqlite", "shards", "version")
    index = Index(folder, ranker)
    index.remove([1])
    assert len(index.search("one", 100)) == 29
    index.close()
    shutil.copy(older / "index.sqlite", folder / "index.sqlite")
    with pytest.raises(TwofoldError, match="lacks 1 of its last changes"):
        index.search("one", 100)


def test_a_copy_made_while_another_writes_is_whole(
    folder: Path, ranker: Ranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_shards_small(monkeypatch)
    stopped, acknowledged = threading.Event(), list[int]()

    def change() -> None:
        with Index(folder, ranker) as index:
            for number in range(1000, 2000):
                if stopped.is_set():
                    return
                index.add([{"id": number, "text": "one"}])
                acknowledged.append(number)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for number in range(8):
            before = set(acknowledged)
            copy_index(folder, folder.with_name(f"copy{number}"))
            assert set(range(30)) | before <= ids(folder.with_name(f"copy{number}"), ranker)
    finally:
        stopped.set()
        thread.join()
    assert acknowledged


def test_a_copy_takes_nothing_elses_place_and_names_a_damaged_shard(folder: Path, ranker: Ranker) -> None:
    (folder.parent / "there").mkdir()
    with pytest.raises(TwofoldError, match="is there already"):
        copy_index(folder, folder.parent / "there")
    shard = next((folder / "shards").iterdir())
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    with pytest.raises(TwofoldError, match=f"{shard}: damaged"):
        copy_index(folder, folder.parent / "new")
    assert not (folder.parent / "new").exists()


def build(folder: Path, ranker: Ranker, start: Any, said: Any) -> None:
    start.wait()
    try:
        Index.build(folder, ranker, TEXTS[:60]).close()
        said.put("built")
    except TwofoldError as error:
        said.put(str(error))


def test_of_two_builds_at_once_one_ends_with_a_line_that_names_the_other(tmp_path: Path, ranker: Ranker) -> None:
    forked: Any = multiprocessing.get_context("fork")
    for number in range(5):
        start, said, target = forked.Barrier(2), forked.Queue(), tmp_path / str(number)
        both = [forked.Process(target=build, args=(target, ranker, start, said)) for _ in range(2)]
        for process in both:
            process.start()
        lines = sorted((said.get(timeout=60) for _ in both), key=len)
        for process in both:
            process.join()
        assert lines[0] == "built"
        other = rf"{target}: (another process \(\d+ on .*\) is building an index here|there is an index already)"
        assert re.match(other, lines[1]), lines
        assert len(check(target, ranker)) == 60


FORK = """
import os, sys, torch
torch.set_num_threads(2)
from twofold.index import Index, search
from twofold.model import Ranker
import numpy as np
search.SCAN_LIMIT = 16  # so that bounds are computed, by threads
search.BLOCK = 16
index = Index(sys.argv[1], Ranker.from_pretrained(sys.argv[2]))
expected = [(hit.id, hit.text) for hit in index.search("one", 5)]
for _ in range(3):
    child = os.fork()
    if child == 0:
        found = [(hit.id, hit.text) for hit in index.search("one", 5)]
        index.remove([found[0][0]]) if sys.argv[3] == "changes" else None
        os._exit(0 if found == expected else 1)
    assert os.waitpid(child, 0)[1] == 0
    if sys.argv[3] == "changes":
        expected = [(hit.id, hit.text) for hit in index.search("one", 5)]
print(len(index))
"""


@pytest.mark.parametrize("what", ["searches", "changes"])
def test_a_forked_process_searches_and_changes_an_index_that_its_parent_has_open(
    folder: Path, ranker: Ranker, what: str
) -> None:
    ranker.save_pretrained(folder.with_name("model"))
    command = [sys.executable, "-c", FORK, str(folder), str(folder.with_name("model")), what]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (result.stdout, result.returncode) == ("27\n" if what == "changes" else "30\n", 0), result.stderr
    assert len(check(folder, ranker)) == int(result.stdout)


def test_connections_of_threads_that_ended_are_closed(folder: Path, ranker: Ranker) -> None:
    index = Index(folder, ranker)

    def open_files() -> int:
        links = [Path("/proc/self/fd", number) for number in os.listdir("/proc/self/fd")]
        return sum(str(folder / "index.sqlite") in os.readlink(link) for link in links if os.path.lexists(link))

    counts = []
    for _ in range(12):
        thread = threading.Thread(target=index.search, args=("one",))
        thread.start()
        thread.join()
        counts.append(open_files())
    assert max(counts) <= 12
    index.close()
