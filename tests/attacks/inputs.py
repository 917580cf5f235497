"""Hostile inputs through the command line: each ends with one clear line, or with a sensible answer, and loses nothing.

An attack gives a `Counter` of outcomes: `refused` and `answered` are right, everything else tells what went wrong.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from twofold.cli import main

Make = Callable[[Path], object]
LONGEST = 1000
"""Characters of a line of standard error at most."""
SECONDS = 20
"""Within which a command must end."""
STARTING = 20
"""Extra limit of a separate process, for its imports on a busy machine."""
GOOD = {"refused", "answered"}
HERE, STAGE = "HERE", "STAGE"
"""In arguments and expected lines: the folder of the case, and that of the models, rows and indexes all cases share."""
LATE = 124
MEASURE = f"""
import resource, subprocess, sys
try:
    status = subprocess.run([sys.executable, "-m", "twofold", *sys.argv[3:]], timeout=float(sys.argv[2])).returncode
except subprocess.TimeoutExpired:
    status = {LATE}
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(status)
"""
"""A small program between, because a process begins with the largest memory of the one that starts it."""
LOCKS = (".lock", ".lock.holder")
"""Files that say who works in a folder; they may be written wherever something is tried."""
CUT_LINE = re.compile(r"^(error: |warning: )")


@dataclass(frozen=True)
class Case:
    """One hostile input."""

    name: str
    make: Make
    """Writes the files of the case into its folder."""
    arguments: tuple[str, ...]
    """Arguments of the command line; `HERE` and `STAGE` stand for folders."""
    says: str
    """Text that the error must hold (the answer, if `status` is 0): the place above all."""
    status: int = 1
    leaves: tuple[str, ...] = ()
    """Files or folders of the case that the command may write."""
    copies: tuple[str, str] | None = None
    """Files that are copied from the stage before `make`, and the names of the copies."""
    most: int = 1
    """Lines of errors at most: a recipe with several mistakes is told them all."""


class Overtime(BaseException):
    """A command that did not end."""


@dataclass(frozen=True)
class Ending:
    """End of a command."""

    status: int
    stdout: str
    stderr: str
    exception: BaseException | None = None


Run = Callable[[Case, Path, Path], Ending]


def attack(cases: Iterable[Case], folder: Path, stage: Path, run: Run | None = None) -> Counter[str]:
    """Run every case in a folder of its own and count the outcomes; a wrong one is told with the case's name."""
    outcomes: Counter[str] = Counter()
    for number, case in enumerate(cases):
        here = folder / str(number)
        here.mkdir(parents=True)
        fault = fault_of(case, here, stage, run or in_process)
        good = "answered" if case.status == 0 else "refused"
        outcomes[f"{case.name}: {fault}" if fault else good] += 1
    return outcomes


def fault_of(case: Case, here: Path, stage: Path, run: Run) -> str | None:
    """Faults in the end of a command, if there are any."""
    if case.copies:
        source, target = case.copies
        shutil.copytree(stage / source, here / target)
    case.make(here)
    before, shared = contents(here), contents(stage)
    ending = run(case, here, stage)
    lost = _lost(case, here, before) or ("changed the shared files" if contents(stage) != shared else None)
    return lost or _wrong_ending(case, ending, here, stage)


def in_process(case: Case, here: Path, stage: Path) -> Ending:
    """A command in this process."""
    with _limited(SECONDS), chdir(here), warnings.catch_warnings():
        warnings.simplefilter("always")
        try:
            result = CliRunner(env={"TWOFOLD_CACHE": str(stage.parent / "cache")}).invoke(
                main, arguments_of(case, here, stage)
            )
        except Overtime as error:
            return Ending(-1, "", "", error)
    return Ending(result.exit_code, result.stdout, result.stderr, result.exception)


def measured(most: int, sizes: dict[str, int]) -> Run:
    """Runs a command in a process of its own; its largest memory, in KiB, goes into `sizes` and may not pass `most`."""

    def run(case: Case, here: Path, stage: Path) -> Ending:
        told = here.parent / f"{here.name}.size"
        command = [sys.executable, "-c", MEASURE, str(told), str(SECONDS + STARTING), *arguments_of(case, here, stage)]
        environment = {**os.environ, "TWOFOLD_CACHE": str(stage.parent / "cache"), "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True)
        sizes[case.name] = size = int(told.read_text())
        if ended.returncode == LATE:
            return Ending(-1, "", "", Overtime())
        if size > most:
            return Ending(-1, "", f"{size >> 10} MiB, over {most >> 10}")
        return Ending(ended.returncode, ended.stdout, ended.stderr)

    return run


def arguments_of(case: Case, here: Path, stage: Path) -> list[str]:
    """The arguments with the names of real folders."""
    return [_placed(argument, here, stage) for argument in case.arguments]


def contents(folder: Path) -> dict[str, str]:
    """Contents of a folder: the checksums of small files, the file system's data of others."""
    paths = (path for path in folder.rglob("*") if path.name not in LOCKS)
    return dict(_described(path, path.relative_to(folder)) for path in paths)


def _described(path: Path, name: Path) -> tuple[str, str]:
    about = path.lstat()
    if stat.S_ISREG(about.st_mode) and about.st_size < 10_000_000:
        return str(name), hashlib.sha256(path.read_bytes()).hexdigest()
    return str(name), f"{stat.S_IFMT(about.st_mode)} {about.st_size if stat.S_ISREG(about.st_mode) else ''}"


def _lost(case: Case, here: Path, before: dict[str, str]) -> str | None:
    after = contents(here)
    for name, content in before.items():
        if not _may_change(case, name) and after.get(name) != content:
            return f"lost or changed {name}"
    new = [name for name in sorted(after.keys() - before.keys()) if not _may_change(case, name)]
    return f"left {', '.join(new)}" if new else None


def _may_change(case: Case, name: str) -> bool:
    return any(name == one or name.startswith(f"{one}/") for one in case.leaves)


def _wrong_ending(case: Case, ending: Ending, here: Path, stage: Path) -> str | None:
    if isinstance(ending.exception, Overtime):
        return f"does not end within {SECONDS} s"
    if ending.exception is not None and not isinstance(ending.exception, SystemExit):
        return f"traceback, {type(ending.exception).__name__}: {str(ending.exception)[:200]}"
    said = ending.stderr.strip()
    if ending.status != case.status:
        return f"status {ending.status}, not {case.status}: {(said or ending.stdout)[:300]}"
    if any(len(line) > LONGEST for line in ending.stderr.splitlines()):
        return f"a line of {max(map(len, ending.stderr.splitlines()))} characters"
    if _unprintable(ending.stderr):
        return f"control characters in {ending.stderr[:200]!r}"
    expected = _placed(case.says, here, stage)
    if case.status == 0:
        return None if expected in ending.stdout + ending.stderr else f"no {expected!r} in {ending.stdout[:300]!r}"
    return _wrong_refusal(case, ending, expected)


def _wrong_refusal(case: Case, ending: Ending, expected: str) -> str | None:
    if ending.stdout:
        return f"prints on standard output: {ending.stdout[:100]!r}"
    lines = ending.stderr.splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    others = [line for line in lines if not CUT_LINE.match(line)]
    if case.status == 1 and (not 1 <= len(errors) <= case.most or others):
        return f"{len(errors)} errors and {len(others)} other lines: {ending.stderr[:300]!r}"
    if expected not in lines[-1]:
        return f"no {expected!r} in {lines[-1][:300]!r}"
    return None


def _unprintable(text: str) -> bool:
    """Returns True if a terminal would obey some of the text."""
    return any(not (letter.isprintable() or letter in "\n") for letter in text)


def _placed(text: str, here: Path, stage: Path) -> str:
    return text.replace(HERE, str(here)).replace(STAGE, str(stage))


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    """End what takes longer."""

    def end(*_: Any) -> None:
        raise Overtime

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# --- what makes the files of a case ---


def nothing(_: Path) -> None:
    """No files."""


def put(name: str, content: str | bytes) -> Make:
    """One file; a lone surrogate in its text stands for a byte that is no UTF-8."""
    raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape")

    def make(here: Path) -> None:
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(raw)

    return make


def folder(name: str) -> Make:
    return lambda here: (here / name).mkdir(parents=True)


def fifo(name: str) -> Make:
    """A pipe into which nobody writes."""
    return lambda here: os.mkfifo(here / name)


def link(name: str, target: str) -> Make:
    return lambda here: (here / name).symlink_to(target)


def all_of(*makes: Make) -> Make:
    def make(here: Path) -> None:
        for part in makes:
            part(here)

    return make
