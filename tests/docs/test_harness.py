"""A block that does not run fails with its place, so that pages cannot go wrong unseen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks_of, commands_of, words_of
from tests.docs.mentions import can_run, check, mentions_in
from tests.docs.places import Place
from tests.docs.running import Failed, Page

PLACE = "docs/parts.md"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Page:
    monkeypatch.chdir(tmp_path)
    return Page(Place(tmp_path, tmp_path, tmp_path), monkeypatch, lambda words: False)


def block(language: str, text: str, title: str = "") -> Block:
    return Block(PLACE, 7, language, title, text)


@pytest.mark.parametrize(
    ("language", "text", "said"),
    [
        (
            "",
            "twofold predict no-such-folder text\n",
            f"{PLACE}:7: twofold predict no-such-folder text: error: no-such",
        ),
        ("", "twofold list --no-such-option\n", "No such option"),
        ("sh", "rm -r runs\n", "neither run nor listed: rm -r runs"),
        ("python", "first = 1\nsecond = missing\n", f"{PLACE}:9: NameError: name 'missing' is not defined"),
        ("yaml", "encoder: {kind: rnn, widht: 3}\n", "widht"),
        (
            "yaml",
            "data: {train: a.tsv}\nencoder: {kind: rnn}\ndecoder: {kind: unet}\n",
            f"{PLACE}:7: SeveralErrors: recipe.output",
        ),
        ("yaml", "# recipes/translate.yaml: ours\nsource: de\n", "not recipes/translate.yaml"),
        ("toml", "a = 1\n", "a block of 'toml'; known: bash, json, python, sh, shell, text, yaml"),
    ],
)
def test_a_block_that_does_not_run_is_named(language: str, text: str, said: str, page: Page) -> None:
    with pytest.raises(Failed) as failure:
        page.run(block(language, text))
    assert said in str(failure.value)
    assert page.counts.run == 0


def test_names_that_another_library_does_not_have_are_seen(page: Page) -> None:
    page.run(block("python", "from json import loads\n", title="json"))
    with pytest.raises(Failed, match="json has no dumpss"):
        page.run(block("python", "from json import dumpss\n", title="json"))


def test_blocks_are_found_with_their_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.docs.blocks.ROOT", tmp_path)
    path = tmp_path / "page.md"
    path.write_text('text\n\n```python title="other"\nlist()\n```\n\n- item\n\n  ```\n  make demo\n  ```\n', "utf-8")
    first, second = blocks_of(path)
    assert (first.place, first.language, first.title, first.text) == ("page.md:3", "python", "other", "list()\n")
    assert (second.place, second.language, second.text) == ("page.md:9", "", "make demo\n")


def test_comments_are_no_words_and_joined_lines_are_one_command() -> None:
    text = "# first\ntwofold list \\\n  --json   # all\n\ntwofold search a 'b # c' > out.txt\n"
    first, second = commands_of(block("", text))
    assert words_of(first) == ["twofold", "list", "--json"]
    assert words_of(second) == ["twofold", "search", "a", "b # c", ">", "out.txt"]


def test_commands_in_sentences_are_told_from_mentions() -> None:
    text = "Run `twofold list --json`, or `twofold train RECIPE --out DIR`.\n\n```\n`twofold demo`\n```\n"
    assert mentions_in(text) == ["twofold list --json", "twofold train RECIPE --out DIR"]
    assert [can_run(mention) for mention in mentions_in(text)] == [True, False]


@pytest.mark.parametrize("mention", ["twofold lsit", "twofold list --jsn", "make all-of-it", "pip install '.[none]'"])
def test_a_mention_of_what_does_not_exist_fails(mention: str) -> None:
    with pytest.raises(AssertionError):
        check(mention)
