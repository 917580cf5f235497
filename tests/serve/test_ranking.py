"""`/rank`, `/search` and `/explain` answer what Python answers, whoever else asks at the same time."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from tests.serve.serving import Served, assert_alike
from tests.serve.small_set import STORED, SmallSet

CONTEXT, CANDIDATES = "one hundred and two", ["102", "7 and 3", "300", "9", "102"]
RANKERS = ("bi", "poly", "late", "cross")


@pytest.mark.parametrize("name", RANKERS)
def test_candidates_rank_as_in_python(served: Served, models: SmallSet, name: str) -> None:
    answer = served.post("/rank", model=name, context=CONTEXT, candidates=CANDIDATES, k=4)
    hits = models.models[name].rank(CONTEXT, CANDIDATES, k=4)
    assert [(hit["id"], hit["text"], hit["rank"]) for hit in answer["hits"]] == [
        (hit.id, hit.text, rank) for rank, hit in enumerate(hits, start=1)
    ]
    assert [hit["score"] for hit in answer["hits"]] == pytest.approx([hit.score for hit in hits], rel=1e-4)
    assert answer["exact"] is True
    joined = models.models[name].joined
    alone = models.models[name].reads_alone
    assert answer["cost"]["texts_read"] == len(CANDIDATES) * joined + (1 + len(CANDIDATES)) * alone


def test_turns_of_a_dialogue_and_ids_of_candidates_are_taken(served: Served, models: SmallSet) -> None:
    turns, rows = ["one", "two hundred"], [{"text": text, "id": f"c{place}"} for place, text in enumerate(CANDIDATES)]
    answer = served.post("/rank", model="poly", context=turns, candidates=rows)
    hits = models.models["poly"].rank(turns, rows)
    assert [hit["id"] for hit in answer["hits"]] == [hit.id for hit in hits]


def test_a_cascade_re_ranks_the_best_of_the_first_stage(served: Served, models: SmallSet) -> None:
    answer = served.post("/rank", model="bi", context=CONTEXT, candidates=CANDIDATES, k=2, then=[["cross", 3]])
    first = models.models["bi"].rank(CONTEXT, CANDIDATES, k=3)
    second = models.models["cross"].rank(CONTEXT, [hit.text for hit in first], k=2)
    assert [hit["text"] for hit in answer["hits"]] == [hit.text for hit in second]
    assert answer["exact"] is False


def test_an_index_answers_as_in_python_with_filter_and_exclusions(served: Served, models: SmallSet) -> None:
    index = models.index
    whole = served.post("/search", index="numbers", context=CONTEXT, k=5)
    assert [hit["id"] for hit in whole["hits"]] == [hit.id for hit in index.search(CONTEXT, 5)]
    best = whole["hits"][0]["id"]
    asked = {"filter": 'lang = "ko"', "exclude": [best]}
    answer = served.post("/search", index="numbers", context=CONTEXT, k=5, **asked)
    hits = index.search(CONTEXT, 5, 'lang = "ko"', [best])
    assert [(hit["id"], hit["fields"]) for hit in answer["hits"]] == [(hit.id, dict(hit.fields)) for hit in hits]
    assert answer["exact"] is True


def test_a_certificate_holds_for_the_hits(served: Served) -> None:
    answer = served.post("/search", index="numbers", context=CONTEXT, k=3, certificate=True)
    certificate = answer["certificate"]
    assert certificate["candidates"] == len(STORED)
    assert certificate["floor"] == pytest.approx(answer["hits"][-1]["score"], rel=1e-5)
    assert len(certificate["bounds"]["bound"]) == len(certificate["bounds"]["rank"]) == len(STORED)
    assert certificate["bounds"]["bound"] == sorted(certificate["bounds"]["bound"], reverse=True)
    assert all(each["score"] <= each["bound"] + 1e-4 for each in certificate["scores"])


@pytest.mark.parametrize("name", RANKERS)
def test_explanations_are_those_of_python(served: Served, models: SmallSet, name: str) -> None:
    answer = served.post("/explain", model=name, context=CONTEXT, candidates=CANDIDATES[:3], influence=True)
    expected = models.models[name].explain(CONTEXT, CANDIDATES[:3]).as_dict()
    assert_alike(answer["explanation"], expected)


def test_the_best_of_an_index_are_explained(served: Served, models: SmallSet) -> None:
    answer = served.post("/explain", index="numbers", context=CONTEXT, k=2)
    hits = models.index.search(CONTEXT, 2)
    assert [each["id"] for each in answer["explanation"]["candidates"]] == [hit.id for hit in hits]
    assert answer["explanation"]["candidates"][0]["parts"]["codes"]["weights"]


def test_many_clients_at_once_get_their_own_answers(served: Served, models: SmallSet) -> None:
    contexts = [f"{first} hundred and {second}" for first in ("one", "two", "six") for second in ("one", "nine")] * 4
    answers: dict[int, Any] = {}

    def ask(number: int) -> None:
        route = ("/rank", "/search")[number % 2]
        given = {"candidates": CANDIDATES, "model": "poly"} if route == "/rank" else {"index": "numbers"}
        answers[number] = served.post(route, context=contexts[number], k=3, **given)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(contexts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, context in enumerate(contexts):
        ranker = models.models["poly"]
        hits = models.index.search(context, 3) if number % 2 else ranker.rank(context, CANDIDATES, 3)
        assert [hit["id"] for hit in answers[number]["hits"]] == [hit.id for hit in hits]
        scores = [hit["score"] for hit in answers[number]["hits"]]
        assert scores == pytest.approx([hit.score for hit in hits], rel=1e-4)


def test_a_request_of_many_batches_is_answered_whole(served: Served, models: SmallSet) -> None:
    texts = [f"{number} and {number * 31 % 997}" for number in range(1500)]
    answer = served.post("/rank", model="late", context=CONTEXT, candidates=texts, k=1000)
    scores = models.models["late"].score([CONTEXT], texts)[0].cpu().numpy()
    assert [hit["score"] for hit in answer["hits"]] == pytest.approx(np.sort(scores)[::-1][:1000].tolist(), rel=1e-4)
