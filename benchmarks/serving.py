"""Serving under load: requests per second and latencies, batched and one by one, beside a plain server; and endurance.

Clients run in a process of their own on the loopback, each sending its next request when the last is answered. All
servers of a comparison run at once and are measured in turn; those that wait cost nothing. `--long` and `--hostile` run
the other two parts; each part keeps what the others have measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _common import RESULTS, command, need, processor_flags, save
from _serving_hostile import besiege
from _serving_load import Job, measure
from _serving_long import MOVING, STAY, endure

import twofold
from tests.serve.processes import Server, running
from twofold.data.files import read_rows
from twofold.data.named_models import DEFAULT, folder_of

HERE = Path(__file__).parent
CLIENTS = (1, 8, 64)
STORED, BODIES, DOCUMENTS = 5_000, 400, 8
ENGINE = "openvino"
PLAIN = "FastAPI + sentence-transformers"
ONE_BY_ONE = ", one by one"
TARGETS = {
    ("64 clients", f"{ENGINE} to one by one"): 1.2,
    ("64 clients", "torch to one by one"): 2.5,
    ("64 clients", f"{ENGINE} to plain"): 4.0,
    ("1 clients", f"{ENGINE} to one by one"): 0.95,
    ("1 clients", "torch to one by one"): 0.95,
}
"""Least ratio of requests per CPU second of the server, by number of clients and by what is compared."""


@dataclass(frozen=True)
class Work:
    """What clients ask for."""

    path: str
    bodies: list[str]


def sentences(count: int) -> list[str]:
    """Different sentences of scifact's abstracts, of about 38 tokens."""
    texts: dict[str, None] = {}
    for row in read_rows(str(need("scifact", "corpus.jsonl.gz"))):
        for sentence in str(row.values["text"]).split(". "):
            if 60 < len(sentence) < 400:
                texts.setdefault(" ".join(sentence.split()))
        if len(texts) >= 2 * count:
            break
    return list(texts)[:: len(texts) // count][:count]


def questions(count: int) -> list[str]:
    """Questions to a bank, of about 14 tokens."""
    rows = read_rows(str(need("banking77", "train.tsv.gz")))
    return list(dict.fromkeys(str(row.values["text"]) for row in rows))[:count]


def works(stored: Sequence[str]) -> dict[str, Work]:
    """Requests of each kind."""
    short, parts = questions(BODIES), range(0, DOCUMENTS * BODIES, DOCUMENTS)
    return {
        "embeddings of a question": Work("/v1/embeddings", [json.dumps({"input": text}) for text in short]),
        "embeddings of a sentence": Work("/v1/embeddings", [json.dumps({"input": text}) for text in stored[:BODIES]]),
        f"rerank of {DOCUMENTS} sentences": Work(
            "/v2/rerank",
            [
                json.dumps({"query": text, "documents": stored[start : start + DOCUMENTS]})
                for text, start in zip(short, parts, strict=True)
            ],
        ),
        f"search of {len(stored):,} sentences": Work(
            "/search", [json.dumps({"context": text, "k": 10}) for text in short]
        ),
    }


def programs(folder: Path, stored: Path) -> dict[str, list[str]]:
    """Arguments of every server, by name."""
    found = {}
    for runtime in (ENGINE, "torch"):
        how = ["serve", "default", str(folder / "index"), "--port", "{port}", "--runtime", runtime]
        found[runtime] = ["-m", "twofold", *how]
        found[runtime + ONE_BY_ONE] = [str(HERE / "_serving_one_by_one.py"), *how]
    found[PLAIN] = [str(HERE / "_serving_plain.py"), str(folder_of(DEFAULT)), str(stored), "{port}"]
    return found


def point(server: Server, work: Work, clients: int, seconds: float, most: int) -> dict[str, float]:
    """Throughput and latencies once."""
    job = Job(server.port, work.path, work.bodies, clients, seconds, most)
    before = server.cpu_seconds()
    found = measure(job)
    used, answers = server.cpu_seconds() - before, found["statuses"].get("200", 0)
    if set(found["statuses"]) != {"200"}:
        raise SystemExit(f"{work.path}: answers that are not 200: {found['statuses']}")
    p50, p95, p99 = np.percentile(found["milliseconds"], [50, 95, 99])
    return {
        "requests_per_second": len(found["milliseconds"]) / found["seconds"],
        "requests_per_cpu_second": answers / used,
        "p50": float(p50),
        "p95": float(p95),
        "p99": float(p99),
    }


def throughput(options: argparse.Namespace) -> None:
    """Every server with every kind of request and number of clients, in turn; medians of the rounds, kept at once."""
    stored = sentences(options.stored)
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as servers:
        folder = Path(temporary)
        (folder / "stored.txt").write_text("\n".join(stored) + "\n", encoding="utf-8")
        twofold.build_index(folder / "index", "default", stored).close()
        found = {
            name: servers.enter_context(running(arguments, folder, program=(sys.executable,), name=name))
            for name, arguments in programs(folder, folder / "stored.txt").items()
        }
        computing = {
            name: server.ask("GET", "/info")[1]["model_dtype"] for name, server in found.items() if name != PLAIN
        }
        rows: dict[str, Any] = {}
        for what, work in works(stored).items():
            for server in found.values():  # the first requests of each length compile or allocate
                measure(Job(server.port, work.path, work.bodies, 8, 1.0))
            for clients in options.clients:
                rounds: dict[str, list[dict[str, float]]] = {name: [] for name in found}
                for _ in range(options.rounds):
                    for name, server in found.items():
                        rounds[name].append(point(server, work, clients, options.seconds, options.most))
                medians = {name: _median(values) for name, values in rounds.items()}
                rows.setdefault(what, {})[str(clients)] = medians
                for name, values in medians.items():
                    print(f"{what:32} {clients:3} {name:32} {values}", flush=True)
                about = {"seconds": options.seconds, "rounds": options.rounds, "stored": len(stored)}
                about |= {"computing": computing, "threads": os.environ.get("OMP_NUM_THREADS", "default")}
                found_ratios = ratios(rows)
                keep("throughput", {**about, "rows": rows, "ratios": found_ratios, "missed": missed(found_ratios)})


def _median(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(values[name] for values in rounds), 1) for name in rounds[0]}


def ratios(rows: Mapping[str, Any]) -> dict[str, Any]:
    """Ratios of requests per second, and per CPU second of the server."""
    found: dict[str, Any] = {}
    for what, points in rows.items():
        for clients, servers in points.items():
            for runtime in (ENGINE, "torch"):
                others = {"one by one": runtime + ONE_BY_ONE, "plain": PLAIN}
                for against, other in others.items():
                    kinds = ("requests_per_second", "requests_per_cpu_second")
                    both = [round(servers[runtime][kind] / servers[other][kind], 2) for kind in kinds]
                    place = found.setdefault(what, {}).setdefault(f"{clients} clients", {})
                    place[f"{runtime} to {against}"] = dict(zip(("by time", "by CPU time"), both, strict=True))
    return found


def missed(found: Mapping[str, Any]) -> list[str]:
    """Targets that were not met."""
    lines = []
    for what, points in found.items():
        for (clients, compared), least in TARGETS.items():
            ratio = points.get(clients, {}).get(compared, {}).get("by CPU time", least)
            if ratio < least:
                lines.append(f"{what}, {clients}, {compared}: {ratio}, and {least} was wanted")
    return lines


def keep(part: str, measured: Mapping[str, Any]) -> None:
    """Writes a part of the results beside the others."""
    path = RESULTS / "serving.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    parts = {name: known[name] for name in ("throughput", "long", "hostile") if name in known}
    save("serving", {"processor": processor_flags(), **parts, part: {"command": command(), **measured}})


def endurance(options: argparse.Namespace) -> None:
    """Mixed load; ends with an error if an answer was wrong or a change was lost."""
    found = endure(questions(100), sentences(STAY + MOVING), 60 * options.minutes, max(options.clients), options.kills)
    print(json.dumps(found, indent=2), flush=True)
    keep("long", found)
    if any(found[name] for name in ("wrong", "lost", "server_errors", "broken_without_a_kill", "exit_status")):
        raise SystemExit("an answer was wrong, a change was lost, or the server failed")


def siege(options: argparse.Namespace) -> None:
    """Hostile requests; ends with an error if the server failed at one."""
    if shutil.which(options.schemathesis) is None:
        raise SystemExit("schemathesis is not here; pip install 'twofold[bench]', or give --schemathesis PROGRAM")
    found = besiege(options.schemathesis, options.generated, options.by_hand, 60 * options.minutes)
    print(json.dumps(found, indent=2), flush=True)
    keep("hostile", found)
    if found["by_hand_wrong"] or found["server_errors"] or found["tracebacks"] or not found["answers_as_before"]:
        raise SystemExit("the server failed at a request")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="time of each point")
    parser.add_argument("--most", type=int, default=20_000, help="requests of each point at most")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS)
    parser.add_argument("--stored", type=int, default=STORED, help="sentences of the index")
    parser.add_argument("--long", action="store_true", help="mixed load while candidates change and workers are killed")
    parser.add_argument("--hostile", action="store_true", help="requests of schemathesis, and those made by hand")
    parser.add_argument("--minutes", type=float, default=10, help="time of --long; of --hostile at most")
    parser.add_argument("--kills", type=int, default=4, help="workers that --long kills")
    parser.add_argument("--generated", type=int, default=10_000, help="requests of schemathesis")
    parser.add_argument("--by-hand", type=int, default=2_000)
    parser.add_argument("--schemathesis", default=str(Path(sys.executable).parent / "schemathesis"))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # its servers end with it
    if options.long:
        endurance(options)
    elif options.hostile:
        siege(options)
    else:
        throughput(options)


if __name__ == "__main__":
    main()
