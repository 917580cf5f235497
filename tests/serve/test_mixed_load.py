"""Clients that search while candidates come and go and a worker is killed get right answers, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path

from tests.conftest import decoder, encoder
from tests.rankers import small_ranker
from tests.serve.mixed_load import Load, Plan, expected_of
from tests.serve.processes import running
from twofold.data.tokenizer import TextTokenizer
from twofold.index import Index
from twofold.model.load import load_ranker

SECONDS, KILL_AFTER = 6.0, 2.0
TEXTS = [f"{number} and {number * 7 % 1000}" for number in range(300)]
QUESTIONS = ["one hundred", "seven and two", "삼백", "nine hundred and six"]


def test_answers_are_right_while_candidates_change_and_a_worker_is_killed(
    tmp_path: Path, tokenizer: TextTokenizer
) -> None:
    small_ranker(tokenizer, encoder("rnn"), decoder("bi")).save_pretrained(tmp_path / "model")
    ranker = load_ranker(tmp_path / "model")
    with Index.build(tmp_path / "numbers", ranker, TEXTS[:200], name=str(tmp_path / "model")) as index:
        expected = expected_of(ranker, index, QUESTIONS, TEXTS[:40], TEXTS[200:], 1e-4)
    kills: list[float] = []
    with running(["serve", tmp_path / "numbers", "--port", "{port}", "--workers", "2"], tmp_path) as server:
        first, second = server.workers

        def kill() -> None:
            kills.append(time.time())
            os.kill(second, signal.SIGKILL)

        timer = threading.Timer(KILL_AFTER, kill)
        timer.start()
        load = Load(Plan(server.port, "numbers", 8, SECONDS, pause=0.05), expected)
        outcome = asyncio.run(load.run())
        timer.join()
        assert first in server.workers
        assert second not in server.workers
    assert outcome.wrong == []
    assert outcome.unexplained(kills) == 0
    assert set(outcome.statuses) <= {0, 200}
    assert min(outcome.answers[what] for what in ("search", "embeddings", "rerank", "after a change")) > 5
    assert outcome.changes > 1
    with Index(tmp_path / "numbers", ranker) as index:
        moving = {f"moving {number}" for number in outcome.there}
        assert {hit.id for hit in index.search("one", len(TEXTS)) if str(hit.id).startswith("moving")} == moving
        assert len(index) == 200 + len(moving)
