"""README.md and README.ko.md say the same: sections, tables, commands and links; both name every page of docs/."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, SHELL, blocks_of, words_of
from tests.docs.mentions import mentions_in, prose_of

ENGLISH, KOREAN = ROOT / "README.md", ROOT / "README.ko.md"


def uncommented(path: Path) -> list[str]:
    """Blocks of a page without comments and blank lines."""
    texts = []
    for block in blocks_of(path):
        lines = [line for line in block.text.splitlines() if line.strip() and not line.startswith("#")]
        if block.language in SHELL:
            lines = [" ".join(words_of(line)) for line in lines]
        texts.append("\n".join(re.sub(r"\s+#.*", "", line) for line in lines))
    return texts


def headings(path: Path) -> list[str]:
    return re.findall(r"^(#+) ", prose_of(path.read_text(encoding="utf-8")), re.M)


def tables(path: Path) -> list[int]:
    """Number of cells of each row of a table, in order."""
    return [line.count("|") for line in prose_of(path.read_text(encoding="utf-8")).splitlines() if line[:1] == "|"]


def links(path: Path) -> set[str]:
    return set(re.findall(r"\]\((docs/[^)]+)\)", path.read_text(encoding="utf-8")))


def numbers(path: Path) -> list[list[str]]:
    """Decimal numbers of each row of a table, in order."""
    rows = [line for line in path.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    return [sorted(re.findall(r"\d*\.\d+", row)) for row in rows]


def test_both_readmes_have_the_same_blocks() -> None:
    assert uncommented(KOREAN) == uncommented(ENGLISH)


def test_both_readmes_have_the_same_sections_tables_links_and_commands_in_sentences() -> None:
    assert headings(KOREAN) == headings(ENGLISH)
    assert tables(KOREAN) == tables(ENGLISH)
    assert numbers(KOREAN) == numbers(ENGLISH)
    assert links(KOREAN) == links(ENGLISH)
    texts = [path.read_text(encoding="utf-8") for path in (KOREAN, ENGLISH)]
    korean, english = (sorted(mentions_in(text)) for text in texts)
    assert korean == english


@pytest.mark.parametrize("readme", [ENGLISH, KOREAN], ids=lambda path: path.name)
def test_a_readme_lists_every_page(readme: Path) -> None:
    listed = set(re.findall(r"^- \[(docs/\w[\w-]*\.md)\]\(\1\): ", readme.read_text(encoding="utf-8"), re.M))
    assert listed == {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
