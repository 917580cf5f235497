"""What a forked process must leave alone: the threads of tokenizers and torch, which only its parent has."""

from __future__ import annotations

import os
import sys
from typing import Any

PARALLELISM = "TOKENIZERS_PARALLELISM"


class _Threads:
    """Whether tokenizers may use threads, and who said so."""

    chosen: bool = PARALLELISM in os.environ
    """Whether the user said."""
    used: bool = False
    """Whether this process has cut texts, after which a fork of it has no threads to do so."""


def use_threads() -> None:
    """Called before tokenizers use threads: a process that is forked from now on does without."""
    _Threads.used = True


def _in_child() -> None:
    """Work in one thread: a fork has none of its parent's threads and would wait for them forever."""
    if _Threads.used or not _Threads.chosen:
        os.environ[PARALLELISM] = "false"
    torch: Any = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "set_num_threads"):  # which it lacks while it is being imported
        torch.set_num_threads(1)


# Without a word from the user, the library warns when a process that has used its threads is forked.
os.environ.setdefault(PARALLELISM, "true")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
