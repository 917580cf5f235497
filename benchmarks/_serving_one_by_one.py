"""`twofold` with a server that never reads two requests together: what batching across requests is measured against."""

from __future__ import annotations

from collections import deque

from twofold.cli import main
from twofold.serve.batching import Batcher
from twofold.serve.jobs import Piece

together = Batcher._take_pieces


def take_one(batcher: Batcher) -> list[Piece]:
    """Takes the pieces of the first request alone, as many as fit into a batch."""
    others = batcher._jobs
    batcher._jobs = deque([others.popleft()])
    taken = together(batcher)
    others.extend(batcher._jobs)
    batcher._jobs = others
    return taken


if __name__ == "__main__":
    Batcher._take_pieces = take_one  # type: ignore[assignment, method-assign]
    main()
