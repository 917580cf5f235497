"""Data folder, and results as JSON with date and command, for all benchmarks."""

from __future__ import annotations

import datetime
import json
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
sys.path.insert(0, str(ROOT))  # what the tests make up serves here too
DATA = Path(os.environ.setdefault("TWOFOLD_DATA", str(ROOT.parent / "shared" / "data")))


def save(name: str, measured: dict[str, Any]) -> None:
    """Write what was measured to benchmarks/results/NAME.json and show it."""
    import torch

    about = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": command(),
        "machine": f"{os.cpu_count()} cores {platform.machine()}, {torch.get_num_threads()} thread(s)",
        "torch": torch.__version__.split("+")[0],
    }
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**about, **measured}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written to {path.relative_to(ROOT)}", file=sys.stderr)


def command() -> str:
    """Command of this benchmark."""
    return " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *_named(sys.argv[1:])])


def _named(arguments: Sequence[str]) -> list[str]:
    """Arguments of the program, without places of this machine."""
    kept = list(arguments)
    for name in {"--runs", "--schemathesis"} & set(kept):
        place = kept.index(name)
        del kept[place : place + 2]
    return ["PYTHON" if before == "--theirs" else value for before, value in zip(["", *kept], kept, strict=False)]


FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_tile")


def processor_flags() -> list[str]:
    """Flags of this processor that change the time of a matrix product."""
    path = Path("/proc/cpuinfo")
    words = set(path.read_text().split()) if path.exists() else set()
    return [flag for flag in FLAGS if flag in words]


def need(*parts: str) -> Path:
    """A path in the data folder; without it the benchmark ends, saying so."""
    path = DATA.joinpath(*parts)
    if not path.exists():
        sys.exit(f"{path} is not there; set TWOFOLD_DATA to the folder that holds it")
    return path


def train(recipe: str, folder: Path, changes: Sequence[str] = ()) -> None:
    """In a process of its own, whose CPU time is kept beside the model; one that was begun goes on."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "twofold", "train", recipe, *changes, "--out", str(folder), "--resume"]
    subprocess.run(command, check=True, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    clock = folder / "cpu_seconds.json"
    earlier = json.loads(clock.read_text()) if clock.exists() else 0.0
    if used > 30 or not earlier:  # looking at a finished training is not training
        clock.write_text(json.dumps(earlier + used))


def cpu_minutes(folder: Path) -> float:
    """Cost of the training in `folder`."""
    seconds: float = json.loads((folder / "cpu_seconds.json").read_text())
    return round(seconds / 60, 1)
