"""Whoever searches sees what others change, and at no moment a wrong answer."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.index.common import TEXTS, check_hits, make_shards_small, ranker_of, truth_of
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.index import Index, shards, writer
from twofold.index.catalog import Catalog
from twofold.model import Ranker
from twofold.results import Hits

CONTEXT = "seven hundred"


@pytest.fixture(scope="module")
def ranker(tokenizer: TextTokenizer) -> Ranker:
    return ranker_of(tokenizer)


@pytest.fixture
def folder(tmp_path: Path, ranker: Ranker, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of an index of twenty texts, in several shards that are soon joined."""
    make_shards_small(monkeypatch)
    Index.build(tmp_path / "index", ranker, TEXTS[:20]).close()
    return tmp_path / "index"


def ids_of(hits: Hits) -> set[Any]:
    return {hit.id for hit in hits}


def test_a_reader_sees_what_another_index_object_changes(folder: Path, ranker: Ranker) -> None:
    reader, other = Index(folder, ranker), Index(folder, ranker)
    assert ids_of(reader.search(CONTEXT, 100)) == set(range(20))
    other.add([{"text": "one", "id": "new", "lang": "en"}])
    assert len(reader) == 21
    assert ids_of(reader.search(CONTEXT, 100, 'lang = "en"')) == {"new"}
    other.remove([0, 19])
    assert ids_of(reader.search(CONTEXT, 100)) == {*range(1, 19), "new"}
    other.update([{"text": "two", "id": "new", "lang": "ko"}])
    assert ids_of(reader.search(CONTEXT, 100, 'lang = "en"')) == set()
    (hit,) = reader.search(CONTEXT, 100, 'lang = "ko"')
    assert (hit.id, hit.text) == ("new", "two")
    other.compact()
    assert ids_of(reader.search(CONTEXT, 100)) == {*range(1, 19), "new"}
    other.update([{"text": "two", "id": "new", "lang": "fr"}])
    assert ids_of(reader.search(CONTEXT, 100, 'lang = "ko"')) == set()


def test_a_search_begun_before_a_change_belongs_to_one_moment(
    folder: Path, ranker: Ranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "MERGE_FACTOR", 100)  # the old shards stay
    # Between the first look into the catalog and the list of shards, another thread sees a newer state.
    index, waiting = Index(folder, ranker), [True]
    index.search(CONTEXT)
    real = index._snapshots.latest

    def latest(catalog: Catalog) -> Any:
        if waiting:
            waiting.pop()
            Index(folder, ranker).update([{"text": "one", "id": id} for id in (1, 2)])
            other = threading.Thread(target=index.search, args=(CONTEXT,))
            other.start()
            other.join()
        return real(catalog)

    monkeypatch.setattr(index._snapshots, "latest", latest)
    texts = dict(enumerate(TEXTS[:20]))
    hits = index.search(CONTEXT, 100)
    assert ids_of(hits) == set(texts)
    check_hits(hits, truth_of(ranker, CONTEXT, {hit.id: hit.text for hit in hits}), 100)
    assert {hit.text for hit in index.search(CONTEXT, 100) if hit.id in (1, 2)} == {"one"}


def test_shards_joined_between_the_list_and_the_file_are_listed_again(
    folder: Path, ranker: Ranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, waiting = Index(folder, ranker), [True] * 5
    real = index._catalog.shards

    def shards() -> Any:
        listed = real()
        if waiting:
            waiting.pop()
            other = Index(folder, ranker)
            other.add(["one"])
            other.compact()
        return listed

    monkeypatch.setattr(index._catalog, "shards", shards)
    assert len(index.search(CONTEXT, 100)) == 25


def test_health_is_good_although_another_compacts_meanwhile(
    folder: Path, ranker: Ranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, waiting = Index(folder, ranker), [True]
    real = index._catalog.fields

    def fields() -> set[str]:
        if waiting:
            waiting.pop()
            Index(folder, ranker).add(["one"])
            Index(folder, ranker).compact()
        return real()

    monkeypatch.setattr(index._catalog, "fields", fields)
    assert index.info(check=True)["health"] == "good"


def test_whoever_comes_second_waits_and_says_so_after_a_while(
    folder: Path, ranker: Ranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "LOCK_WAIT", 0.2)
    with (
        writer.Writer(folder, ranker).exclusive(),
        pytest.raises(TwofoldError, match="another process has been writing"),
    ):
        Index(folder, ranker).add(["one"])
    assert len(Index(folder, ranker).search(CONTEXT, 100)) == 20
    assert Index(folder, ranker).add(["one"]) == 1


@pytest.mark.parametrize(
    "seconds", [pytest.param(3, id="3-seconds"), pytest.param(60, id="60-seconds", marks=pytest.mark.bench)]
)
def test_threads_that_search_while_others_change_see_no_wrong_answer(
    folder: Path, ranker: Ranker, seconds: float
) -> None:
    # Ids 0..19 stay; 0 and 1 change their texts; 100.. come and go.
    moving = TEXTS[100:140]
    texts = [*TEXTS[:20], *moving, *TEXTS[50:60]]
    score = truth_of(ranker, CONTEXT, dict(zip(texts, texts, strict=True)))
    index, stop, wrong = Index(folder, ranker), threading.Event(), list[str]()

    def change(seed: int) -> None:
        draw, index = random.Random(seed), Index(folder, ranker)
        ids = [100 + seed * 20 + number for number in range(20)]
        there = set[int]()
        while not stop.is_set():
            match draw.choice(["add", "remove", "update", "compact"]):
                case "add" if free := [id for id in ids if id not in there]:
                    there.add(id := draw.choice(free))
                    index.add([{"id": id, "text": moving[id - 100]}])
                case "remove" if there:
                    there.remove(id := draw.choice(sorted(there)))
                    index.remove([id])
                case "update":
                    index.update([{"id": seed, "text": draw.choice(TEXTS[50:60])}])
                case "compact":
                    index.compact()

    def look() -> None:
        while not stop.is_set():
            whole, some = index.search(CONTEXT, 100), index.search(CONTEXT, 5)
            by_id = {hit.id: hit for hit in whole}
            if len(by_id) != len(whole) or not by_id.keys() >= set(range(20)):
                wrong.append(f"lost or doubled: {[hit.id for hit in whole]}")
            for hits in (whole, some):
                for hit in hits:
                    if abs(score[hit.text] - hit.score) > 1e-4:
                        wrong.append(f"score of {hit}")
                    known = TEXTS[hit.id] if hit.id < 20 else moving[hit.id - 100]
                    if hit.text != known and not (hit.id < 2 and hit.text in TEXTS[50:60]):
                        wrong.append(f"text of {hit}")
                scores = [hit.score for hit in hits]
                if any(after > before + 1e-4 for before, after in itertools.pairwise(scores)):
                    wrong.append(f"order of {scores}")
            better = {id for id in range(2, 20) if score[TEXTS[id]] > some[-1].score + 1e-4}
            if len(some) != 5 or not better <= ids_of(some):
                wrong.append(f"left out: {better - ids_of(some)}")

    def guarded(target: Callable[..., None], *arguments: Any) -> None:
        try:
            target(*arguments)
        except Exception as error:
            wrong.append(repr(error))
            stop.set()

    threads = [threading.Thread(target=guarded, args=(change, seed)) for seed in (0, 1)]
    threads += [threading.Thread(target=guarded, args=(look,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong, (len(wrong), wrong[:3])
    assert Index(folder, ranker).info(check=True)["health"] == "good"
