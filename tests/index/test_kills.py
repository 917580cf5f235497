"""Another process changes an index, is killed at any moment, or finds no room: nothing is lost or wrong."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.index.common import TEXTS, check_hits, document_truth, ranker_of, rounding_of, truth_of
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.index import Index
from twofold.model import Ranker

KILLS = pytest.mark.parametrize(
    "kills", [pytest.param(10, id="10-kills"), pytest.param(100, id="100-kills", marks=pytest.mark.bench)]
)
SPLITS = pytest.mark.parametrize("split", [None, "4:1"], ids=["whole", "passages"])
Content = dict[int, tuple[str, dict[str, Any]]]


class Changer:
    """The program that changes indexes."""

    def __init__(self, model: Path) -> None:
        command = [sys.executable, "-m", "tests.index.changer", str(model)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.until("ready")

    def begin(self, task: str, folder: Path, **settings: Any) -> int:
        """Start a task; returns the id of its process."""
        assert self.process.stdin is not None
        print(json.dumps({"task": task, "folder": str(folder), **settings}), file=self.process.stdin, flush=True)
        return int(self.until("pid")[-1]["pid"])

    def until(self, name: str) -> list[dict[str, Any]]:
        """Printed lines, up to the line of that name."""
        said: list[dict[str, Any]] = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said.append(json.loads(line))
            assert "failed" not in said[-1], said[-1]
            if name in said[-1]:
                return said
        raise EOFError(name)

    def killed(self, task: str, folder: Path, after: float, **settings: Any) -> list[dict[str, Any]]:
        """Printed lines of a task until it ends by itself or is killed; the last line tells which."""
        child = self.begin(task, folder, **settings)
        timer = threading.Timer(after, os.kill, (child, signal.SIGKILL))
        timer.start()
        try:
            return self.until("killed")
        finally:
            timer.cancel()
            timer.join()


@pytest.fixture(scope="module", params=["poly", "late"])
def ranker(tokenizer: TextTokenizer, request: pytest.FixtureRequest) -> Ranker:
    return ranker_of(tokenizer, request.param)


@pytest.fixture(scope="module")
def changer(ranker: Ranker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Changer]:
    folder = tmp_path_factory.mktemp("changer")
    ranker.save_pretrained(folder / "model")
    made = Changer(folder / "model")
    yield made
    made.process.kill()
    made.process.communicate()


def content_of(index: Index) -> Content:
    """Candidates that a search can find: whole texts, if hits are passages."""
    stored = {hit.id: index.get(hit.id) for hit in index.search("one", 10_000)}
    return {id: (candidate.text, dict(candidate.fields)) for id, candidate in stored.items() if candidate}


def check(folder: Path, ranker: Ranker, split: str | None = None) -> Content:
    """The index opens, is whole and finds the best; returns what it holds."""
    with Index(folder, ranker) as index:
        content = content_of(index)
        assert len(index) == len(content)
        assert index.info(check=True)["health"] == "good"
        if content:
            texts = {id: text for id, (text, _) in content.items()}
            truth = truth_of(ranker, "seven hundred", texts)
            if split:
                truth = document_truth(ranker, "seven hundred", texts, split)
            check_hits(index.search("seven hundred", 10), truth, 10, rounding_of(ranker))
        return content


def after(content: Content, kind: str, rows: list[dict[str, Any]]) -> Content:
    """Contents of an index after a change."""
    given: Content = {row["id"]: (row["text"], {"seed": row["seed"]}) for row in rows}
    match kind:
        case "remove":
            return {id: one for id, one in content.items() if id not in given}
        case "compact":
            return content
        case _:
            return content | given


def test_a_reader_sees_what_another_process_changes(tmp_path: Path, ranker: Ranker, changer: Changer) -> None:
    reader = Index.build(tmp_path / "index", ranker, TEXTS[:20])
    before = content_of(reader)
    rows: list[tuple[str, list[Any]]] = [("add", ["one", "two"]), ("remove", [1, 2]), ("compact", [])]
    for what, given in rows:
        changer.begin("once", tmp_path / "index", what=what, rows=given)
        assert changer.until("killed")[0]["said"] == "no error"
        before |= {20: ("one", {}), 21: ("two", {})}
        if what != "add":
            before.pop(1, None), before.pop(2, None)
        assert content_of(reader) == before
    truth = truth_of(ranker, "seven hundred", {id: text for id, (text, _) in before.items()})
    check_hits(reader.search("seven hundred", 5), truth, 5, rounding_of(ranker))


@SPLITS
@KILLS
def test_no_kill_during_changes_loses_what_was_acknowledged(
    tmp_path: Path, ranker: Ranker, changer: Changer, kills: int, split: str | None
) -> None:
    folder, draw = tmp_path / "index", random.Random(kills)
    content: Content = {id: (text, {}) for id, text in enumerate(TEXTS[:40])}
    Index.build(folder, ranker, [{"id": id, "text": text} for id, (text, _) in content.items()], split=split).close()
    kinds = set[str]()
    for seed in range(kills):
        said = changer.killed("change", folder, draw.uniform(0.02, 0.4), ids=list(content), seed=seed)
        assert said[-1]["killed"]
        begun = [one for one in said if "began" in one]
        kinds |= {one["began"] for one in begun}
        done = sum("done" in one for one in said)
        for change in begun[:done]:
            content = after(content, change["began"], change["rows"])
        stored = check(folder, ranker, split)
        maybe = [after(content, one["began"], one["rows"]) for one in begun[done:]]  # all of it, or nothing
        assert stored in [content, *maybe]
        content = stored
    assert kinds == {"add", "remove", "update", "compact"}
    with Index(folder, ranker) as index:
        index.compact()
        shards = {path.name for path in (folder / "shards").iterdir()}
        assert len(shards) == index.info()["shards"] == 1  # what killed writers left is cleared away
    assert check(folder, ranker, split) == content


def test_a_killed_build_of_documents_goes_on_with_whole_documents(
    tmp_path: Path, ranker: Ranker, changer: Changer
) -> None:
    draw, file = random.Random(1), tmp_path / "texts.txt"
    documents = [" ".join(draw.choices(TEXTS, k=6)) for _ in range(60)]
    file.write_text("\n".join(documents), encoding="utf-8")
    folder, split, said = tmp_path / "index", "5:2", list[dict[str, Any]]([{"killed": True}])
    passages, kills = set[str](), 0
    while said[-1]["killed"]:
        said = changer.killed("build", folder, 0.15 + 0.05 * kills, texts=str(file), split=split)
        kills += said[-1]["killed"]
        passages |= {text for line in said for text in line.get("read", [])}
        if (folder / "index.sqlite").exists():
            with Index(folder, ranker) as index:
                info = index.info(check=True)
                assert info["health"] == "good"
                assert list(index) == list(range(1, len(index) + 1))
                if info["state"] == "ready":
                    break
    assert kills
    assert all(any(passage in text for text in documents) for passage in passages)
    assert check(folder, ranker, split) == {id: (text, {}) for id, text in enumerate(documents, start=1)}


@KILLS
def test_a_killed_build_goes_on_without_reading_a_finished_shard_again(
    tmp_path: Path, ranker: Ranker, changer: Changer, kills: int
) -> None:
    draw, killed, number = random.Random(kills), 0, 0
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(TEXTS[:150]), encoding="utf-8")
    while killed < kills:
        number += 1
        folder, finished, said = tmp_path / f"{number}", set[str](), list[dict[str, Any]]([{"killed": True}])
        while said[-1]["killed"]:
            last = draw.uniform(0.0, 0.3) if killed < kills else 60.0
            said = changer.killed("build", folder, last, texts=str(file))
            read = [text for one in said for text in one.get("read", [])]
            assert not finished & set(read)
            killed += said[-1]["killed"]
            if said[-1]["killed"] and (folder / "index.sqlite").exists():
                with Index(folder, ranker) as index:
                    info = index.info(check=True)
                    assert info["health"] == "good"
                    if info["state"] == "ready":
                        break
                    with pytest.raises(TwofoldError, match="not built to its end"):
                        index.search("one")
                    assert info["candidates"] >= len(finished) + max(0, len(read) - 8)
                    finished = set(TEXTS[: info["candidates"]])  # they are read in order, shard by shard
        assert check(folder, ranker) == {id: (text, {}) for id, text in enumerate(TEXTS[:150], start=1)}


@pytest.mark.parametrize("limit", [100, 6000])
@pytest.mark.parametrize("what", ["add", "update", "compact", "remove"])
def test_a_full_disk_leaves_the_index_as_it_was(
    tmp_path: Path, ranker: Ranker, changer: Changer, what: str, limit: int
) -> None:
    folder = tmp_path / "index"
    Index.build(folder, ranker, TEXTS[:150]).close()
    reader = Index(folder, ranker)
    before = content_of(reader)
    rows: list[Any] = list(range(1, 100)) if what == "remove" else [{"id": id, "text": "one"} for id in range(140, 400)]
    if what == "add":
        rows = rows[11:]
    changer.begin("once", folder, what=what, limit=limit, rows=rows)
    said = changer.until("killed")[0]["said"]
    if said == "no error":
        assert what in ("remove", "compact")
        return
    assert str(folder) in said
    assert "\n" not in said
    assert check(folder, ranker) == content_of(reader) == before
    reader.add(["one"])
    reader.compact()
    assert check(folder, ranker) == {**before, 150: ("one", {})}
    assert len(list((folder / "shards").iterdir())) == 1


@pytest.mark.parametrize("limit", [100, 10_000])
def test_a_build_on_a_full_disk_goes_on_when_there_is_room(
    tmp_path: Path, ranker: Ranker, changer: Changer, limit: int
) -> None:
    folder = tmp_path / "index"
    rows = [{"id": id, "text": text} for id, text in enumerate(TEXTS[:200])]
    changer.begin("once", folder, what="build", limit=limit, rows=rows)
    said = changer.until("killed")[0]["said"]
    assert str(folder) in said
    assert "\n" not in said
    Index.build(folder, ranker, rows).close()
    assert check(folder, ranker) == {id: (text, {}) for id, text in enumerate(TEXTS[:200])}
