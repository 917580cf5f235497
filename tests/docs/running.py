"""Runs blocks: commands in this process through the command line's own entry point, Python by exec, YAML as recipes."""

from __future__ import annotations

import ast
import contextlib
import glob
import importlib
import importlib.util
import os
import re
import socket
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import sounds
from tests.commands import run
from tests.docs.blocks import ROOT, SEPARATORS, SHELL, SHOWN, Block, commands_of, words_of
from tests.docs.places import USERS_RECIPE, Place
from twofold.config import structure
from twofold.decoders import DecoderConfig
from twofold.encoders import EncoderConfig
from twofold.inputs import InputConfig
from twofold.losses import LossConfig
from twofold.outputs import OutputConfig
from twofold.recipe import Recipe
from twofold.recipe.file import parse_yaml
from twofold.training.config import TrainConfig

PARTS = {"input": InputConfig, "encoder": EncoderConfig, "decoder": DecoderConfig, "output": OutputConfig}
ROWS = [{"de": f"Hund {number}", "en": f"dog {number}", "ko": f"개 {number}"} for number in range(24)]
PRESUPPOSED = {
    "rows": ROWS,
    "others": ROWS[:8],
    "recipe": yaml.safe_load(USERS_RECIPE),
    "texts": ["ls shows a folder", "df -h shows free space", "sudo apt update", "restart the machine"],
    "questions": ["how do I list a folder?", "my disk is full"],
    "samples": sounds.spoken("low high", 1),
}
"""Names that blocks of Python take for given."""


LOWERED = {"--among": 10}
"""Values of options that suit the size of real data, lowered to that of made-up data."""


class Failed(AssertionError):
    """A block that does not run, with its place."""


@dataclass
class Counts:
    """Number of blocks and commands of each sort."""

    blocks: int = 0
    run: int = 0
    shown: int = 0
    """Output of commands, and lines of other libraries."""
    listed: list[str] = field(default_factory=list)
    """Commands that are listed instead of run."""


@dataclass
class Page:
    """Blocks of one page, run in order in one folder with one set of Python names."""

    place: Place
    patch: pytest.MonkeyPatch
    listed: Callable[[list[str]], bool]
    counts: Counts = field(default_factory=Counts)
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "page", **PRESUPPOSED})

    def run(self, block: Block) -> None:
        """Runs a block as it stands; `Failed` names the place and the reason."""
        self.counts.blocks += 1
        with warnings.catch_warnings(), _at(block):
            warnings.simplefilter("ignore")  # a warning is no failure, as on the command line
            if block.title and block.language == "python":
                import_theirs(block)
            if block.title or block.language in SHOWN:
                self.counts.shown += 1
                return
            if block.language in SHELL:
                before = len(self.counts.listed)
                commands = commands_of(block)
                for command in commands:
                    self._command(command)
                self.counts.run += len(self.counts.listed) - before < len(commands)
                return
            if block.language == "python":
                self._python(block)
            elif block.language == "yaml":
                self._yaml(block)
            else:
                raise Failed(f"{block.place}: a block of '{block.language}'; known: {known_languages()}")
        self.counts.run += 1

    def run_mention(self, command: str) -> None:
        """Runs a command that stands in a sentence."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._command(command)

    def write_files(self, blocks: list[Block]) -> None:
        """Writes the files that blocks show; a page may name them in commands before it shows them."""
        for block in blocks:
            if block.file and not block.title and not (ROOT / block.file).exists():
                path = self.place.folder / block.file
                path.parent.mkdir(exist_ok=True)
                path.write_text(block.text, encoding="utf-8")
                if path.parent != self.place.folder:
                    (path.parent / "__init__.py").touch()
                    self.patch.syspath_prepend(str(self.place.folder))
                if block.language == "yaml":
                    self.place.prepare(block.text)

    def _command(self, command: str) -> None:
        words = words_of(command)
        while re.fullmatch(r"[A-Z_]+=.*", words[0]):
            self._set(words.pop(0))
        if self.listed(words):
            self.counts.listed.append(command)
            return
        self.place.prepare(command)
        stdin = None
        if "|" in words:
            first, words = words[: words.index("|")], words[words.index("|") + 1 :]
            stdin = subprocess.run(first, capture_output=True, text=True, check=True).stdout
        redirected = Path(words[words.index(">") + 1]) if ">" in words else None
        words = words[: next((place for place, word in enumerate(words) if word in SEPARATORS), len(words))]
        match words:
            case ["export", setting]:
                self._set(setting)
            case ["twofold", *arguments]:
                output = invoke(expanded(arguments), stdin)
                if redirected:
                    redirected.write_text(output, encoding="utf-8")
            case ["torchrun", *arguments]:
                torchrun(arguments)
            case _:
                raise Failed(f"neither run nor listed: {command}")

    def _set(self, setting: str) -> None:
        name, _, value = setting.partition("=")
        if name == "PYTHONPATH":
            self.patch.syspath_prepend(str(Path(value).resolve()))
        elif name != "TWOFOLD_DATA":  # the made-up corpora stand for it
            self.patch.setenv(name, value)

    def _python(self, block: Block) -> None:
        if block.file:
            self.patch.syspath_prepend(str(self.place.folder))
            importlib.import_module(block.file.removesuffix(".py").replace("/", "."))
            return
        self.place.prepare(block.text)
        exec(compile("\n" * block.line + block.text, str(ROOT / block.page), "exec"), self.names)

    def _yaml(self, block: Block) -> None:
        content = parse_yaml(block.text, block.place)
        if block.file and (packaged := ROOT / block.file).exists():
            assert content == parse_yaml(packaged.read_text(encoding="utf-8"), str(packaged)), f"not {block.file}"
        elif "data" in content:
            Recipe.of(content)
        else:
            check_sections(content)


def check_sections(content: dict[str, Any]) -> None:
    """Reads sections of a recipe strictly, each by its class."""
    for name, section in content.items():
        if name in PARTS:
            structure({**({"kind": "text"} if name == "output" else {}), **section}, PARTS[name])
        elif name == "losses":
            structure(section, tuple[LossConfig, ...])
        elif name == "train":
            structure(section, TrainConfig)
        elif name == "decoders":
            source = {"data": {"train": "rows.tsv"}, "source": "words", "encoder": {"kind": "transformer"}}
            Recipe.of({**source, name: section})
        else:
            raise Failed(f"the section '{name}' is not read by the test; add it to check_sections")


def invoke(arguments: list[str], stdin: str | None = None) -> str:
    """Standard output of a `twofold` command, which must end with status 0."""
    result = run(*arguments, stdin=stdin)
    if result.exit_code:
        error = result.exception
        unexpected = error is not None and not isinstance(error, SystemExit)
        trace = "".join(traceback.format_exception(error)) if unexpected else ""
        raise Failed(f"twofold {' '.join(arguments)}: {result.stderr}{trace}")
    return result.stdout


def expanded(arguments: list[str]) -> list[str]:
    """Arguments with the names of the files that a pattern such as *.jpg means, and with small numbers."""
    words = [
        name for argument in arguments for name in (sorted(glob.glob(argument)) if "*" in argument else [argument])
    ]
    return [str(LOWERED.get(option, word)) for option, word in zip(["", *words], words, strict=False)]


def import_theirs(block: Block) -> None:
    """Compiles lines of another library, and runs their imports of what is installed."""
    for statement in ast.walk(ast.parse(block.text)):
        if isinstance(statement, ast.ImportFrom) and importlib.util.find_spec(str(statement.module).partition(".")[0]):
            module = importlib.import_module(str(statement.module))
            for alias in statement.names:
                assert hasattr(module, alias.name), f"{statement.module} has no {alias.name}"


def torchrun(arguments: list[str]) -> None:
    """Runs processes of `python -m tests.docs.shortened` in the place of `python -m twofold`."""
    words = ["tests.docs.shortened" if word == "twofold" else word for word in arguments]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    with socket.socket() as free:
        free.bind(("", 0))
        port = str(free.getsockname()[1])  # another test may hold the port that torchrun takes by itself
    environment = {**os.environ, "PYTHONPATH": paths, "PET_MASTER_PORT": port}
    command = [sys.executable, "-m", "torch.distributed.run", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"torchrun {' '.join(arguments)}: {done.stderr[-2000:]}")


def known_languages() -> str:
    return ", ".join(sorted({*SHELL, *SHOWN, "python", "yaml"} - {""}))


@contextlib.contextmanager
def _at(block: Block) -> Iterator[None]:
    """Puts the place of the block before whatever goes wrong in it."""
    try:
        yield
    except Exception as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(block.page)]
        line = frames[-1].lineno if frames else block.line
        reason = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
        raise Failed(f"{block.page}:{line}: {reason}") from error
