"""A file is read once into the cache; whatever would change the ids makes another cache."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import pytest

from tests import made
from tests.conftest import write_jsonl
from twofold.data.cache import Cache, cache_folder
from twofold.data.columns import TextColumn
from twofold.data.files import read_rows
from twofold.data.tokenizer import TextTokenizer, TokenizerConfig
from twofold.errors import TwofoldError
from twofold.storage.checksums import BLOCK, CheckedFile, SummedFile

ROWS = made.numbers(200, seed=5)


def fields(tokenizer: TextTokenizer, limit: int = 30) -> dict[str, TextColumn]:
    return {"source": TextColumn("source", tokenizer, limit), "main": TextColumn("target", tokenizer, limit)}


def folders() -> list[str]:
    """Entries of the cache, leftovers included."""
    return sorted(os.listdir(cache_folder())) if cache_folder().exists() else []


@pytest.fixture
def where(tmp_path: Path) -> str:
    return write_jsonl(tmp_path / "rows.jsonl", ROWS)


def test_rows_come_back_as_they_were_encoded(where: str, tokenizer: TextTokenizer) -> None:
    rows = list(read_rows(where))
    for _ in range(2):
        cache = Cache.of(where, fields(tokenizer))
        assert cache.rows == len(rows)
        assert cache.cut == {"source": 0, "main": 0}
        for name, field in fields(tokenizer).items():
            direct = field.encode(rows).ids
            assert [cache.columns[name].row(number).tolist() for number in range(len(rows))] == direct
            assert cache.columns[name].lengths.tolist() == [len(ids) for ids in direct]


def test_a_file_is_read_only_once(where: str, tokenizer: TextTokenizer) -> None:
    reports: list[int] = []
    Cache.of(where, fields(tokenizer), reports.append)
    assert reports == [len(ROWS)]
    before = folders()
    Cache.of(where, fields(tokenizer), reports.append)
    assert reports == [len(ROWS)]
    assert folders() == before
    assert len(before) == 1


def test_the_same_content_under_another_name_is_not_read_again(
    tmp_path: Path, where: str, tokenizer: TextTokenizer
) -> None:
    Cache.of(where, fields(tokenizer))
    os.utime(where, (0, 0))
    moved = Path(where).rename(tmp_path / "moved.jsonl")
    Cache.of(str(moved), fields(tokenizer))
    assert len(folders()) == 1


def another_tokenizer(where: str, old: dict[str, TextColumn]) -> dict[str, TextColumn]:
    texts = [text for row in ROWS for text in row.values()]
    return fields(TextTokenizer.train(texts, TokenizerConfig(size=60)))


def another_limit(where: str, old: dict[str, TextColumn]) -> dict[str, TextColumn]:
    return fields(old["source"].tokenizer, limit=29)


def another_column(where: str, old: dict[str, TextColumn]) -> dict[str, TextColumn]:
    return {"source": old["source"], "main": old["source"]}


def another_content(where: str, old: dict[str, TextColumn]) -> dict[str, TextColumn]:
    write_jsonl(Path(where), [*ROWS[:-1], {"source": "seven", "target": "7"}])
    return old


@pytest.mark.parametrize("change", [another_tokenizer, another_limit, another_column, another_content])
def test_what_changes_the_ids_makes_another_cache(
    where: str, tokenizer: TextTokenizer, change: Callable[[str, dict[str, TextColumn]], dict[str, TextColumn]]
) -> None:
    Cache.of(where, fields(tokenizer))
    changed = change(where, fields(tokenizer))
    cache = Cache.of(where, changed)
    assert len(folders()) == 2
    rows = list(read_rows(where))
    for name, field in changed.items():
        assert cache.columns[name].row(len(rows) - 1).tolist() == field.encode(rows).ids[-1]


def test_rows_that_are_cut_are_counted(where: str, tokenizer: TextTokenizer) -> None:
    rows = list(read_rows(where))
    whole = {name: field.encode(rows).ids for name, field in fields(tokenizer).items()}
    for _ in range(2):
        cache = Cache.of(where, fields(tokenizer, limit=6))
        assert cache.cut == {name: sum(len(ids) > 6 for ids in every) for name, every in whole.items()}
        assert cache.cut["source"] > 0
        for name, every in whole.items():
            assert [cache.columns[name].row(n).tolist() for n in range(len(rows))] == [ids[:6] for ids in every]


def test_a_row_too_long_is_refused_with_its_line_and_the_limit(tmp_path: Path, tokenizer: TextTokenizer) -> None:
    short, long = {"source": "one"}, {"source": "one " * 50}
    where = write_jsonl(tmp_path / "rows.jsonl", [short, short, long])
    count = len(tokenizer.encode([long["source"]])[0])
    with pytest.raises(TwofoldError) as caught:
        Cache.of(where, {"source": TextColumn("source", tokenizer, 20, "refuse")})
    assert str(caught.value).startswith(f"{where}:3: 'source' has {count} tokens, the limit is 20; ")
    assert folders() == []


@pytest.mark.parametrize("last", ['{"source": "one"}', "not JSON", '{"source": " ", "target": "1"}'])
def test_a_failed_build_leaves_nothing_behind(where: str, tokenizer: TextTokenizer, last: str) -> None:
    with Path(where).open("a", encoding="utf-8") as file:
        file.write(last + "\n")
    with pytest.raises(TwofoldError, match=rf"rows\.jsonl:{len(ROWS) + 1}: "):
        Cache.of(where, fields(tokenizer))
    assert folders() == []


def test_what_a_kill_left_long_ago_is_swept_away(where: str, tokenizer: TextTokenizer) -> None:
    old, young = cache_folder() / ".new-old", cache_folder() / ".new-young"
    for folder, days in ((old, 8), (young, 1)):
        folder.mkdir(parents=True)
        (folder / "0.ids").write_bytes(b"half")
        os.utime(folder, (time.time() - days * 86_400,) * 2)
    Cache.of(where, fields(tokenizer))
    assert not old.exists()
    assert young.exists()


def test_a_folder_that_goes_away_during_the_sweep_stops_nobody(where: str, tokenizer: TextTokenizer) -> None:
    # Listed but no longer there: what a process sees when another just renames its finished folder.
    cache_folder().mkdir(parents=True)
    (cache_folder() / ".new-gone").symlink_to(cache_folder() / "nowhere")
    assert Cache.of(where, fields(tokenizer)).rows == len(ROWS)


def build(where: str, tokenizer: Path, out: Path, together: Barrier) -> None:
    loaded = TextTokenizer.load(tokenizer)
    together.wait()
    cache = Cache.of(where, fields(loaded))
    out.write_text(json.dumps(np.asarray(cache.columns["source"].ids).tolist()))


def test_two_processes_that_build_the_same_cache_both_have_it(tmp_path: Path, tokenizer: TextTokenizer) -> None:
    rows = made.numbers(3000, seed=6)
    where = write_jsonl(tmp_path / "rows.jsonl", rows)
    tokenizer.save(tmp_path / "tokenizer.json")
    spawn = multiprocessing.get_context("spawn")
    together = spawn.Barrier(2)
    outs = [tmp_path / "one", tmp_path / "two"]
    both = [spawn.Process(target=build, args=(where, tmp_path / "tokenizer.json", out, together)) for out in outs]
    for process in both:
        process.start()
    for process in both:
        process.join()
        assert process.exitcode == 0
    expected = [one for ids in tokenizer.encode([row["source"] for row in rows]) for one in ids]
    assert [json.loads(out.read_text()) for out in outs] == [expected, expected]
    assert len(folders()) == 1


on_linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux says how much memory was used")
MEASURE = """
import re, sys
from twofold.data.cache import Cache
from twofold.storage.checksums import BLOCK, CheckedFile, SummedFile
from twofold.data.columns import TextColumn
from twofold.data.tokenizer import TextTokenizer, TokenizerConfig
words = [f"{number:020}".translate(str.maketrans("0123456789", "abcdefghij")) for number in range(0, 10**6, 7919)]
tokenizer = TextTokenizer.train([" ".join(words)], TokenizerConfig(size=400))
# Not getrusage: its peak is never below that of the process that started this one.
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
for length, megabytes in zip(map(int, sys.argv[1::2]), map(float, sys.argv[2::2])):
    row = " ".join((words * length)[:length]) + "\\n"
    with open("rows.txt", "w") as out:
        for _ in range(int(megabytes * 1e6 / len(row))):
            out.write(row)
    before = peak()
    Cache.of("rows.txt", {"source": TextColumn("text", tokenizer, 50)})
    print((peak() - before) / 1024)
"""


def growth(folder: Path, *files: float) -> list[float]:
    """Megabytes by which the peak grows while files are cached one by one, each given by words a row and megabytes."""
    arguments = [sys.executable, "-c", MEASURE, *map(str, files)]
    said = subprocess.run(arguments, cwd=folder, check=True, capture_output=True, text=True).stdout
    return [float(line) for line in said.split()]


@on_linux
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    _, short_rows, _, long_rows = growth(tmp_path, 6, 2, 6, 5, 400, 1, 400, 5)
    assert short_rows < 5
    assert long_rows < 5


@on_linux
@pytest.mark.bench
def test_a_large_file_is_cached_in_far_less_memory(tmp_path: Path) -> None:
    assert sum(growth(tmp_path, 10, 60)) < 30


def read_all(where: str, tokenizer: TextTokenizer) -> None:
    cache = Cache.of(where, fields(tokenizer))
    for column in cache.columns.values():
        for number in range(cache.rows):
            column.row(number)


@pytest.mark.parametrize("name", ["0.ids", "1.ids", "0.offsets", "1.offsets", "about.json"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_flipped_byte_is_named_before_it_is_used(
    where: str, tokenizer: TextTokenizer, name: str, share: float
) -> None:
    read_all(where, tokenizer)
    (folder,) = cache_folder().iterdir()
    content = bytearray((folder / name).read_bytes())
    content[int(share * len(content))] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(TwofoldError) as said:
        read_all(where, tokenizer)
    assert str(said.value).startswith(f"{folder / name}: ")
    assert str(said.value).endswith(f"remove {folder} and run again")


@pytest.mark.parametrize("name", ["0.ids", "1.offsets"])
def test_a_cut_or_missing_file_is_named(where: str, tokenizer: TextTokenizer, name: str) -> None:
    read_all(where, tokenizer)
    (folder,) = cache_folder().iterdir()
    (folder / name).write_bytes((folder / name).read_bytes()[:-8])
    with pytest.raises(TwofoldError, match=r"bytes long, not .*; remove .* and run again"):
        read_all(where, tokenizer)
    (folder / name).unlink()
    with pytest.raises(TwofoldError, match=r"cannot be read \(No such file or directory\); remove .* and run again"):
        read_all(where, tokenizer)


def test_only_the_blocks_that_are_used_are_checked(tmp_path: Path) -> None:
    content = np.arange(3 * BLOCK // 8 + 5, dtype=np.int64)
    with (tmp_path / "file").open("wb") as file:
        written = SummedFile(file)
        for start in range(0, len(content), 1000):
            written.write(content[start : start + 1000].tobytes())
    damaged = bytearray(content.tobytes())
    damaged[2 * BLOCK + 1] ^= 4
    (tmp_path / "file").write_bytes(damaged)
    checked = CheckedFile(tmp_path / "file", written.about(), "again")
    checked.check(0, 2 * BLOCK)
    checked.check(3 * BLOCK, 3 * BLOCK + 8)
    with pytest.raises(TwofoldError, match=f"damaged near byte {2 * BLOCK:,}; again"):
        checked.check(2 * BLOCK - 1, 2 * BLOCK + 1)


def test_a_cache_folder_that_cannot_be_written_is_one_line_that_names_its_variable(
    where: str, tokenizer: TextTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("/proc/none", where):
        monkeypatch.setenv("TWOFOLD_CACHE", folder)
        with pytest.raises(TwofoldError) as said:
            Cache.of(where, fields(tokenizer))
        assert str(said.value).startswith(f"{folder}: token ids cannot be cached there (")
        assert str(said.value).endswith("TWOFOLD_CACHE=/path/to/a/folder")
