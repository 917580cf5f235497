"""Runs commands in tests, and holds what each of them must keep to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from twofold.cli import main


def run(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)


def answer(*arguments: str | Path, stdin: str | None = None) -> Any:
    """The one JSON object that a command prints."""
    result = run(*arguments, "--json", stdin=stdin)
    assert result.exit_code == 0, (result.stderr, result.exception)
    assert result.stderr == ""
    (line,) = result.stdout.splitlines()
    return json.loads(line)


def refusal(*arguments: str | Path, status: int = 1) -> str:
    """The last line of standard error with which a command ends."""
    result = run(*arguments)
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code == status
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1 or status == 2, lines
    return lines[-1].removeprefix("error: ").removeprefix("Error: ")
