"""A server stays up whatever it is sent, refuses it in the form of the route, and answers as before afterwards."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.attacks.requests import attack, attacks, named, right_requests
from tests.serve.processes import Server, running
from tests.serve.small_set import small_set
from twofold.data.tokenizer import TextTokenizer

KEY = "secret"
CHANGED = 300
"""Random changes of right requests."""


@pytest.fixture(scope="module")
def server(tokenizer: TextTokenizer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("hostile")
    served = small_set(tokenizer, folder / "small").folders.values()
    how = ["--read-seconds", "5", "--seconds", "60", "--no-log"]
    variables = {"TWOFOLD_KEY": KEY, "TWOFOLD_CACHE": str(folder / "cache")}
    headers = {"Authorization": f"Bearer {KEY}"}
    with running(["serve", *served, "--port", "{port}", *how], folder, variables, headers) as started:
        yield started


def test_right_requests_are_answered(server: Server) -> None:
    for place, body in right_requests().items():
        method, _, path = place.strip().rpartition(" ")
        status, answer = server.ask(method or "POST", path, body)
        assert (status, place) == (404 if method == "DELETE" else 200, place), answer


def test_hostile_requests_are_refused_and_the_server_stays_up(server: Server) -> None:
    before = server.ask("POST", "/search", {"index": "numbers", "context": "one"})[1]["hits"]
    given = attacks(len(list(named())) + CHANGED)
    ending = asyncio.run(attack(server.port, given, KEY))
    assert ending.wrong == {}, server.log.read_text(errors="replace")[-2000:]
    assert ending.outcomes["refused"] > 1_000
    assert ending.outcomes.total() == len(given)
    assert server.process.poll() is None
    assert "Traceback" not in server.log.read_text(errors="replace")
    after = server.ask("POST", "/search", {"index": "numbers", "context": "one"})[1]["hits"]
    assert [hit["id"] for hit in after] == [hit["id"] for hit in before]


def test_every_kind_of_attack_that_people_know_is_among_them() -> None:
    names = Counter(each.name for each in named())
    parts = ["100,000 texts", "NUL", "a lone surrogate", "deep nesting of lists", "no key", "a body of 20 MB"]
    parts += ["a decompression bomb as image", "a text file as image", "'/etc/passwd' as image", "an empty text"]
    parts += ["a client that sends slow headers", "a client that sends a slow body"]
    parts += ["SQL as a filter ('1=1; DROP TABLE candidates')"]
    assert [part for part in parts if not names[part]] == []
