"""Cold start: CPU time and memory of `twofold rank` and `search` beside `import torch`, in processes taken in turn.

The model is the embedded default, ten candidates are ranked, and an index of real sentences is searched. The first
call of each command, which prepares the later ones, is measured apart.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _common import processor_flags, save
from _search_data import sentences

MODEL, CONTEXT = "default", "how do I list a folder?"
ROUNDS, CANDIDATES = 9, (10_000,)
IMPORTED = (
    "import json, sys; print(json.dumps(sorted({'torch', 'transformers'} & sys.modules.keys())), file=sys.stderr)"
)
PROGRAM = f"import sys\nfrom twofold.cli import main\ntry:\n    main(sys.argv[1:])\nfinally:\n    {IMPORTED}"
MEASURE = """
import os, sys
process = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, used = os.wait4(process, 0)
print(used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""A small process: the peak of a process begins with that of the one that has started it."""
TARGET, MOST_MEGABYTES = 1.3, 400
Usage = dict[str, float]


def ran(command: list[str], environment: dict[str, str]) -> tuple[Usage, str, list[str]]:
    """CPU seconds and peak megabytes of a command, its output, and which of the two libraries it has imported."""
    measured = [sys.executable, "-S", "-c", MEASURE, *command]
    done = subprocess.run(measured, env=environment, capture_output=True, text=True, encoding="utf-8")
    lines = done.stderr.splitlines()
    if done.returncode:
        sys.exit(f"{command}: {lines[-2:]}")
    seconds, kilobytes = map(float, lines[-1].split())
    return {"cpu_seconds": seconds, "megabytes": kilobytes / 1024}, done.stdout, json.loads(lines[-2])


def commands(folder: Path, sizes: Sequence[int]) -> dict[str, list[str]]:
    """Commands by name; builds an index of each size."""
    texts, twofold = sentences(max(sizes)), [sys.executable, "-c", PROGRAM]
    (folder / "ten.txt").write_text("\n".join(" ".join(text.split()) for text in texts[:10]), encoding="utf-8")
    named = {
        "import torch": [sys.executable, "-c", f"import torch\n{IMPORTED}"],
        "rank": [*twofold, "rank", MODEL, "--candidates", str(folder / "ten.txt"), CONTEXT, "--json"],
    }
    for size in sizes:
        rows, index = folder / f"{size}.jsonl", str(folder / f"{size}.index")
        rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts[:size]), encoding="utf-8")
        build = ["index", "build", index, "--model", MODEL, "--texts", str(rows)]
        subprocess.run([sys.executable, "-m", "twofold", *build], check=True)
        named[f"search {size:,}"] = [*twofold, "search", index, CONTEXT, "--json"]
    return named


def measured(all_commands: dict[str, list[str]], rounds: int, threads: int) -> dict[str, Any]:
    """Medians of each command, of its second and later calls."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    used: dict[str, list[Usage]] = {name: [] for name in all_commands}
    for command in all_commands.values():
        ran(command, environment)
    for _ in range(rounds):
        for name, command in all_commands.items():
            usage, _, imported = ran(command, environment)
            if imported != (["torch"] if name == "import torch" else []):
                sys.exit(f"{name} has imported {imported}")
            used[name].append(usage)
    of_torch = statistics.median(usage["cpu_seconds"] for usage in used["import torch"])
    lines = {}
    for name, usages in used.items():
        seconds = statistics.median(usage["cpu_seconds"] for usage in usages)
        lines[name] = {
            "cpu_seconds": round(seconds, 3),
            "times_import_torch": round(seconds / of_torch, 3),
            "peak_megabytes": round(statistics.median(usage["megabytes"] for usage in usages)),
        }
        print(f"{threads} thread(s)  {name:16} {lines[name]}", flush=True)
    return lines


def same(first: str, later: str) -> bool:
    """True if two answers have the same candidates, with scores that differ by rounding only."""
    ours, theirs = (json.loads(text)["hits"] for text in (later, first))
    scores = [abs(mine["score"] - right["score"]) for mine, right in zip(ours, theirs, strict=True)]
    return [hit["id"] for hit in ours] == [hit["id"] for hit in theirs] and max(scores) < 1e-5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--candidates", type=int, nargs="+", default=CANDIDATES, help="sentences in each index")
    options = parser.parse_args()
    print("processor:", *processor_flags(), flush=True)
    with tempfile.TemporaryDirectory() as place:
        os.environ["TWOFOLD_CACHE"] = str(Path(place, "cache"))
        all_commands, firsts = commands(Path(place), options.candidates), {}
        for name in list(all_commands)[1:]:
            first, answer, _ = ran(all_commands[name], dict(os.environ))
            later = ran(all_commands[name], dict(os.environ))[1]
            firsts[name] = {**{what: round(value, 1) for what, value in first.items()}, "same": same(answer, later)}
        lines = {f"{threads} threads": measured(all_commands, options.rounds, threads) for threads in (1, 2)}
    met = all(
        line[name]["times_import_torch"] <= TARGET and line[name]["peak_megabytes"] < MOST_MEGABYTES
        for line in lines.values()
        for name in firsts
    )
    about = {"processor": processor_flags(), "rounds": options.rounds, "candidates": options.candidates}
    save("cold_start", {**about, "first_call": firsts, "later_calls": lines, "targets_met": met})


if __name__ == "__main__":
    main()
