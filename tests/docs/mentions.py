"""Commands within sentences, `twofold evaluate FOLDER DATA`: whether what they name exists, and which can be run."""

from __future__ import annotations

import re
import tomllib

import click

from tests.docs.blocks import ROOT, words_of
from twofold.cli import main
from twofold.recipe.file import recipe_names

PROGRAMS = ("twofold", "python", "make", "pytest", "torchrun", "pip")
PLACEHOLDER = re.compile(r"[A-Z][A-Z_]*|.*\.\.\..*|\[.*")


def mentions_in(text: str) -> list[str]:
    """Commands in backticks outside of fenced blocks."""
    return re.findall(rf"`((?:{'|'.join(PROGRAMS)}) [^`]*)`", prose_of(text))


def names_in(text: str) -> list[str]:
    """Dotted names of the package in backticks outside of fenced blocks: `twofold.load(folder)`."""
    return re.findall(r"`(twofold(?:\.\w+)+)", prose_of(text))


def prose_of(text: str) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.M | re.S)


def check(mention: str) -> None:
    """Fails if a command, an option, a benchmark, a target of make or an extra that is named does not exist."""
    match words_of(mention):
        case ["twofold", *arguments]:
            command, rest = command_of(arguments)
            known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
            unknown = [word for word in rest if word.startswith("--") and word != "--help" and word not in known]
            assert not unknown, f"{mention}: no option {unknown[0]}"
        case ["python", path, *arguments]:
            program = (ROOT / path).read_text(encoding="utf-8")
            for word in arguments:
                named = word in recipe_names() or word.strip("-") in program or word.isdigit()
                assert named or PLACEHOLDER.fullmatch(word), f"{mention}: {path} does not know {word}"
        case ["make", target]:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M), mention
        case ["pytest", *arguments]:
            assert all((ROOT / word).exists() for word in arguments if "/" in word), mention
        case ["torchrun", *arguments]:
            assert "twofold" in arguments, mention
        case ["pip", "install", *_, extras]:
            check_extras(extras)
        case words:
            raise AssertionError(f"{words}: say how to check this command in tests/docs/mentions.py")


def command_of(arguments: list[str]) -> tuple[click.Command, list[str]]:
    """The command that arguments name, and the arguments behind its name."""
    command: click.Command = main
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        inner = command.get_command(click.Context(command), arguments[0])
        assert inner is not None, f"no command '{arguments[0]}'"
        command, arguments = inner, arguments[1:]
    return command, arguments


def parses(arguments: list[str]) -> None:
    """Checks all options and arguments of a command as the command line does before it runs it."""
    command, rest = command_of(arguments)
    command.make_context(command.name, rest)


def can_run(mention: str) -> bool:
    """Returns True for a command of twofold with all its arguments and without placeholders."""
    program, *arguments = words_of(mention)
    if program != "twofold" or len(arguments) < 2 or any(PLACEHOLDER.fullmatch(word) for word in arguments):
        return False
    try:
        parses(arguments)
    except click.UsageError:
        return False
    return True


def check_extras(requirement: str) -> None:
    """Fails unless pyproject.toml has the extras of a requirement such as .[default,plot]."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    named = requirement.partition("[")[2].rstrip("]").split(",")
    assert set(named) <= content["project"]["optional-dependencies"].keys(), requirement
