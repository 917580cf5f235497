"""How well a whole corpus is searched, against a loop over all of it, and what is said about wrong queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import write_jsonl
from tests.evaluation.test_ranking import TEXTS, answer, as_rows, in_order, ranker, refusal, scores
from tests.test_ranks import plain
from twofold.data.candidates import Candidate
from twofold.data.tokenizer import TextTokenizer
from twofold.evaluation import retrieval
from twofold.model import Ranker


def brute_force(model: Ranker, queries: list[dict[str, Any]], corpus: dict[Any, str]) -> dict[str, float]:
    names = {
        "ndcg@10": "ndcg@10",
        "mrr": "mrr",
        "map": "map",
        "r@1": "recall@1",
        "r@10": "recall@10",
        "r@100": "recall@100",
    }
    values: dict[str, list[float]] = {name: [] for name in names}
    for query in queries:
        turns = query["text"] if "text" in query else [*query.get("persona", []), *query["context"]]
        relevant = [str(one) in [str(name) for name in query["relevant"]] for one in corpus]
        order = in_order(scores(model, turns, list(corpus.values())), relevant)
        for name, metric in names.items():
            values[name].append(plain(metric, order))
    return {name: float(np.mean(found)) for name, found in values.items()}


@pytest.mark.parametrize("kind", ["bi", "poly"])
def test_a_corpus_is_searched_as_by_brute_force(
    tokenizer: TextTokenizer, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(retrieval, "QUERIES", 3)
    model, draw = ranker(tokenizer, kind, preface="persona"), np.random.default_rng(2)
    corpus: dict[Any, str] = {(number if number % 2 else f"d{number}"): text for number, text in enumerate(TEXTS)}
    names = list(corpus)
    queries: list[dict[str, Any]] = [
        {
            ("text" if number % 2 else "context"): (TEXTS[number] if number % 2 else [TEXTS[number], "one"]),
            **({} if number % 2 else {"persona": ["seven", "삼백"]}),
            "relevant": [names[one] for one in draw.choice(len(names), 1 + number % 4, replace=False)],
        }
        for number in range(8)
    ]
    report = retrieval.measure(
        model,
        as_rows(queries),
        [Candidate(text, number, name) for number, (name, text) in enumerate(corpus.items())],
        progress=None,
    )
    assert report.metrics == pytest.approx(brute_force(model, queries, corpus))
    assert report.examples == 8


@pytest.fixture
def folder(tmp_path: Path, tokenizer: TextTokenizer) -> Path:
    """Rankers, and a corpus with queries."""
    for kind in ("bi", "poly", "cross", "broken"):
        model = ranker(tokenizer, "bi" if kind == "broken" else kind)
        if kind == "broken":
            next(model.encoder.parameters()).data.fill_(float("nan"))
        model.save_pretrained(tmp_path / kind)
    write_jsonl(tmp_path / "corpus.jsonl", [{"text": text, "id": f"d{n}"} for n, text in enumerate(TEXTS)])
    write_jsonl(
        tmp_path / "queries.jsonl", [{"text": "seven", "relevant": ["d3"]}, {"text": "one", "relevant": ["d1"]}]
    )
    return tmp_path


def test_evaluate_searches_a_corpus_where_one_is_given(folder: Path) -> None:
    content = answer(folder / "poly", folder / "queries.jsonl", "--corpus", folder / "corpus.jsonl")
    assert content["examples"] == 2
    assert set(content["metrics"]) == {"ndcg@10", "mrr", "map", "r@1", "r@10", "r@100"}


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"text": "seven", "relevant": ["d1", "d999"]}, ":2: 'd999' is relevant here but not an id of the corpus"),
        ({"text": "seven"}, ":2: 'relevant' must be a list of ids"),
        ({"text": "seven", "relevant": []}, ":2: 'relevant' must be a list of ids"),
        ({"text": "seven", "relevant": "d1"}, ":2: 'relevant' must be a list of ids"),
        ({"query": "seven", "relevant": ["d1"]}, ":2: no 'context' here"),
        ({"text": " ", "relevant": ["d1"]}, ":2: 'text' is empty"),
    ],
)
def test_a_query_that_cannot_be_judged_is_named_with_its_line(folder: Path, query: dict[str, Any], said: str) -> None:
    file = write_jsonl(folder / "wrong.jsonl", [{"text": "one", "relevant": ["d1"]}, query])
    assert refusal(folder / "bi", file, "--corpus", folder / "corpus.jsonl").startswith(f"{file}{said}")


def test_a_corpus_that_cannot_be_searched_is_one_line(folder: Path) -> None:
    twice = write_jsonl(folder / "twice.jsonl", [{"text": "one", "id": 1}, {"text": "two", "id": "1"}])
    assert "an id that stands twice" in refusal(folder / "bi", folder / "queries.jsonl", "--corpus", twice)
    said = refusal(folder / "cross", folder / "queries.jsonl", "--corpus", folder / "corpus.jsonl")
    assert said.startswith("a cross-encoder cannot read a whole corpus")


def test_weights_that_are_not_numbers_are_one_line(folder: Path) -> None:
    said = refusal(folder / "broken", folder / "queries.jsonl", "--corpus", folder / "corpus.jsonl")
    assert said == f"{folder / 'queries.jsonl'}:1: the score of candidate 1 of {len(TEXTS)} is not a number"
