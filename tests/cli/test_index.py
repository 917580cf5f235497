"""`twofold index` and `twofold search` as a user meets them: what they print, read and change."""

from __future__ import annotations

import gzip
import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.commands import answer, refusal, run
from tests.conftest import write_jsonl
from tests.index.commands import NAMES, ROWS, TEXTS, build, done, ids, save_models
from twofold.data.tokenizer import TextTokenizer
from twofold.model import Ranker


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, tokenizer: TextTokenizer) -> Path:
    return save_models(tmp_path_factory.mktemp("models"), tokenizer)


@pytest.fixture(scope="module")
def built(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index that no test changes."""
    return build(tmp_path_factory.mktemp("built"), models)


@pytest.fixture
def copy(built: Path, tmp_path: Path) -> Path:
    """An index to change."""
    return Path(shutil.copytree(built, tmp_path / "index"))


def test_one_json_object_tells_the_best_candidates(built: Path, models: Path) -> None:
    content = answer("search", built, "one", "seven hundred", "-k", "4")
    assert list(content) == ["context", "hits", "exact", "milliseconds"]
    assert content["context"] == ["one", "seven hundred"]
    assert content["exact"] is True
    assert content["milliseconds"] > 0
    right = Ranker.from_pretrained(models / "poly").rank(["one", "seven hundred"], TEXTS, 4)
    assert ids(content) == [NAMES[hit.text] for hit in right]
    assert [hit["text"] for hit in content["hits"]] == [hit.text for hit in right]
    assert [hit["score"] for hit in content["hits"]] == pytest.approx([hit.score for hit in right], abs=1e-5)
    fast = answer("search", built, "one", "seven hundred", "-k", "4", "--mode", "fast")
    assert fast["exact"] is True  # of so few, all are scored
    assert fast["hits"] == content["hits"]
    for hit in content["hits"]:
        assert list(hit) == ["text", "score", "id", "fields"]
        assert hit["fields"] == {"third": TEXTS.index(hit["text"]) % 3}


def test_without_json_each_hit_is_a_line(built: Path) -> None:
    hits = answer("search", built, "-k", "3", "삼백")["hits"]
    shown = run("search", built, "-k", "3", "삼백")
    assert shown.stdout.splitlines() == [f"{hit['score']:8.3f}  {hit['id']:>8}  {hit['text']}" for hit in hits]
    assert shown.stderr == ""


def test_info_tells_counts_sizes_fingerprint_and_health(built: Path, models: Path) -> None:
    content = answer("index", "info", built)
    assert content["candidates"] == len(ROWS)
    assert content["model"] == str(models / "poly")
    assert content["fingerprint"] == Ranker.from_pretrained(models / "poly").fingerprint()
    assert content["engine"]
    assert content["format"] == 1
    assert content["fields"] == ["third"]
    assert content["health"] == "good"
    assert content["bytes"]["shards"] > len(ROWS) * 16 * 4
    assert answer("index", "info", built, "--check") == content
    shown = run("index", "info", built)
    assert {line.split()[0] for line in shown.stdout.splitlines()} == set(content)
    assert shown.stderr == ""


def test_filters_and_exclusions_leave_the_best_of_the_rest(built: Path) -> None:
    whole = answer("search", built, "seven", "-k", "100")
    thirds = [hit["id"] for hit in whole["hits"] if hit["fields"]["third"] == 1]
    assert ids(answer("search", built, "seven", "--where", "third = 1", "-k", "100")) == thirds
    first, second = ids(whole)[:2]
    rest = answer("search", built, "seven", "--exclude", str(first), "--exclude", str(second), "--exclude", "nobody")
    assert ids(rest) == ids(whole)[2:12]
    assert ids(answer("search", built, "seven", "--where", "third > 5")) == []


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", "one\n\n  \ntwo\nthree", {1: "one", 4: "two", 5: "three"}),
        ("a.jsonl", '{"text": "one", "id": "a"}\n{"text": "two", "id": 7}\n', {"a": "one", 7: "two"}),
        ("c.jsonl", '{"text": "one", "title": "A", "id": 0}\n', {0: "A one"}),
        ("a.tsv", 'id\ttext\tlang\nx\t"one"\ten\ny\ttwo\tko\n', {"x": '"one"', "y": "two"}),
        ("a.csv", 'text,more\n"one, two",3\n', {2: "one, two"}),
    ],
)
def test_texts_come_from_lines_and_from_tables(
    models: Path, tmp_path: Path, name: str, content: str, expected: dict[Any, str], packed: bool
) -> None:
    file = tmp_path / (f"{name}.gz" if packed else name)
    file.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    done("index", "build", tmp_path / "index", "--model", models / "bi", "--texts", file, "--stored", "float16")
    hits = answer("search", tmp_path / "index", "one")["hits"]
    assert {hit["id"]: hit["text"] for hit in hits} == expected
    assert len(hits) == len(expected)
    if name == "a.tsv":
        assert ids(answer("search", tmp_path / "index", "one", "--where", 'lang = "ko"')) == ["y"]


def test_candidates_are_added_updated_and_removed_by_id(copy: Path, tmp_path: Path) -> None:
    more = write_jsonl(tmp_path / "more.jsonl", [{"id": "new", "text": "one"}, {"id": 1000, "text": "two"}])
    assert done("index", "add", copy, "--texts", more).startswith("2 added, ")
    assert "is there already; use `twofold index update`" in refusal("index", "add", copy, "--texts", more)
    other = write_jsonl(tmp_path / "other.jsonl", [{"id": "new", "text": "one"}, {"id": 1000, "text": "seven"}])
    assert done("index", "update", copy, "--texts", other).startswith("1 changed, ")
    hits = {hit["id"]: hit["text"] for hit in answer("search", copy, "one", "-k", "100")["hits"]}
    assert hits == {**{row["id"]: row["text"] for row in ROWS}, "new": "one", 1000: "seven"}
    assert done("index", "remove", copy, "n1", "1000", "0").startswith(f"3 removed, {len(ROWS) - 1} candidates")
    assert {"n1", 1000, 0}.isdisjoint(ids(answer("search", copy, "one", "-k", "100")))
    assert done("index", "compact", copy) == ""
    assert answer("index", "info", copy)["removed"] == 0
    assert len(ids(answer("search", copy, "one", "-k", "100"))) == len(ROWS) - 1
    (tmp_path / "lines.txt").write_text("eleven\n")
    done("index", "add", copy, "--texts", tmp_path / "lines.txt")
    numbers = [row["id"] for row in ROWS if isinstance(row["id"], int)]
    assert ids(answer("search", copy, "eleven", "-k", "1")) == [max(numbers) + 1]


@pytest.mark.parametrize("id", ["nobody", "99", "-5", "9" * 30, "9" * 5000, "\udcff", "", "n1 "])
def test_an_id_that_is_not_there_is_one_line_and_none_is_removed(copy: Path, id: str) -> None:
    said = refusal("index", "remove", copy, "n1", "--", id)
    assert said.startswith(f"{copy}: there is no candidate")
    assert said.endswith("; nothing was removed")
    assert answer("index", "info", copy)["candidates"] == len(ROWS)
    assert len(ids(answer("search", copy, "one", "--exclude", id, "-k", "100"))) == len(ROWS)


def test_an_id_below_zero_is_removed(models: Path, tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "a.jsonl", [{"text": "one", "id": -5}, {"text": "two", "id": 5}])
    done("index", "build", tmp_path / "index", "--model", models / "bi", "--texts", file)
    done("index", "remove", tmp_path / "index", "--", "-5")
    assert ids(answer("search", tmp_path / "index", "one")) == [5]


def test_a_cascade_puts_the_best_of_the_index_in_the_order_of_another_model(built: Path, models: Path) -> None:
    few = answer("search", built, "seven hundred", "-k", "5")["hits"]
    right = Ranker.from_pretrained(models / "cross").rank("seven hundred", [hit["text"] for hit in few], 3)
    content = answer("search", built, "seven hundred", "-k", "3", "--then", f"{models / 'cross'}:5")
    assert [hit["text"] for hit in content["hits"]] == [hit.text for hit in right]
    assert [hit["score"] for hit in content["hits"]] == pytest.approx([hit.score for hit in right], abs=1e-5)
    assert ids(content) == [NAMES[hit["text"]] for hit in content["hits"]]
    assert all(hit["fields"] == {"third": TEXTS.index(hit["text"]) % 3} for hit in content["hits"])
    assert content["exact"] is False
    whole = answer("search", built, "seven hundred", "--then", f"{models / 'cross'}:1000")
    assert whole["exact"] is True


def test_nothing_found_is_an_empty_answer_also_in_a_cascade(built: Path, models: Path) -> None:
    for further in ([], ["--then", f"{models / 'cross'}:5"]):
        assert ids(answer("search", built, "one", "--where", "third > 5", *further)) == []


@pytest.mark.parametrize("kind", ["bi", "poly", "heads"])
def test_an_index_emptied_of_all_answers_nothing_and_takes_more(models: Path, tmp_path: Path, kind: str) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    done("index", "build", tmp_path / "index", "--model", models / kind, "--texts", tmp_path / "a.txt")
    done("index", "remove", tmp_path / "index", "1")
    assert ids(answer("search", tmp_path / "index", "one")) == []
    assert run("search", tmp_path / "index", "one").stdout == ""
    done("index", "compact", tmp_path / "index")
    assert ids(answer("search", tmp_path / "index", "one")) == []
    assert answer("index", "info", tmp_path / "index", "--check")["candidates"] == 0
    done("index", "add", tmp_path / "index", "--texts", tmp_path / "a.txt")
    assert len(ids(answer("search", tmp_path / "index", "one", "-k", "5"))) == 1


@pytest.mark.parametrize(("k", "shown"), [("1", 1), ("7", 7), ("1000", len(TEXTS)), ("9" * 30, len(TEXTS))])
def test_k_says_how_many_and_more_than_all_is_all(built: Path, k: str, shown: int) -> None:
    assert len(ids(answer("search", built, "seven", "-k", k))) == shown


def test_a_context_longer_than_the_limit_keeps_its_end(built: Path) -> None:
    turns = [f"one {number}" for number in range(3000)]
    assert answer("search", built, *turns)["hits"] == answer("search", built, *turns[-40:])["hits"]
    assert len(ids(answer("search", built, "one " * 100_000))) == 10


@pytest.mark.parametrize("command", ["add", "update"])
def test_an_index_of_a_model_with_code_of_its_own_can_be_changed(models: Path, tmp_path: Path, command: str) -> None:
    shutil.copytree(models / "bi", tmp_path / "own")
    config = tmp_path / "own" / "config.json"
    about = json.loads(config.read_text().replace('"kind": "transformer"', '"kind": "twofold.encoders.transformer"'))
    about.pop("checksum")
    config.write_text(json.dumps(about))
    texts = write_jsonl(tmp_path / "texts.jsonl", [{"id": "new", "text": "one"}])
    index, model = tmp_path / "index", tmp_path / "own"
    done("index", "build", index, "--model", model, "--texts", write_jsonl(tmp_path / "a.jsonl", ROWS), "--allow-code")
    said = refusal("index", command, index, "--texts", texts)
    assert said.endswith("(twofold.encoders.transformer); allow it with --allow-code if you trust it")
    assert f"{len(ROWS) + 1} candidates" in done("index", command, index, "--texts", texts, "--allow-code")


def test_an_index_takes_texts_from_standard_input(models: Path, tmp_path: Path) -> None:
    said = run("index", "build", tmp_path / "index", "--model", models / "bi", "--texts", "-", stdin="one\ntwo\n")
    assert said.exit_code == 0, said.stderr
    rows = '{"text": "three", "id": "c", "lang": "en"}\n'
    assert run("index", "add", tmp_path / "index", "--texts", "-", stdin=rows).exit_code == 0
    assert {hit["id"]: hit["text"] for hit in answer("search", tmp_path / "index", "one")["hits"]} == {
        1: "one",
        2: "two",
        "c": "three",
    }
    assert ids(answer("search", tmp_path / "index", "one", "--where", "lang == 'en'")) == ["c"]


def test_a_filter_that_no_type_can_pass_warns_on_standard_error(built: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = run("search", built, "one", "--where", "third = '1'", "--json")
    assert (result.exit_code, json.loads(result.stdout)["hits"]) == (0, [])
    assert result.stderr == (
        "warning: filter: third = \"1\" is never true, because the values of 'third' are numbers; "
        "write numbers without quotes\n"
    )


def test_long_documents_are_found_by_their_best_passages(models: Path, tmp_path: Path) -> None:
    documents = [{"id": f"d{number}", "text": ". ".join(TEXTS[number : number + 12])} for number in range(10)]
    rows = write_jsonl(tmp_path / "rows.jsonl", documents)
    build: list[str | Path] = ["index", "build", tmp_path / "index", "--model", models / "poly", "--texts", rows]
    done(*build, "--split", "12:4")
    content = answer("search", tmp_path / "index", "seven hundred", "-k", "4")
    assert len(set(ids(content))) == 4
    assert content["exact"] is True
    for hit in content["hits"]:
        [text] = [document["text"] for document in documents if document["id"] == hit["id"]]
        assert list(hit) == ["text", "score", "id", "passage"]
        assert list(hit["passage"]) == ["number", "start", "stop"]
        assert hit["text"] == text[hit["passage"]["start"] : hit["passage"]["stop"]] != text
    shown = run("search", tmp_path / "index", "seven hundred", "-k", "1").stdout
    assert shown.split(maxsplit=2)[2].strip() == content["hits"][0]["text"]
    done("index", "remove", tmp_path / "index", ids(content)[0])
    assert ids(answer("search", tmp_path / "index", "seven hundred", "-k", "3")) == ids(content)[1:]
    info = answer("index", "info", tmp_path / "index", "--check")
    assert (info["documents"], info["split"], info["health"]) == (9, "12:4", "good")
    assert info["passages"] > 18


@pytest.mark.parametrize(
    ("split", "said"),
    [
        ("100", "split: '100' is not TOKENS:OVERLAP; give two whole numbers, such as 100:20"),
        ("20:20", "split: passages of 20 tokens cannot share 20; share fewer"),
        ("900:20", "split: passages of 900 tokens are longer than the model reads; give at most 19"),
    ],
)
def test_a_split_that_cannot_be_is_refused(models: Path, tmp_path: Path, split: str, said: str) -> None:
    rows = write_jsonl(tmp_path / "rows.jsonl", ROWS)
    build: list[str | Path] = ["index", "build", tmp_path / "index", "--model", models / "bi", "--texts", rows]
    assert refusal(*build, "--split", split).strip() == said
    assert not (tmp_path / "index").exists()
