"""Kills at the calls by which an index or a training changes files, and what is there afterwards."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from tests.attacks.victim import Victims
from tests.index.common import TEXTS
from twofold.errors import TwofoldError
from twofold.index import Index
from twofold.model import Ranker
from twofold.training import checkpoint

Content = dict[Any, str]
ROWS: list[dict[str, Any]] = [{"id": id, "text": text} for id, text in enumerate(TEXTS[:40])]
NEW = [{"id": f"new {id}", "text": text} for id, text in enumerate(TEXTS[50:60])]
OTHER = [{"id": id, "text": TEXTS[60 + id]} for id in range(0, 20, 3)]
CHANGES: dict[str, Any] = {"add": NEW, "update": OTHER, "remove": list(range(5, 25)), "compact": None}


def content_of(folder: Path, model: Ranker) -> Content:
    """All candidates of an index, if every byte of it is what was written."""
    with Index(folder, model) as index:
        health = index.info(check=True)["health"]
        if health != "good":
            raise TwofoldError(health)
        return {hit.id: hit.text for hit in index.search("one", 10_000)}


def expected(kind: str) -> Content:
    """Contents of the index of `ROWS` after a change."""
    before = {row["id"]: row["text"] for row in ROWS}
    match kind:
        case "add" | "update":
            return before | {row["id"]: row["text"] for row in CHANGES[kind]}
        case "remove":
            return {id: text for id, text in before.items() if id not in CHANGES[kind]}
        case _:
            return before


def chosen(calls: int, most: int) -> list[int]:
    """The calls at which to kill: all, or so many spread evenly."""
    return sorted({int(number) for number in np.linspace(1, calls, min(most, calls))})


def kill_changes(folder: Path, victims: Victims, model: Ranker, most: int) -> Counter[str]:
    """Kill every kind of change: the index holds what was there before or after it, and takes the change again."""
    outcomes: Counter[str] = Counter()
    Index.build(folder / "whole", model, ROWS).close()
    for kind, given in CHANGES.items():
        shutil.copytree(folder / "whole", folder / "counted")
        ending = victims.run("index", what=kind, folder=str(folder / "counted"), given=given)
        assert ending.error is None, ending
        for call in chosen(ending.calls, most):
            index = Path(shutil.copytree(folder / "whole", folder / "index"))
            ending = victims.run("index", kill=call, what=kind, folder=str(index), given=given)
            outcomes[_after_kill(index, victims, model, kind, given, ending.killed)] += 1
            shutil.rmtree(index)
        shutil.rmtree(folder / "counted")
    return outcomes


def _after_kill(index: Path, victims: Victims, model: Ranker, kind: str, given: Any, killed: bool) -> str:
    before, after = expected("none"), expected(kind)
    try:
        content = content_of(index, model)
        partly = kind in ("add", "update") and content.keys() >= before.keys() and _mixed(content, before, after)
        if content not in (before, after) and not partly:  # texts count some at a time
            return f"{kind}: wrong content"
        if content != after:
            error = victims.run("index", what=kind, folder=str(index), given=given).error
            if error is not None or content_of(index, model) != after:
                return f"{kind}: cannot be done again ({error})"
    except TwofoldError as error:
        return f"{kind}: {error}"
    return "whole" if killed else "not killed"


def _mixed(content: Content, before: Content, after: Content) -> bool:
    """Returns True if every candidate is as it was before or after."""
    return all(text in (before.get(id), after.get(id)) for id, text in content.items())


def kill_builds(folder: Path, victims: Victims, model: Ranker, most: int) -> Counter[str]:
    """Kill a build, or a copy; run again, it comes to its end."""
    outcomes: Counter[str] = Counter()
    Index.build(folder / "source", model, ROWS).close()
    for what, given in (("build", ROWS), ("copy", None)):
        target = folder / "target"
        tasks: dict[str, Any] = {"what": what, "folder": str(target), "given": given}
        if what == "copy":
            tasks |= {"folder": str(folder / "source"), "given": str(target)}
        calls = victims.run("index", **tasks).calls
        shutil.rmtree(target)
        for call in chosen(calls, most):
            ending = victims.run("index", kill=call, **tasks)
            there = (target / "index.sqlite").exists()
            error = None if what == "copy" and there else victims.run("index", **tasks).error
            if error is not None and "there is an index already" not in error:
                outcomes[f"{what}: {error}"] += 1
            elif content_of(target, model) != expected("none"):
                outcomes[f"{what}: wrong content"] += 1
            else:
                outcomes["whole" if ending.killed else "not killed"] += 1
            shutil.rmtree(target)
    return outcomes


def losses_of(folder: Path) -> list[str]:
    """Step and loss of every line of a training's log, as they stand there."""
    lines = (folder / "log.jsonl").read_text().splitlines()
    return [start[0] for line in lines if (start := re.match(r'\{"step": \d+, "(dev_)?loss": [^,}]+', line))]


def kill_trainings(folder: Path, victims: Victims, recipe: dict[str, Any], most: int) -> Counter[str]:
    """Kill a training at its calls, one after the other; it goes on, and its log is that of one never stopped."""
    outcomes: Counter[str] = Counter()
    whole = victims.run("train", recipe=recipe, out=str(folder / "whole"))
    assert whole.error is None, whole
    right = losses_of(folder / "whole")
    for call in chosen(whole.calls, most):
        out = folder / "killed"
        ending = victims.run("train", kill=call, recipe=recipe, out=str(out))
        outcomes[_after_stop(out, victims, recipe, right, ending.killed)] += 1
        shutil.rmtree(out)
    return outcomes


def _after_stop(out: Path, victims: Victims, recipe: dict[str, Any], right: list[str], killed: bool) -> str:
    try:
        for path in sorted((out / "checkpoints").glob("step-*")):
            checkpoint.load(path)
    except TwofoldError as damaged:
        return str(damaged)
    error = victims.run("train", recipe=recipe, out=str(out)).error
    if error is not None:
        return error
    if losses_of(out) != right:
        return "another log"
    return "whole" if killed else "not killed"
