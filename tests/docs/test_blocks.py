"""Every command, every block of Python and every recipe of the pages runs as it stands."""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from tests.docs.blocks import PAGES, blocks_of
from tests.docs.corpora import write_corpora
from tests.docs.mentions import can_run, check, check_extras, mentions_in, names_in, parses
from tests.docs.places import Place, backbone
from tests.docs.running import Failed, Page
from tests.docs.shortened import BACKBONE, shorten
from tests.models.standing_in import write_named_models

Check = Callable[[list[str]], None]


def extras_exist(words: list[str]) -> None:
    check_extras(words[-1])


def command_parses(words: list[str]) -> None:
    parses(words[1:])


STAND_INS = ("mlflow", "wandb")
"""Packages that blocks may import without their being installed; what stands in for them records calls."""
NOT_RUN: dict[str, tuple[str, Check]] = {
    "pip install": ("installs; its extras must be in pyproject.toml", extras_exist),
    "twofold import uncased_L-12_H-768_A-12": ("needs TensorFlow: tests/convert/test_tensorflow.py", command_parses),
    "twofold import my_checkpoint": ("needs TensorFlow: tests/convert/test_tensorflow.py", command_parses),
    "twofold import models/124M": ("needs TensorFlow: tests/convert/test_tensorflow.py", command_parses),
    "twofold export runs/translate": ("needs CTranslate2", command_parses),
    "twofold demo --serve": ("runs until it is ended: tests/serve/test_demo.py", command_parses),
    "twofold serve": ("runs until it is ended: tests/serve", command_parses),
}
"""Beginnings of the commands that no test runs, why, and what is checked instead."""


def test_every_listed_command_occurs() -> None:
    lines = {line.strip() for path in PAGES for line in path.read_text(encoding="utf-8").splitlines()}
    unused = [beginning for beginning in NOT_RUN if not any(line.startswith(beginning) for line in lines)]
    assert not unused


def listed(words: list[str]) -> bool:
    """Returns True for a command that is listed, after its check."""
    for beginning, (_, check_words) in NOT_RUN.items():
        if words[: len(beginning.split())] == beginning.split():
            check_words(words)
            return True
    return False


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpora(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of runs that several pages use, and of the backbone that they start from."""
    folder = tmp_path_factory.mktemp("trained")
    backbone(folder / "backbone")
    write_named_models(folder / "cache")
    return folder


@pytest.fixture
def page(
    tmp_path: Path, trained: Path, data: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> Iterator[Page]:
    folder = tmp_path / "page"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TWOFOLD_DATA", str(data))
    monkeypatch.setenv(BACKBONE, str(trained / "backbone"))
    monkeypatch.setenv("TWOFOLD_CACHE", str(trained / "cache"))
    for name in STAND_INS:
        monkeypatch.setitem(sys.modules, name, MagicMock())
    shorten(monkeypatch)
    known = set(sys.modules)
    yield Page(Place(folder, trained, data), monkeypatch, listed)
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(folder)):
            del sys.modules[name]


@pytest.mark.parametrize("path", PAGES, ids=[path.name for path in PAGES])
def test_blocks_of_the_page_run(path: Path, page: Page) -> None:
    failures = []
    blocks = blocks_of(path)
    page.write_files(blocks)
    for block in blocks:
        try:
            page.run(block)
        except Failed as failure:
            failures.append(str(failure))
    counts = page.counts
    told = f"{counts.run} run, {counts.shown} show output or other libraries, {len(counts.listed)} commands listed"
    print(f"{path.name}: {counts.blocks} blocks: {told}")
    assert not failures, "\n".join(["", *failures])
    assert counts.run + counts.shown == counts.blocks, "a block holds nothing but listed commands"


@pytest.mark.parametrize("path", PAGES, ids=[path.name for path in PAGES])
def test_commands_in_sentences_are_known_and_run(path: Path, page: Page) -> None:
    for mention in mentions_in(path.read_text(encoding="utf-8")):
        check(mention)
        if can_run(mention):
            page.run_mention(mention)


@pytest.mark.parametrize("path", PAGES, ids=[path.name for path in PAGES])
def test_names_in_sentences_exist(path: Path) -> None:
    for name in names_in(path.read_text(encoding="utf-8")):
        assert pkgutil.resolve_name(name) is not None
