"""Metrics of retrieval from a whole corpus, against a loop over all of it, and errors of wrong queries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from tests.conftest import write_jsonl
from tests.metrics.test_ranking import TEXTS, answer, as_rows, in_order, ranker, refusal, scores
from tests.test_ranks import by_ranx, plain
from twofold.cli import main
from twofold.data.candidates import Candidate
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.generate.search import GenerateOptions
from twofold.metrics import Evaluation, Report, retrieval
from twofold.model import Ranker
from twofold.model.config import MAIN


def searched(model: Ranker, queries: Sequence[dict[str, Any]], corpus: Sequence[Candidate]) -> Report:
    """Metrics of retrieval from a whole corpus."""
    return retrieval.measure(Evaluation(model, as_rows(list(queries)), MAIN, GenerateOptions(), corpus=corpus))


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
    model, draw = ranker(tokenizer, kind, context={"preface": "persona"}), np.random.default_rng(2)
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
    documents = [Candidate(text, number, name) for number, (name, text) in enumerate(corpus.items())]
    report = searched(model, queries, documents)
    assert report.metrics == pytest.approx(brute_force(model, queries, corpus))
    assert report.examples == 8


def test_graded_relevance_gives_the_metrics_of_ranx(tokenizer: TextTokenizer) -> None:
    model, draw = ranker(tokenizer, "bi"), np.random.default_rng(7)
    gains = [draw.choice([0, 0, 0, 1, 2, 4], len(TEXTS)) for _ in range(9)]
    queries = [
        {"text": TEXTS[number], "relevant": {f"d{place}": int(one) for place, one in enumerate(gain)}}
        for number, gain in enumerate(gains)
    ]
    corpus = [Candidate(text, number, f"d{number}") for number, text in enumerate(TEXTS)]
    report = searched(model, queries, corpus)
    ours = [np.array(scores(model, TEXTS[number], TEXTS)) for number in range(9)]
    reference = by_ranx(ours, gains)
    named = {"ndcg@10": "ndcg@10", "mrr": "mrr", "map": "map", "r@1": "recall@1", "r@10": "recall@10"}
    for name, metric in named.items():
        assert report.metrics[name] == pytest.approx(np.mean(reference[metric]), abs=1e-9), name


@pytest.mark.parametrize("relevant", [["d1", "d4"], {"d1": 1, "d4": 1, "d2": 0, "gone": 0}, {"d1": True, "d4": True}])
def test_a_list_of_ids_is_a_gain_of_one_for_each(tokenizer: TextTokenizer, relevant: Any) -> None:
    model = ranker(tokenizer, "bi")
    corpus = [Candidate(text, number, f"d{number}") for number, text in enumerate(TEXTS)]
    report = searched(model, [{"text": "seven", "relevant": relevant}], corpus)
    plainly = brute_force(model, [{"text": "seven", "relevant": ["d1", "d4"]}], {one.id: one.text for one in corpus})
    assert report.metrics == pytest.approx(plainly)


def test_every_query_is_looked_at_before_a_text_is_read(
    tokenizer: TextTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ranker(tokenizer, "bi")
    for name in ("keep_contexts", "keep_candidates"):
        monkeypatch.setattr(model, name, None)  # whoever reads anything fails
    corpus = [Candidate(text, number, f"d{number}") for number, text in enumerate(TEXTS)]
    good = [{"text": "one", "relevant": ["d1"]}] * 200
    wrong = [{"text": "one", "relevant": ["d1", "x"]}, {"text": "one", "relevant": ["y", "x"]}]
    with pytest.raises(TwofoldError, match=r"rows:201: 'x' is relevant here .*; 2 ids are not: 'x', 'y'$"):
        searched(model, [*good, *wrong], corpus)
    with pytest.raises(TwofoldError, match="rows:201: 'text' is empty"):
        searched(model, [*good, {"text": "", "relevant": ["d1"]}], corpus)
    with pytest.raises(TwofoldError, match="there are no queries"):
        searched(model, [], corpus)


def warnings_of(*arguments: str | Path) -> list[str]:
    """The lines that an evaluation prints beside its result."""
    result = CliRunner().invoke(main, ["evaluate", *map(str, arguments), "--json"])
    assert result.exit_code == 0, (result.stderr, result.exception)
    assert json.loads(result.stdout)["metrics"]["mrr"] > 0
    return result.stderr.splitlines()


@pytest.mark.filterwarnings("always::UserWarning")
def test_an_empty_document_is_named_and_scored_like_any_other(folder: Path) -> None:
    rows = [{"text": "", "id": "e1"}, *({"text": text, "id": f"d{n}"} for n, text in enumerate(TEXTS))]
    corpus = write_jsonl(folder / "empty.jsonl", [*rows, {"text": "  ", "id": "e2"}])
    queries = write_jsonl(folder / "asked.jsonl", [{"text": "seven", "relevant": ["e1", "d3"]}])
    (line,) = warnings_of(folder / "bi", queries, "--corpus", corpus)
    assert line.startswith(f"warning: 2 of {len(TEXTS) + 2} documents of the corpus are empty, with the ids 'e1', 'e2'")


@pytest.mark.filterwarnings("always::UserWarning")
def test_columns_of_queries_and_documents_that_look_like_labels_are_named(folder: Path) -> None:
    queries = write_jsonl(folder / "a.jsonl", [{"text": "one", "relevant": ["d1"], "labels": [1]}])
    corpus = write_jsonl(
        folder / "b.jsonl",
        [{"text": text, "id": f"d{n}", "relevance": 1, "label": "x"} for n, text in enumerate(TEXTS)],
    )
    first, second = warnings_of(folder / "bi", queries, "--corpus", corpus)
    assert first.startswith(f"warning: {queries}:1: 'labels' is not read; 'relevant' tells the ids")
    assert second.startswith(f"warning: {corpus}:1: 'relevance' is not read (here and in {len(TEXTS) - 1} more rows)")


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
        ({"text": "seven", "relevant": {}}, ":2: 'relevant' has no gain above 0"),
        ({"text": "seven", "relevant": {"d1": 0}}, ":2: 'relevant' has no gain above 0"),
        ({"text": "seven", "relevant": {"d1": -1}}, ":2: the gains in 'relevant' must be numbers from 0 up"),
        ({"text": "seven", "relevant": {"d1": "2"}}, ":2: the gains in 'relevant' must be numbers from 0 up"),
        ({"text": "seven", "relevant": [["d1"]]}, ":2: 'relevant' holds ['d1']; ids are texts or whole numbers"),
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
    assert said == "the vectors are not numbers; the model's weights are damaged or its training diverged"
