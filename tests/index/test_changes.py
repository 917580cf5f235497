"""After any changes an index answers as one that was built anew from what is left."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import write_jsonl
from tests.index.common import TEXTS, check_hits, make_shards_small, ranker_of, truth_of
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.index import Index, shards
from twofold.model import Ranker

Content = dict[Any, tuple[str, dict[str, Any]]]
"""Text and fields by id."""


@pytest.fixture(scope="module")
def ranker(tokenizer: TextTokenizer) -> Ranker:
    return ranker_of(tokenizer)


@pytest.fixture
def read(ranker: Ranker, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every text that is read as a candidate, in turn."""
    texts: list[str] = []
    real = ranker.embed_candidates

    def embed_candidates(some: Sequence[str], report: Any = None) -> Any:
        texts.extend(some)
        return real(some, report)

    monkeypatch.setattr(ranker, "embed_candidates", embed_candidates)
    return texts


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows make a shard, and a few shards are joined."""
    make_shards_small(monkeypatch)
    monkeypatch.setattr(shards, "FULL_SHARD", 60)


def rows_of(content: Content) -> list[dict[str, Any]]:
    return [{"id": id, "text": text, **fields} for id, (text, fields) in content.items()]


def content_of(index: Index) -> Content:
    return {hit.id: (hit.text, dict(hit.fields)) for hit in index.search("one", 10_000)}


def check(index: Index, content: Content, ranker: Ranker) -> None:
    """The index holds this and nothing else, and finds the best of it."""
    assert len(index) == len(content)
    assert content_of(index) == content
    if content:
        texts = {id: text for id, (text, _) in content.items()}
        for context in ("seven hundred", "삼백"):
            check_hits(index.search(context, 10), truth_of(ranker, context, texts), 10)
    assert index.info(check=True)["health"] == "good"


def changed(index: Index, content: Content, draw: random.Random) -> None:
    """One change drawn at random, to an index and to what it should hold."""
    kind, number = draw.choice(["add", "add", "remove", "update", "compact"]), draw.randint(1, 25)
    if kind == "compact":
        index.compact()
        return
    if kind == "remove":
        ids = draw.sample(list(content), min(number, len(content)))
        assert index.remove(ids) == len(ids)
        for id in ids:
            del content[id]
        return
    free = [id for id in (*range(200), *(f"a{one}" for one in range(200))) if id not in content]
    ids = draw.sample(free, number)
    if kind == "update":
        ids[: number // 2] = draw.sample(list(content), min(number // 2, len(content)))
    given: Content = {
        id: (draw.choice(TEXTS), {"year": draw.randint(1, 9)} if draw.random() < 0.5 else {}) for id in ids
    }
    differ = sum(content.get(id) != one for id, one in given.items())
    assert (index.add if kind == "add" else index.update)(rows_of(given)) == differ
    content |= given


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize(
    ("kind", "stored"),
    [("poly", "float32"), ("poly", "float16"), ("poly", "int8"), ("late", "float16"), ("late", "int8")],
)
def test_after_changes_at_random_an_index_equals_one_built_anew(
    tmp_path: Path, tokenizer: TextTokenizer, kind: str, stored: str
) -> None:
    draw, ranker = random.Random(stored), ranker_of(tokenizer, kind)
    content: Content = {id: (text, {}) for id, text in enumerate(TEXTS[:30], start=1)}
    reader = Index.build(tmp_path / "index", ranker, rows_of(content), stored)
    for step in range(25):
        changed(Index(tmp_path / "index", ranker), content, draw)
        assert content_of(reader) == content, step
    reader.add(rows_of(last := {"last": ("one", {"year": 9})}))
    content |= last
    fresh = Index.build(tmp_path / "fresh", ranker, rows_of(content), stored)
    # A text read beside others may differ in the last digit of float32, and so in the last one that is stored.
    rounding = 0.0 if stored == "float32" else 0.02
    for index in (reader, Index(tmp_path / "index", ranker)):
        for k in (1, 10, 1000):
            for where in (None, "year > 4"):
                truth = {hit.id: hit.score for hit in fresh.search("seven hundred", 1000, where)}
                check_hits(index.search("seven hundred", k, where), truth, k, rounding)
    reader.compact()
    assert content_of(reader) == content
    assert reader.info(check=True)["health"] == "good"
    assert reader.info()["removed"] == 0


@pytest.mark.usefixtures("small_shards")
def test_joining_small_shards_keeps_every_candidate(tmp_path: Path, ranker: Ranker) -> None:
    content: Content = {1: (TEXTS[0], {})}
    index = Index.build(tmp_path / "index", ranker, rows_of(content))
    for id in range(2, 40):
        index.add(rows_of({id: (TEXTS[id], {"number": id})}))
        content[id] = (TEXTS[id], {"number": id})
        if id % 5 == 0:
            index.remove([id - 1])
            del content[id - 1]
        assert index.info()["shards"] == len(list((tmp_path / "index" / "shards").iterdir())) < 15
    check(index, content, ranker)


@pytest.mark.usefixtures("small_shards")
def test_a_full_shard_is_not_joined_and_compacting_leaves_as_few_as_possible(tmp_path: Path, ranker: Ranker) -> None:
    content: Content = {id: (text, {}) for id, text in enumerate(TEXTS[:200])}
    index = Index.build(tmp_path / "index", ranker, rows_of(content))
    index.remove(gone := list(range(0, 200, 3)))
    for id in gone:
        del content[id]
    index.compact()
    assert index.info()["shards"] <= 5  # 133 rows, at most 60 in each
    assert index.info()["removed"] == 0
    check(index, content, ranker)


def test_an_update_reads_only_texts_that_changed(tmp_path: Path, ranker: Ranker, read: list[str]) -> None:
    content: Content = {id: (text, {"year": id}) for id, text in enumerate(TEXTS[:50])}
    index = Index.build(tmp_path / "index", ranker, rows_of(content))
    assert sorted(read) == sorted(TEXTS[:50])
    read.clear()
    assert index.update(rows_of(content)) == 0
    assert read == []
    shards = index.info()["shards"]
    content |= {3: (TEXTS[3], {"year": 99}), 4: (TEXTS[4], {}), 5: (TEXTS[60], {"year": 5}), "new": (TEXTS[61], {})}
    assert index.update(rows_of(content)) == 4
    assert read == [TEXTS[60], TEXTS[61]]
    assert index.info()["shards"] == shards + 1
    check(index, content, ranker)
    read.clear()
    index.update(rows_of({7: (TEXTS[7], {"year": -1})}))
    index.compact()
    assert read == []
    assert content_of(index)[7] == (TEXTS[7], {"year": -1})


def test_equal_texts_are_read_once(tmp_path: Path, ranker: Ranker, read: list[str]) -> None:
    Index.build(tmp_path / "index", ranker, TEXTS[:5] * 20)
    assert sorted(read) == sorted(TEXTS[:5])


@pytest.mark.parametrize("id", [0, -7, 2**62, "0", "", "a b", "삼", "x" * 5000, "'; DROP TABLE candidates; --"])
def test_ids_are_numbers_or_texts_of_any_kind(tmp_path: Path, ranker: Ranker, id: Any) -> None:
    content: Content = {1: (TEXTS[0], {}), "1": (TEXTS[1], {}), id: (TEXTS[2], {})}
    index = Index.build(tmp_path / "index", ranker, rows_of(content))
    check(index, content, ranker)
    assert index.search("one", exclude=[1]).__len__() == 2
    index.remove([id])
    del content[id]
    index.add(rows_of({id: (TEXTS[3], {})}))
    check(index, content | {id: (TEXTS[3], {})}, ranker)


def test_plain_lines_are_numbered_on(tmp_path: Path, ranker: Ranker) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("one\n\ntwo\nthree\n")
    index = Index.build(tmp_path / "index", ranker, file)
    assert {hit.id: hit.text for hit in index.search("one")} == {1: "one", 3: "two", 4: "three"}
    assert index.add(["four", "", "five"]) == 2
    assert {hit.id: hit.text for hit in index.search("one")} == {
        1: "one",
        3: "two",
        4: "three",
        5: "four",
        7: "five",
    }
    index.remove([7])
    index.add(file)
    assert sorted(hit.id for hit in index.search("one")) == [1, 3, 4, 5, 6, 8, 9]


def test_an_update_by_plain_lines_changes_the_lines_that_differ(
    tmp_path: Path, ranker: Ranker, read: list[str]
) -> None:
    index = Index.build(tmp_path / "index", ranker, ["one", "two", "three"])
    read.clear()
    assert index.update(["one", "seven", "three", "four"]) == 2
    assert read == ["seven", "four"]
    assert {hit.id: hit.text for hit in index.search("one")} == {0: "one", 1: "seven", 2: "three", 3: "four"}


@pytest.mark.parametrize("ids", [["nobody"], [1, 2, 99], [1, "2"]])
def test_removing_an_id_that_is_not_there_removes_nothing(tmp_path: Path, ranker: Ranker, ids: list[Any]) -> None:
    index = Index.build(tmp_path / "index", ranker, TEXTS[:5])
    with pytest.raises(TwofoldError, match=r"there is no candidate .*; nothing was removed"):
        index.remove(ids)
    assert len(index) == len(index.search("one")) == 5


@pytest.mark.usefixtures("small_shards")
def test_adding_an_id_that_is_there_adds_nothing(tmp_path: Path, ranker: Ranker, read: list[str]) -> None:
    index = Index.build(tmp_path / "index", ranker, TEXTS[:5])
    read.clear()
    rows = [{"text": TEXTS[id], "id": id} for id in range(90, 3, -1)]
    file = write_jsonl(tmp_path / "a.jsonl", rows)
    with pytest.raises(TwofoldError, match=rf"{file}:87: the id 4 is there already"):
        index.add(file)
    assert read == []
    assert len(index) == len(index.search("one")) == 5


@pytest.mark.parametrize("rows", [[{"text": "a"}, {"text": "b", "id": 0}], [{"text": "a", "id": 1}, {"text": "b"}]])
def test_an_id_that_is_the_number_of_another_row_is_an_error(
    tmp_path: Path, ranker: Ranker, rows: list[dict[str, Any]]
) -> None:
    with pytest.raises(TwofoldError, match=r"texts\[1\]: the id . is that of texts\[0\]"):
        Index.build(tmp_path / "index", ranker, rows)
    index = Index.build(tmp_path / "other", ranker, [{"text": "c", "id": "c"}])
    with pytest.raises(TwofoldError, match=r"texts\[1\]: the id . is that of texts\[0\]"):
        index.add(rows)
    with pytest.raises(TwofoldError, match=r"texts\[1\]: the id . is that of texts\[0\]"):
        index.update(rows)
    assert len(index) == 1


def test_an_index_from_which_all_went_answers_nothing_and_takes_more(tmp_path: Path, ranker: Ranker) -> None:
    index = Index.build(tmp_path / "index", ranker, TEXTS[:5])
    index.remove(range(5))
    check(index, {}, ranker)
    index.compact()
    assert index.info()["shards"] == 0
    check(index, {}, ranker)
    index.add(TEXTS[5:8])
    check(index, {id: (TEXTS[5 + id], {}) for id in range(3)}, ranker)


def test_a_model_changed_since_then_is_refused(tmp_path: Path, tokenizer: TextTokenizer, ranker: Ranker) -> None:
    Index.build(tmp_path / "index", ranker, TEXTS[:5])
    other = ranker_of(tokenizer, seed=9)
    for attempt in (
        lambda: Index(tmp_path / "index", other).search("one"),
        lambda: Index(tmp_path / "index", other).add(["one"]),
        lambda: Index.build(tmp_path / "index", other, TEXTS[:5]),
    ):
        with pytest.raises(TwofoldError, match="built with another model"):
            attempt()
    with pytest.raises(TwofoldError, match="give that model"):
        Index(tmp_path / "index").search("one")


def cut_short(ranker: Ranker, at: str, patch: pytest.MonkeyPatch) -> None:
    """Ten texts at a time are read, until one of them is `at`."""
    real = ranker.embed_candidates

    def embed_candidates(some: Sequence[str], report: Any = None) -> Any:
        if at in some:
            raise KeyboardInterrupt
        return real(some, report)

    patch.setattr(ranker, "embed_candidates", embed_candidates)


def test_a_build_cut_short_goes_on_only_with_the_same_texts(
    tmp_path: Path, ranker: Ranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.index.incoming.CHUNK_SIZE", 10)
    folder = tmp_path / "index"
    with monkeypatch.context() as patch:
        cut_short(ranker, TEXTS[25], patch)
        with pytest.raises(KeyboardInterrupt):
            Index.build(folder, ranker, TEXTS[:40])
    for texts, stored in ((["one", "two"], "float32"), (TEXTS[:40], "float16")):
        with pytest.raises(TwofoldError, match="was begun with other texts or settings"):
            Index.build(folder, ranker, texts, stored)
    check(Index.build(folder, ranker, TEXTS[:40]), dict(enumerate((text, {}) for text in TEXTS[:40])), ranker)


def test_plain_texts_whose_addition_was_cut_short_are_not_added_twice(
    tmp_path: Path, ranker: Ranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.index.incoming.CHUNK_SIZE", 10)
    index = Index.build(tmp_path / "index", ranker, TEXTS[:5])
    with monkeypatch.context() as patch:
        cut_short(ranker, TEXTS[30], patch)
        with pytest.raises(KeyboardInterrupt):
            index.add(TEXTS[5:40])
    assert 5 < len(index) < 40
    index.add(TEXTS[5:40])
    content: Content = {id: (text, {}) for id, text in enumerate(TEXTS[:40])}
    check(index, content, ranker)
    index.add(TEXTS[5:40])  # done once, the same again is new
    assert len(index) == 75


def test_a_bare_text_is_not_a_list_of_ids_or_contexts(tmp_path: Path, ranker: Ranker) -> None:
    index = Index.build(tmp_path / "index", ranker, [{"id": one, "text": one} for one in "123"])
    for call in (
        lambda: index.remove("12"),
        lambda: index.search("one", exclude="12"),
        lambda: index.search_many("text"),
        lambda: index.given_ids("12"),
    ):
        with pytest.raises(TwofoldError, match="one text, where a list is wanted; put it in brackets"):
            call()
    for wrong in (None, 7, {"1": 2}):
        with pytest.raises(TwofoldError, match=r"ids: .*, where a list is wanted"):
            index.remove(wrong)  # type: ignore[arg-type]
    assert len(index) == 3


def test_texts_of_a_list_are_numbered_from_0_and_on(tmp_path: Path, ranker: Ranker) -> None:
    index = Index.build(tmp_path / "index", ranker, iter(TEXTS[:3]))
    index.add([*TEXTS[3:4], "", TEXTS[5]])
    assert content_of(index) == {id: (TEXTS[id], {}) for id in (0, 1, 2, 3, 5)}
    other = Index.build(tmp_path / "other", ranker, [{"id": "a", "text": "one"}])
    other.add(["two"])
    assert {hit.id for hit in other.search("one")} == {"a", 0}


def test_rows_of_a_file_without_ids_are_named_by_their_lines(tmp_path: Path, ranker: Ranker) -> None:
    table, lines = tmp_path / "a.csv", tmp_path / "a.jsonl"
    table.write_text('text,n\n"one\ntwo",1\n\nthree,2\n')
    lines.write_text('\n{"text": "one"}\n\n{"text": "two"}\n')
    index = Index.build(tmp_path / "index", ranker, table)
    assert {hit.id: hit.text for hit in index.search("one")} == {2: "one\ntwo", 5: "three"}
    index.add(lines)
    assert {hit.id: hit.text for hit in index.search("one")} == {2: "one\ntwo", 5: "three", 7: "one", 9: "two"}


def test_an_index_is_looked_up_by_id_like_a_mapping(ranker: Ranker, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "a", "text": "one", "lang": "en"},
        {"id": 7, "text": "seven"},
        {"id": "b", "text": "two"},
    ]
    with Index.build(tmp_path / "index", ranker, rows) as index:
        assert list(index) == ["a", 7, "b"]
        assert "a" in index
        assert 7 in index
        assert "7" not in index
        first = index.get("a")
        assert first is not None
        assert (first.id, first.text, first.fields) == ("a", "one", {"lang": "en"})
        assert index.get("nobody") is None
        index.remove(["a"])
        index.add([{"id": "c", "text": "three"}])
        assert (list(index), len(index), "a" in index) == ([7, "b", "c"], 3, False)
        assert repr(index) == f"Index('{tmp_path / 'index'}', 3 candidates)"
