"""Mixed load on a server with several workers: candidates come and go, workers are killed, and no answer may be wrong.

Some candidates stay, others move. The writer remembers what the server has acknowledged; a search that runs while a
moving candidate is acknowledged must have it where its score belongs, and one that runs while its removal is
acknowledged must not have it. Between a change and its answer either is right.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.serve.clients import Connection
from twofold.index import Index
from twofold.model import Ranker

K = 10
TURNS = 40
"""Requests after which a client connects anew, so that a new worker gets clients too."""
AFTER_KILL = 5.0
"""Seconds after a kill in which connections of the killed process may break."""
BROKEN = 0
UNKNOWN = -1


@dataclass
class Expected:
    """Answers that Python gives, beforehand."""

    questions: list[str]
    documents: list[str]
    moving: list[str]
    vectors: NDArray[np.float32]
    """(documents, width)"""
    scores: NDArray[np.float32]
    """(questions, documents)"""
    alone: list[list[tuple[Any, float]]]
    """Best candidates that stay, of each question: ids and scores."""
    moving_scores: NDArray[np.float32]
    """(questions, moving)"""
    tolerance: float
    """Largest difference of two scores that are the same: texts in other batches round differently."""


def expected_of(
    ranker: Ranker, index: Index, questions: list[str], documents: list[str], moving: list[str], tolerance: float
) -> Expected:
    """Asks Python for all answers, while only those candidates are in the index that stay."""
    alone = [[(hit.id, hit.score) for hit in index.search(question, K)] for question in questions]
    return Expected(
        questions,
        documents,
        moving,
        np.asarray(ranker.encode(documents)),
        ranker.score(questions, ranker.prepare(documents)).float().numpy(),
        alone,
        ranker.score(questions, ranker.prepare(moving)).float().numpy(),
        tolerance,
    )


@dataclass(frozen=True)
class Plan:
    """Course of a load."""

    port: int
    index: str
    clients: int
    seconds: float
    pause: float = 0.2
    """Seconds between two changes."""
    seed: int = 1


@dataclass
class Outcome:
    """What has happened."""

    answers: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    broken: list[float] = field(default_factory=list)
    """Times at which a connection broke, in seconds of `time.time`."""
    changes: int = 0
    there: list[int] = field(default_factory=list)
    """Moving candidates that are in the index at the end."""
    milliseconds: list[float] = field(default_factory=list)

    def unexplained(self, kills: Sequence[float]) -> int:
        """Number of broken connections that no kill explains."""
        return sum(not any(0 <= moment - kill <= AFTER_KILL for kill in kills) for moment in self.broken)


class Load:
    """Clients and a writer."""

    def __init__(self, plan: Plan, expected: Expected) -> None:
        self.plan, self.expected, self.outcome = plan, expected, Outcome()
        self._there = dict.fromkeys(range(len(expected.moving)), 0)
        """1 for a candidate that is acknowledged, 0 for one that is not there, UNKNOWN while it is changed."""
        self._changed = dict.fromkeys(self._there, 0)
        """Number of the last change of each."""
        self._end = 0.0

    async def run(self) -> Outcome:
        """Runs until the time is over; at the end every change is acknowledged."""
        self._end = time.monotonic() + self.plan.seconds
        clients = [self._client(number) for number in range(self.plan.clients)]
        await asyncio.gather(self._write(), *clients)
        self.outcome.there = [number for number, state in self._there.items() if state]
        return self.outcome

    async def _ask(self, connection: Connection, method: str, path: str, body: Any) -> Any:
        """Content of an answer with status 200; None for any other, which is counted."""
        start = time.perf_counter()
        status, content = await connection.ask(method, path, json.dumps(body).encode())
        self.outcome.statuses[status] += 1
        if status == BROKEN:
            self.outcome.broken.append(time.time())
        if status != 200:
            return None
        self.outcome.milliseconds.append((time.perf_counter() - start) * 1000)
        return json.loads(content)

    # --- the writer ---

    async def _write(self) -> None:
        draw, connection = random.Random(self.plan.seed), Connection(self.plan.port)
        while time.monotonic() < self._end:
            some = draw.sample(sorted(self._there), min(5, len(self._there)))
            new, old = [n for n in some if not self._there[n]], [n for n in some if self._there[n]]
            rows = [{"id": f"moving {number}", "text": self.expected.moving[number]} for number in new]
            await self._change(connection, "PUT", {"candidates": rows}, new, 1)
            await self._change(connection, "DELETE", {"ids": [f"moving {number}" for number in old]}, old, 0)
            await asyncio.gather(*(self._look_for(number) for number in some[:2]))
            await asyncio.sleep(self.plan.pause)
        connection.close()

    async def _change(self, connection: Connection, method: str, body: Any, numbers: list[int], state: int) -> None:
        """Makes a change, again if the worker was killed before it answered, until it is acknowledged."""
        if not numbers:
            return
        self.outcome.changes += 1
        for number in numbers:
            self._there[number], self._changed[number] = UNKNOWN, self.outcome.changes
        tries = 0
        while True:
            before = self.outcome.statuses[404]
            answer = await self._ask(connection, method, f"/indexes/{self.plan.index}/candidates", body)
            is_gone = tries and method == "DELETE" and self.outcome.statuses[404] > before
            if is_gone:  # the first try was durable, and its answer was lost
                self.outcome.statuses[404] -= 1
            if answer is not None or is_gone:
                break
            tries += 1
            await asyncio.sleep(0.2)
        for number in numbers:
            self._there[number] = state

    async def _look_for(self, number: int) -> None:
        """After an acknowledgement, every worker answers with the change: new connections go to any of them."""
        state = self._there[number]
        for _ in range(3):
            connection = Connection(self.plan.port)
            body = {"context": self.expected.moving[number], "k": 3}
            answer = await self._ask(connection, "POST", "/search", body)
            connection.close()
            if answer is None:
                continue
            found = f"moving {number}" in [hit["id"] for hit in answer["hits"]]
            self._note("after a change", found == bool(state), f"moving {number} is {state}, found: {found}")

    # --- the clients ---

    async def _client(self, number: int) -> None:
        draw, connection = random.Random(1000 * self.plan.seed + number), Connection(self.plan.port)
        ways = (self._search, self._search, self._embed, self._rerank)
        for turn in itertools.count(1):
            if time.monotonic() >= self._end:
                break
            await draw.choice(ways)(connection, draw)
            if turn % TURNS == 0:
                connection.close()
        connection.close()

    def _note(self, what: str, right: bool, said: str) -> None:
        self.outcome.answers[what] += 1
        if not right:
            self.outcome.wrong.append(f"{what}: {said}"[:500])

    async def _embed(self, connection: Connection, draw: random.Random) -> None:
        some = draw.sample(range(len(self.expected.documents)), draw.choice((1, 1, 1, 3)))
        texts = [self.expected.documents[number] for number in some]
        answer = await self._ask(connection, "POST", "/v1/embeddings", {"input": texts})
        if answer is not None:
            vectors = np.array([row["embedding"] for row in answer["data"]], np.float32)
            most = float(np.abs(vectors - self.expected.vectors[some]).max())
            self._note("embeddings", most <= self.expected.tolerance, f"{some} differ by {most}")

    async def _rerank(self, connection: Connection, draw: random.Random) -> None:
        question = draw.randrange(len(self.expected.questions))
        some = draw.sample(range(len(self.expected.documents)), 4)
        texts = [self.expected.documents[number] for number in some]
        body = {"query": self.expected.questions[question], "documents": texts}
        answer = await self._ask(connection, "POST", "/v2/rerank", body)
        if answer is not None:
            scores = {result["index"]: result["relevance_score"] for result in answer["results"]}
            given = np.array([scores[place] for place in range(len(some))])
            most = float(np.abs(given - self.expected.scores[question, some]).max())
            falling = all(
                a["relevance_score"] >= b["relevance_score"] for a, b in itertools.pairwise(answer["results"])
            )
            self._note("rerank", most <= self.expected.tolerance and falling, f"{question} {some} differ by {most}")

    async def _search(self, connection: Connection, draw: random.Random) -> None:
        question = draw.randrange(len(self.expected.questions))
        before, changed = dict(self._there), dict(self._changed)
        answer = await self._ask(connection, "POST", "/search", {"context": self.expected.questions[question], "k": K})
        if answer is None:
            return
        sure = {n: state for n, state in before.items() if state != UNKNOWN and changed[n] == self._changed[n]}
        fault = self.fault_of(question, answer, sure)
        self._note("search", fault is None, f"question {question}: {fault}")

    def fault_of(self, question: int, answer: Any, sure: dict[int, int]) -> str | None:
        """Fault of an answer to a search; `sure` are moving candidates that did not change meanwhile."""
        expected, hits = self.expected, [(hit["id"], hit["score"]) for hit in answer["hits"]]
        near, last = expected.tolerance, hits[-1][1] if hits else 0.0
        if len(hits) != K or not answer["exact"]:
            return f"{len(hits)} hits, exact: {answer['exact']}"
        if any(a[1] < b[1] for a, b in itertools.pairwise(hits)):
            return "the order is not that of the scores"
        stay = [hit for hit in hits if not str(hit[0]).startswith("moving")]
        known = dict(expected.alone[question])
        if any(id not in known or abs(known[id] - score) > near for id, score in stay):
            return f"a candidate that stays is not one of the best: {stay}"
        if missing := [id for id, score in known.items() if score > last + near and id not in dict(stay)]:
            return f"missing: {missing}"
        move = {int(str(id).split()[1]): score for id, score in hits if str(id).startswith("moving")}
        if any(abs(expected.moving_scores[question, n] - score) > near for n, score in move.items()):
            return f"scores of moving candidates: {move}"
        if gone := [n for n in move if sure.get(n) == 0]:
            return f"removed, and acknowledged: {gone}"
        lost = [n for n, state in sure.items() if state and expected.moving_scores[question, n] > last + near]
        if lost := [n for n in lost if n not in move]:
            return f"added, acknowledged, and missing: {lost}"
        return None
