"""Cold start: CPU time and memory of `twofold rank` and `twofold search` beside `import torch`, in processes taken in turn.

The model is the embedded default, ten candidates are ranked, and an index of real sentences is searched. The first call of
each command, which prepares the later ones, is measured apart.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _common import processor_flags, save
from _search_data import sentences

CONTEXT = "how do I list a folder?"
ROUNDS, CANDIDATES = 9, 10_000
IMPORTED = (
    "import json, sys; print(json.dumps(sorted({'torch', 'transformers'} & sys.modules.keys())), file=sys.stderr)"
)
PROGRAM = f"import sys\nfrom twofold.cli import main\ntry:\n    main(sys.argv[1:])\nfinally:\n    {IMPORTED}"
TARGET, MOST_MEGABYTES = 1.3, 400
Usage = dict[str, float]


def ran(command: list[str], environment: dict[str, str]) -> tuple[Usage, str, list[str]]:
    """CPU seconds and peak megabytes of a command, its output, and which of the two libraries it has imported."""
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )
    assert process.stdout is not None
    assert process.stderr is not None
    output, last = process.stdout.read(), process.stderr.read().splitlines()[-1:]
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command}: {last}")
    return (
        {"cpu_seconds": used.ru_utime + used.ru_stime, "megabytes": used.ru_maxrss / 1024},
        output,
        json.loads(last[0]),
    )


def commands(folder: Path, count: int) -> dict[str, list[str]]:
    """Commands by name; builds the index."""
    texts = sentences(count)
    (folder / "ten.txt").write_text("\n".join(" ".join(text.split()) for text in texts[:10]), encoding="utf-8")
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    index, model = str(folder / "index"), "default"
    build = ["index", "build", index, "--model", model, "--texts", str(folder / "texts.jsonl")]
    subprocess.run([sys.executable, "-m", "twofold", *build], check=True)
    twofold = [sys.executable, "-c", PROGRAM]
    return {
        "import torch": [sys.executable, "-c", f"import torch\n{IMPORTED}"],
        "rank": [*twofold, "rank", model, "--candidates", str(folder / "ten.txt"), CONTEXT, "--json"],
        "search": [*twofold, "search", index, CONTEXT, "--json"],
    }


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
        print(f"{threads} thread(s)  {name:14} {lines[name]}", flush=True)
    return lines


def same(first: str, later: str) -> bool:
    """True if two answers have the same candidates, with scores that differ by rounding only."""
    ours, theirs = (json.loads(text)["hits"] for text in (later, first))
    scores = [abs(mine["score"] - right["score"]) for mine, right in zip(ours, theirs, strict=True)]
    return [hit["id"] for hit in ours] == [hit["id"] for hit in theirs] and max(scores) < 1e-5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--candidates", type=int, default=CANDIDATES, help="sentences in the index")
    options = parser.parse_args()
    print("processor:", *processor_flags(), flush=True)
    with tempfile.TemporaryDirectory() as place:
        os.environ["TWOFOLD_CACHE"] = str(Path(place, "cache"))
        all_commands, firsts = commands(Path(place), options.candidates), {}
        for name in ("rank", "search"):
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
