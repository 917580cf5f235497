"""A program that changes indexes and may be killed at any moment: `python -m tests.index.changer MODEL`.

Each line of its input names a task; a child process is forked for it, and says on standard output what it begins and
what is done. Starting a process that has torch in it takes seconds, forking one does not.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tests.index.common import TEXTS
from twofold.errors import TwofoldError
from twofold.index import Index, incoming, shards
from twofold.model import Ranker


def say(**what: Any) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def build(folder: Path, ranker: Ranker, texts: str, split: str | None = None) -> None:
    """Build, and say which texts are read."""
    incoming.CHUNK_SIZE = 8
    real = ranker.embed_candidates

    def embed_candidates(some: Sequence[str], report: Any = None) -> Any:
        say(read=list(some))
        return real(some, report)

    object.__setattr__(ranker, "embed_candidates", embed_candidates)
    Index.build(folder, ranker, texts, split=split)


def change(folder: Path, ranker: Ranker, ids: list[int], seed: int) -> None:
    """Add, remove, update and compact without end; every change is one transaction."""
    shards.MERGE_FACTOR, shards.SMALL_SHARD = 3, 8
    index, draw, there = Index(folder, ranker), random.Random(seed), set(ids)
    while True:
        kind = draw.choice(["add", "add", "remove", "update", "compact"])
        free = [id for id in range(1000) if id not in there]
        some = draw.sample(free, 6) if kind == "add" else draw.sample(sorted(there), len(there) // 5)
        rows = [{"id": id, "text": draw.choice(TEXTS), "seed": seed} for id in some]
        say(began=kind, rows=rows)
        match kind:
            case "add":
                index.add(rows)
                there.update(some)
            case "update":
                index.update(rows)
            case "remove":
                index.remove(some)
                there.difference_update(some)
            case _:
                index.compact()
        say(done=kind)


def once(folder: Path, ranker: Ranker, what: str, rows: list[Any], limit: int | None = None) -> None:
    """One change; with a limit, no file may grow beyond it: writing more fails as on a full disk."""
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        match what:
            case "build":
                Index.build(folder, ranker, rows)
            case "compact":
                Index(folder, ranker).compact()
            case _:
                getattr(Index(folder, ranker), what)(rows)
        say(said="no error")
    except TwofoldError as error:
        say(said=str(error))


TASKS: dict[str, Any] = {"build": build, "change": change, "once": once}


def main() -> None:
    torch.set_num_threads(1)
    ranker = Ranker.from_pretrained(sys.argv[1])
    say(ready=True)
    child = 0
    for line in sys.stdin:
        if child:
            os.waitpid(child, 0)
        task = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                say(pid=os.getpid())
                TASKS[task.pop("task")](Path(task.pop("folder")), ranker, **task)
            except BaseException as error:
                say(failed=repr(error))
            finally:
                os._exit(0)
        # Its number stays its own until the next task: whoever kills it kills nobody else.
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        say(killed=ended is not None and ended.si_code == os.CLD_KILLED)


if __name__ == "__main__":
    main()
