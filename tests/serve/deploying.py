"""Reads a unit of systemd and a Dockerfile as those programs do, as far as ours use them."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
UNIT, DOCKERFILE = ROOT / "deploy" / "twofold.service", ROOT / "deploy" / "Dockerfile"


@dataclass(frozen=True)
class Instruction:
    """Instruction of a Dockerfile."""

    name: str
    rest: str

    @property
    def words(self) -> list[str]:
        """Words of the instruction: a JSON list, or as a shell splits them."""
        found: list[str] = json.loads(self.rest) if self.rest.startswith("[") else shlex.split(self.rest)
        return found


def instructions(text: str) -> list[Instruction]:
    """Instructions of a Dockerfile in order, without comments."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    parts = [line.strip().partition(" ") for line in lines.splitlines() if line.strip()]
    return [Instruction(name, rest.strip()) for name, _, rest in parts]


def settings_of(unit: str) -> dict[str, list[str]]:
    """Settings of a unit by name; one that stands several times has several values."""
    found: dict[str, list[str]] = {}
    for line in unit.splitlines():
        if match := re.fullmatch(r"(\w+)=(.*)", line):
            found.setdefault(match[1], []).append(match[2])
    return found


def environment_of(unit: str) -> dict[str, str]:
    """Variables that a unit sets."""
    return dict(pair.split("=", 1) for pair in settings_of(unit)["Environment"])


def started(command: str, variables: dict[str, str]) -> list[str]:
    """Words of a command of a unit: a variable that stands alone becomes as many words as it holds."""
    words: list[str] = []
    for word in shlex.split(command):
        words += variables[word[1:]].split() if word.startswith("$") else [word]
    return words
