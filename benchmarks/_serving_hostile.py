"""Hostile requests: those that schemathesis makes of the server's own description, and those made by hand."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests import made
from tests.attacks.requests import GOOD, attack, attacks
from tests.serve.processes import Server, running
from tests.serve.small_set import small_set
from twofold.data.tokenizer import TextTokenizer, TokenizerConfig

KEY = "secret"
REST = 15.0
"""Seconds after which memory has gone back."""
LINE = re.compile(r'twofold_requests_total\{route="([^"]*)",status="(\d+)"\} (\S+)')


def besiege(program: str, generated: int, by_hand: int, seconds: float) -> dict[str, Any]:
    """Sends all requests to a server of small models of every kind, and counts what it answered."""
    warnings.simplefilter("ignore")
    pairs = made.numbers(300, seed=1) + made.reverse(100, seed=1)
    texts = [text for pair in pairs for text in pair.values()]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        small = small_set(TextTokenizer.train(texts, TokenizerConfig(size=100)), folder / "small")
        how = ["--port", "{port}", "--no-log", "--read-seconds", "5"]
        variables, headers = {"TWOFOLD_KEY": KEY}, {"Authorization": f"Bearer {KEY}"}
        with running(["serve", *small.folders.values(), *how], folder, variables, headers) as server:
            question = {"index": "numbers", "context": "one", "k": 5}
            expected = server.ask("POST", "/search", question)[1]["hits"]
            asyncio.run(attack(server.port, attacks(by_hand), KEY))  # the first round loads and sizes all there is
            memory = [_rested(server)]
            ending = asyncio.run(attack(server.port, attacks(by_hand), KEY))
            memory.append(_rested(server))
            before = statuses(server)
            ended = schemathesis(program, server, folder, generated, seconds)
            counts = statuses(server) - before
            memory.append(_rested(server))
            same = server.ask("POST", "/search", question)[1]["hits"] == expected
            up = server.process.poll() is None
            log = server.log.read_text(errors="replace")
    return {
        "by_hand": {name: ending.outcomes[name] for name in sorted(GOOD)},
        "by_hand_wrong": ending.wrong,
        "longest_pause_seconds": round(ending.longest_pause, 2),
        "generated": sum(counts.values()),
        "generated_statuses": {str(status): count for status, count in sorted(counts.items())},
        "server_errors": sum(count for status, count in counts.items() if status >= 500),
        "schemathesis": ended,
        "tracebacks": log.count("Traceback"),
        "log": log[-2000:] if "Traceback" in log else "",
        "up": up,
        "answers_as_before": same,
        "megabytes": {
            "after a first round by hand": memory[0],
            "after the second": memory[1],
            "after the generated": memory[2],
        },
    }


def _rested(server: Server) -> float:
    """Memory after a pause."""
    time.sleep(REST)
    return round(server.megabytes(), 1)


def statuses(server: Server) -> Counter[int]:
    """Number of answers by status, as the server itself counts them."""
    counts: Counter[int] = Counter()
    for _, status, count in LINE.findall(server.ask("GET", "/metrics")[1].decode()):
        counts[int(status)] += round(float(count))
    return counts


def schemathesis(program: str, server: Server, folder: Path, generated: int, seconds: float) -> str:
    """Runs schemathesis until the server has had so many requests or the time is over; returns its last line."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # it has its own
    start, first, last, turn = time.monotonic(), sum(statuses(server).values()), "", 0
    while sum(statuses(server).values()) - first < generated and time.monotonic() - start < seconds:
        turn += 1
        given = ["run", f"http://127.0.0.1:{server.port}/openapi.json", "--seed", str(turn), "--no-shrink"]
        given += ["--header", f"Authorization:Bearer {KEY}", "--checks", "not_a_server_error", "--max-examples", "300"]
        given += ["--continue-on-failure", "--suppress-health-check", "all", "--request-timeout", "90"]
        given += ["--workers", "2", "--warnings", "off"]
        left = max(10, round(seconds - (time.monotonic() - start)))
        done = subprocess.run(
            [program, *given, "--max-time", str(left)], cwd=folder, capture_output=True, text=True, env=environment
        )
        (folder / "schemathesis.log").write_text(done.stdout + done.stderr)
        last = f"status {done.returncode}; {_last_line(done.stdout)}"
        if done.returncode not in (0, 1):
            raise SystemExit(f"schemathesis failed: {done.stdout[-1500:]}{done.stderr[-500:]}")
    return last


def _last_line(text: str) -> str:
    lines: Sequence[str] = [line.strip(" =") for line in text.splitlines() if line.strip(" =")]
    return lines[-1] if lines else ""
