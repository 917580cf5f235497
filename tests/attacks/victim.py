"""A program whose child processes change an index or train, and are killed: `python -m tests.attacks.victim FOLDER`.

Each line of its input is a task as JSON. A child is forked for it, since starting a process that has torch in it takes
seconds. With `kill`, the child dies just before that call which changes a file (kill_at_call.c).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from twofold.errors import TwofoldError
from twofold.index import Index, incoming, shards
from twofold.index.snapshot import copy_index
from twofold.model import Ranker
from twofold.recipe import Recipe, train

SOURCE = Path(__file__).with_name("kill_at_call.c")


@dataclass(frozen=True)
class Ending:
    """End of a task."""

    killed: bool
    calls: int
    """Calls that changed files, of a task that was not killed."""
    error: str | None


class Victims:
    """Runs tasks in processes that can be killed at any call."""

    def __init__(self, folder: Path) -> None:
        """folder: holds `model`, the ranker of the indexes; a compiled library is put there"""
        library = folder / "kill_at_call.so"
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise FileNotFoundError("no C compiler")
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
        environment = {**os.environ, "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "tests.attacks.victim", str(folder)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._line()

    def run(self, task: str, kill: int = 0, **settings: Any) -> Ending:
        """Run one task to its end, or until it is killed at the call of that number."""
        assert self.process.stdin is not None
        print(json.dumps({"task": task, "kill": kill, **settings}), file=self.process.stdin, flush=True)
        said = self._line()
        return Ending(bool(said["killed"]), int(said.get("calls", 0)), said.get("error"))

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()

    def _line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return dict(json.loads(self.process.stdout.readline() or '{"error": "the program ended"}'))


def _index(model: Any, what: str, folder: str, given: Any) -> None:
    incoming.CHUNK_SIZE, shards.MERGE_FACTOR, shards.SMALL_SHARD = 8, 3, 8
    if what == "build":
        Index.build(folder, model, given).close()
    elif what == "copy":
        copy_index(Path(folder), Path(given))
    else:
        with Index(folder, model) as index:
            index.compact() if what == "compact" else getattr(index, what)(given)


def _train(model: Any, recipe: dict[str, Any], out: str) -> None:
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        train(Recipe.of(recipe), out, resume=True)


TASKS: dict[str, Any] = {"index": _index, "train": _train}


def main() -> None:
    torch.set_num_threads(1)
    model = Ranker.from_pretrained(Path(sys.argv[1]) / "model")
    calls = ctypes.CDLL(None)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            ending: dict[str, Any] = {}
            try:
                calls.kill_at_call(ctypes.c_long(task.pop("kill")))
                TASKS[task.pop("task")](model, **task)
            except TwofoldError as error:
                ending["error"] = str(error)
            except BaseException as error:
                ending["error"] = f"traceback: {error!r}"
            os.write(write, json.dumps({**ending, "calls": calls.calls_so_far()}).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as file:
            said = json.loads(file.read() or "{}")
        killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        print(json.dumps({**said, "killed": killed}), flush=True)


if __name__ == "__main__":
    main()
