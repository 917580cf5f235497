"""Runs a command and prints each function of the package in the order of its first call, up to the first step."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from torch.optim.optimizer import register_optimizer_step_pre_hook

import twofold
from twofold.cli import main

ROOT = Path(twofold.__file__).parent
CALLED: dict[tuple[str, str], None] = {}


def trace(frame: FrameType, event: str, _: Any) -> None:
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(str(ROOT)) and code.co_flags & inspect.CO_OPTIMIZED:
        CALLED.setdefault((Path(code.co_filename).relative_to(ROOT).as_posix(), code.co_qualname))


def stop(*_: Any) -> None:
    """End the trace; an optimizer calls this before its first step."""
    sys.setprofile(None)


def run() -> None:
    handle = register_optimizer_step_pre_hook(stop)
    sys.setprofile(trace)
    try:
        main(sys.argv[1:], standalone_mode=False)
    finally:
        sys.setprofile(None)
        handle.remove()
    for file, name in CALLED:
        print(f"called {file} {name}")


if __name__ == "__main__":
    run()
