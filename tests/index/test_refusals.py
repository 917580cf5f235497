"""Refusals of `twofold index` and `twofold search`, in one line and without a trace."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.commands import answer, refusal
from tests.index.commands import build, done, ids, save_models
from twofold.data.tokenizer import TextTokenizer


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, tokenizer: TextTokenizer) -> Path:
    return save_models(tmp_path_factory.mktemp("models"), tokenizer)


@pytest.fixture(scope="module")
def built(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index that no test changes."""
    return build(tmp_path_factory.mktemp("built"), models)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", "", ": holds no "),
        ("a.txt", "\n  \n", ": holds no rows"),
        ("none.txt", None, ": cannot be read"),
        ("a.jsonl", '{"text": "a"}\n{"id": 2}\n', ":2: no 'text' here"),
        ("a.jsonl", '{"text": "a", "id": 1}\n{"text": "b", "id": 1}\n', ":2: the id 1 is that of"),
        ("a.jsonl", '{"text": "a"}\n{"text": "b", "id": 1}\n', ":2: the id 1 is that of"),
        ("a.tsv", "id\ttext\nx\ta\nx\tb\n", ":3: the id 'x' is that of"),
        ("a.jsonl", '{"text": "a", "id": 1.5}\n', ":1: the id 1.5 is neither a text nor a whole number"),
        ("a.jsonl", '{"text": "a", "id": true}\n', ":1: the id True is neither a text nor a whole number"),
        ("a.jsonl", '{"text": "a", "id": [1]}\n', ":1: the id [1] is neither a text nor a whole number"),
        ("a.jsonl", f'{{"text": "a", "id": {10**30}}}\n', ":1: the id 1000"),
        ("a.jsonl", '{"text": "a", "id": "\\ud83d"}\n', ":1: the id"),
        ("a.jsonl", '{"text": "a", "note": "\\ud83d"}\n', ":1: "),
        ("a.jsonl", '{"text": "a", "\\ud83d": 1}\n', ":1: "),
    ],
)
def test_texts_that_cannot_be_kept_are_named_and_leave_no_index(
    models: Path, tmp_path: Path, name: str, content: str | None, said: str
) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_text(content)
    build: list[str | Path] = ["index", "build", tmp_path / "index", "--model", models / "bi", "--texts", file]
    assert refusal(*build).startswith(f"{file}{said}")
    file.unlink(missing_ok=True)
    file.with_suffix(".txt").write_text("one\n")
    done(*build[:-1], file.with_suffix(".txt"))  # put right, it is built at once


def test_an_index_is_built_only_where_nothing_else_is(built: Path, models: Path, tmp_path: Path) -> None:
    rows = built.parent / "rows.jsonl"
    (tmp_path / "x").touch()
    before = answer("search", built, "seven")["hits"]
    for place, said in {
        built: "there is an index already",
        models: "holds something that is no index",
        tmp_path / "x": "",
        tmp_path / "x" / "y": "",
        Path("x" * 5000): "",
    }.items():
        told = refusal("index", "build", place, "--model", models / "poly", "--texts", rows)
        assert told.startswith(f"{place}"[:300])  # the middle of a long line is left out
        assert said in told
    assert answer("search", built, "seven")["hits"] == before


@pytest.mark.parametrize(
    "command", ["search INDEX one", "index info INDEX", "index compact INDEX", "index remove INDEX 1"]
)
def test_a_place_without_an_index_is_one_line(models: Path, tmp_path: Path, command: str) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "none", tmp_path / "file", tmp_path / "file" / "below", models, Path("x" * 5000)):
        said = refusal(*(place if word == "INDEX" else word for word in command.split()))
        assert said.startswith(f"{place}"[:300])


def test_models_that_will_not_do_are_named(built: Path, models: Path, tmp_path: Path) -> None:
    rows, new = built.parent / "rows.jsonl", tmp_path / "new"
    assert "cross-encoder" in refusal("index", "build", new, "--model", models / "cross", "--texts", rows)
    assert "does not rank" in refusal("index", "build", new, "--model", models / "text", "--texts", rows)
    assert refusal("index", "build", new, "--model", models / "no", "--texts", rows).startswith(f"{models / 'no'}: ")
    assert not new.exists()
    for other in ("bi", "cross", "heads", "late"):
        assert "built with another model" in refusal("search", built, "one", "--model", models / other)
        assert "built with another model" in refusal("index", "add", built, "--texts", rows, "--model", models / other)


def test_a_model_folder_that_holds_another_kind_of_ranker_now_is_named(
    built: Path, models: Path, tmp_path: Path
) -> None:
    rows = built.parent / "rows.jsonl"
    for kind, other in (("late", "bi"), ("bi", "late")):
        folder, index = tmp_path / kind, tmp_path / f"{kind}.index"
        shutil.copytree(models / kind, folder)
        done("index", "build", index, "--model", folder, "--texts", rows)
        shutil.rmtree(folder)
        shutil.copytree(models / other, folder)
        commands: list[list[str | Path]] = [["search", index, "one"], ["index", "add", index, "--texts", rows]]
        for command in commands:
            said = refusal(*command)
            assert said.startswith(f"{index}: built with another model ({folder})")
            assert f"the decoder is {other}, that of the index {kind}" in said
            assert f"the decoder is {other}" in refusal(*command, "--model", models / other)


def test_a_model_that_was_moved_is_given_anew(models: Path, tmp_path: Path) -> None:
    shutil.copytree(models / "bi", tmp_path / "bi")
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    done("index", "build", tmp_path / "index", "--model", tmp_path / "bi", "--texts", tmp_path / "a.txt")
    (tmp_path / "bi").rename(tmp_path / "moved")
    assert refusal("search", tmp_path / "index", "one").startswith(f"{tmp_path / 'bi'}: ")
    assert len(ids(answer("search", tmp_path / "index", "one", "--model", tmp_path / "moved"))) == 2


@pytest.mark.parametrize("where", ["color = 1", "third = 1; DROP TABLE candidates", "", "third"])
def test_a_filter_that_cannot_be_used_is_one_line(built: Path, where: str) -> None:
    assert refusal("search", built, "one", "--where", where).startswith("filter: ")


@pytest.mark.parametrize("context", ["", " \t", "\udcff"])
def test_a_context_without_words_is_one_line(built: Path, context: str) -> None:
    assert refusal("search", built, context).startswith("the context: ")


@pytest.mark.parametrize(
    "wrong",
    [
        *(["search", "INDEX", "one", "-k", number] for number in ("0", "-1", "some")),
        *(["search", "INDEX", "one", "--then", stage] for stage in ("model", ":5", "model:0", "")),
        ["search", "INDEX"],
        ["index", "build", "INDEX"],
        ["index", "build", "INDEX", "--model", "x", "--texts", "y", "--stored", "int4"],
        ["index", "add", "INDEX"],
        ["index", "remove", "INDEX"],
        ["index", "info"],
        ["index", "info", "INDEX", "--nonsense"],
        ["index", "nonsense"],
    ],
)
def test_wrong_usage_ends_with_status_2(built: Path, wrong: list[str]) -> None:
    assert refusal(*(str(built) if one == "INDEX" else one for one in wrong), status=2)
