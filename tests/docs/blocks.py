"""Fenced blocks of the pages, and the commands in them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "README.ko.md", *sorted((ROOT / "docs").glob("*.md"))]
SHELL = ("", "sh", "bash", "shell")
"""Languages of commands; a block without a language holds commands too."""
SHOWN = ("text", "json")
"""Languages of what a command prints; these blocks are not run."""
SEPARATORS = ("|", ">", "&&", ";")


@dataclass(frozen=True)
class Block:
    """Text between two fences."""

    page: str
    line: int
    """Line of the first fence, from 1."""
    language: str
    title: str
    """Library whose lines the block shows, if they are not ours: ```python title="..."."""
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        """File name in the first line, if the block shows a file: `# hinge.py: ...`."""
        named = re.match(r"# ([\w/]+\.(?:py|yaml))\b", self.text)
        return named[1] if named else None


def blocks_of(page: Path) -> list[Block]:
    """All blocks of a page in order."""
    name = page.relative_to(ROOT).as_posix()
    blocks: list[Block] = []
    opened: tuple[int, str, str] | None = None
    lines: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        fence = re.match(r"(\s*)```(.*)$", line)
        if opened is None and fence:
            opened, lines = (number, fence[2], fence[1]), []
        elif opened is not None and fence and not fence[2]:
            language, _, rest = opened[1].partition(" ")
            title = re.search(r'title="(.*?)"', rest)
            blocks.append(Block(name, opened[0], language, title[1] if title else "", "\n".join(lines) + "\n"))
            opened = None
        elif opened is not None:
            lines.append(line.removeprefix(opened[2]))
    assert opened is None, f"{name}:{opened and opened[0]}: this block does not end"
    return blocks


def commands_of(block: Block) -> list[str]:
    """Lines of a block of commands without blank lines and comments; a backslash joins two lines."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def words_of(command: str) -> list[str]:
    """Words of a command without its comment; pipes and redirections are words of their own."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|>;&")
    lexer.whitespace_split = True
    return list(lexer)
