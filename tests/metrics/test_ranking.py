"""Rankers are judged by their scores, by the definitions of the metrics, and by the whole file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from tests import made
from tests.conftest import decoder, encoder, write_jsonl
from tests.rankers import small_ranker
from tests.test_ranks import plain
from twofold.api import evaluate
from twofold.cli import main
from twofold.data.files import Row
from twofold.data.ranking import RankingReader, questions
from twofold.data.ranks import ndcg
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.metrics import metric_directions
from twofold.model import Ranker

KINDS = ["bi", "poly", "cross"]
TEXTS = list(dict.fromkeys(row["source"] for row in made.numbers(60, seed=6)))
PAIRS = [{"context": row["source"], "response": row["target"]} for row in made.numbers(37, seed=7)]


def rows_of_candidates(rows: int = 23, of: int = 12) -> list[dict[str, Any]]:
    draw = np.random.default_rng(1)
    return [
        {
            "context": [TEXTS[number] for number in draw.choice(len(TEXTS), 2)],
            "candidates": [TEXTS[number] for number in draw.choice(len(TEXTS), of, replace=False)],
            "label": int(draw.integers(of)),
        }
        for _ in range(rows)
    ]


def ranker(tokenizer: TextTokenizer, kind: str, **settings: Any) -> Ranker:
    return small_ranker(tokenizer, encoder("transformer"), decoder(kind), seed=3, **settings)


def scores(model: Ranker, context: Any, candidates: list[str]) -> list[float]:
    values: list[float] = model.score([context], model.prepare(candidates))[0].tolist()
    return values


def in_order(values: list[float], relevant: list[bool]) -> list[bool]:
    """Relevance of the candidates, best first."""
    return [relevant[number] for number in np.argsort([-value for value in values])]


@pytest.mark.parametrize("kind", KINDS)
def test_metrics_are_their_definitions_over_the_models_own_scores(tokenizer: TextTokenizer, kind: str) -> None:
    model, rows = ranker(tokenizer, kind), rows_of_candidates()
    report = evaluate(model, rows)
    orders = [
        in_order(scores(model, row["context"], row["candidates"]), [row["label"] == one for one in range(12)])
        for row in rows
    ]
    named = {"mrr": "mrr", "map": "map", "ndcg@10": "ndcg@10", **{f"r@{k}": f"recall@{k}" for k in (1, 2, 5, 10)}}
    for name, metric in named.items():
        assert report.metrics[name] == pytest.approx(np.mean([plain(metric, order) for order in orders])), name
    assert report.examples == len(rows)
    assert report.tables["candidates"] == [{"candidates": "12", "rows": len(rows)}]
    assert report.metrics["milliseconds"] > 0
    assert ("cosine" in report.metrics) == (kind != "cross")
    assert set(report.metrics) <= set(metric_directions(model))


def test_a_model_that_cannot_tell_candidates_apart_gets_exactly_chance(tokenizer: TextTokenizer) -> None:
    model = ranker(tokenizer, "cross")
    model.head.output.weight.data.zero_()  # type: ignore[union-attr, operator]
    report = evaluate(model, rows_of_candidates(of=4), timed=0).metrics
    assert report["r@1"] == 1 / 4
    assert report["r@2"] == 2 / 4
    assert report["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert "r@5" not in report


def test_rows_may_have_unequal_numbers_of_candidates(tokenizer: TextTokenizer) -> None:
    rows = [*rows_of_candidates(4, 12), *rows_of_candidates(3, 3)]
    report = evaluate(ranker(tokenizer, "bi"), rows)
    assert report.examples == 7
    assert report.tables["candidates"] == [{"candidates": "3-12", "rows": 7}]
    assert "r@2" in report.metrics
    assert "r@5" not in report.metrics


@pytest.mark.parametrize("kind", KINDS)
def test_rows_with_several_right_candidates_are_judged_by_all_of_them(tokenizer: TextTokenizer, kind: str) -> None:
    model, draw = ranker(tokenizer, kind), np.random.default_rng(3)
    rows, gains = rows_of_candidates(), []
    for row in rows:
        gains.append(draw.permutation([3, 1, 1] + [0] * 9))
        row["labels"] = gains[-1].tolist()
        del row["label"]
    row_scores = [scores(model, row["context"], row["candidates"]) for row in rows]
    report = evaluate(model, rows)
    orders = [in_order(values, (gain > 0).tolist()) for values, gain in zip(row_scores, gains, strict=True)]
    for name, metric in {"mrr": "mrr", "map": "map", **{f"r@{k}": f"recall@{k}" for k in (1, 2, 5, 10)}}.items():
        assert report.metrics[name] == pytest.approx(np.mean([plain(metric, order) for order in orders])), name
    graded = [ndcg(values, gain, 10) for values, gain in zip(row_scores, gains, strict=True)]
    assert report.metrics["ndcg@10"] == pytest.approx(np.mean(graded))
    assert report.metrics["mrr"] > report.metrics["map"]
    if kind != "cross":
        cosines = []
        for row, gain in zip(rows, gains, strict=True):
            right = [row["candidates"][number] for number in np.flatnonzero(gain)]
            alone = [{"context": row["context"], "candidates": [text], "label": 0} for text in right]
            cosines.append(evaluate(model, alone, timed=0).metrics["cosine"])
        assert report.metrics["cosine"] == pytest.approx(np.mean(cosines), abs=1e-6)


def test_a_list_of_right_numbers_is_as_good_as_a_mark_for_each(tokenizer: TextTokenizer) -> None:
    rows = rows_of_candidates()
    listed = [{**row, "label": [row["label"]]} for row in rows]
    marked = [{**row, "label": None, "labels": [number == row["label"] for number in range(12)]} for row in rows]
    model = ranker(tokenizer, "bi")
    reports = [evaluate(model, one, timed=0).metrics for one in (rows, listed, marked)]
    assert reports[0] == reports[1] == reports[2]


def test_all_responses_of_a_pair_are_right_and_others_are_drawn() -> None:
    pairs: list[dict[str, Any]] = [*PAIRS[:20], {"context": "x", "response": [PAIRS[3]["response"], "new", "new"]}]
    asked = questions(RankingReader(), as_rows(pairs), 5)
    assert asked[:20] != questions(RankingReader(), as_rows(pairs[:20]), 5)  # "new" may be drawn too
    last = asked[-1]
    assert last.candidates[:2] == [PAIRS[3]["response"], "new"]
    assert last.gains == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert len(set(last.candidates)) == 6


def test_a_column_that_looks_like_a_label_is_named_once(tokenizer: TextTokenizer) -> None:
    model = ranker(tokenizer, "bi")
    rows = [{**row, "label": number % 2} for number, row in enumerate(PAIRS)]
    with pytest.warns(UserWarning, match=r"data\[1\]: 'label' is not read") as caught:
        evaluate(model, [PAIRS[0], *rows], timed=0)
    (warning,) = caught
    assert "(here and in 36 more rows); the response of a pair counts as right: remove wrong pairs" in str(
        warning.message
    )
    marked = [{**row, "relevance": [1]} for row in rows_of_candidates()]
    with pytest.warns(UserWarning, match="'relevance' is not read .*'label' or 'labels' tells which"):
        evaluate(model, marked, timed=0)


def as_rows(values: list[dict[str, Any]]) -> list[Row]:
    return [Row(f"rows:{number}", one) for number, one in enumerate(values, start=1)]


def test_a_pair_is_judged_among_responses_that_are_drawn_the_same_every_time() -> None:
    rows = as_rows([*PAIRS, PAIRS[0], {**PAIRS[1], "context": "again"}])
    first = questions(RankingReader(), rows, 10)
    assert first == questions(RankingReader(), rows, 10)
    assert first != questions(RankingReader(), rows, 10, seed=2)
    known = {row.values["response"] for row in rows}
    for row, question in zip(rows, first, strict=True):
        assert [question.candidates[one] for one in question.right] == [row.values["response"]]
        assert len(set(question.candidates)) == len(question.candidates) == 10
        assert set(question.candidates) <= known
    assert len({tuple(sorted(set(one.candidates[1:]))) for one in first}) > 30


@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_file_of_pairs_is_judged(tokenizer: TextTokenizer, kind: str) -> None:
    model = ranker(tokenizer, kind)
    report = evaluate(model, PAIRS, candidates=7)
    assert report.examples == len(PAIRS)
    asked = questions(model.reader, as_rows(PAIRS), 7)
    places = [
        1 + sum(one > values[0] for one in values[1:])
        for values in (scores(model, q.context, q.candidates) for q in asked)
    ]
    assert report.metrics["mrr"] == pytest.approx(np.mean([1 / place for place in places]))
    assert report.metrics["r@1"] == pytest.approx(np.mean([place == 1 for place in places]))


def test_as_many_candidates_as_there_are_responses_are_all_of_them() -> None:
    few = as_rows(list({pair["response"]: pair for pair in PAIRS}.values())[:5])
    for question in questions(RankingReader(), few, 5):
        assert sorted(question.candidates) == sorted(row.values["response"] for row in few)
    with pytest.raises(TwofoldError, match="rows:1: 6 candidates need as many different responses, not 5"):
        questions(RankingReader(), few, 6)


def test_the_cosine_is_that_between_a_context_and_its_right_response(tokenizer: TextTokenizer) -> None:
    model, rows = ranker(tokenizer, "bi"), rows_of_candidates()
    right = model.embed_candidates([row["candidates"][row["label"]] for row in rows]).single
    vectors = model.embed_contexts([row["context"] for row in rows]).vectors[:, 0]
    cosines = (vectors * right).sum(1) / vectors.norm(dim=1) / right.norm(dim=1)
    assert evaluate(model, rows).metrics["cosine"] == pytest.approx(cosines.mean().item(), abs=1e-6)


@pytest.mark.parametrize("settings", [{}, {"attention": "scaled", "normalize": "none"}, {"code_kind": "first"}])
def test_the_cosine_of_a_poly_encoder_is_with_what_the_response_finds_in_the_context(
    tokenizer: TextTokenizer, settings: dict[str, Any]
) -> None:
    model = small_ranker(tokenizer, encoder("transformer"), decoder("poly", codes=5, **settings), seed=3)
    rows: list[dict[str, Any]] = [
        {"context": row["source"], "candidates": [row["target"], "x"], "label": 0} for row in made.numbers(9, seed=8)
    ]
    cosines = []
    for row in rows:
        contexts, response = (
            model.embed_contexts([row["context"]]),
            model.embed_candidates([row["candidates"][0]]).single[0],
        )
        codes = contexts.vectors[0] if contexts.mask is None else contexts.vectors[0][contexts.mask[0]]
        beta = codes.shape[1] ** -0.5 if settings.get("attention") == "scaled" else 1.0
        seen = sum(weight * code for weight, code in zip((beta * codes @ response).softmax(0), codes, strict=True))
        cosines.append(torch.cosine_similarity(torch.as_tensor(seen), response, dim=0).item())
    assert evaluate(model, rows).metrics["cosine"] == pytest.approx(np.mean(cosines), abs=1e-6)


@pytest.fixture
def folder(tmp_path: Path, tokenizer: TextTokenizer) -> Path:
    """Rankers, rows of candidates, and pairs."""
    for kind in KINDS:
        ranker(tokenizer, kind).save_pretrained(tmp_path / kind)
    write_jsonl(tmp_path / "rows.jsonl", rows_of_candidates())
    write_jsonl(tmp_path / "pairs.jsonl", PAIRS)
    return tmp_path


def answer(*arguments: str | Path) -> Any:
    result = CliRunner().invoke(main, ["evaluate", *map(str, arguments), "--json"])
    assert result.exit_code == 0, (result.stderr, result.exception)
    assert result.stderr == ""
    (line,) = result.stdout.splitlines()
    return json.loads(line)


def refusal(*arguments: str | Path) -> str:
    result = CliRunner().invoke(main, ["evaluate", *map(str, arguments)])
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    return line.removeprefix("error: ")


@pytest.mark.parametrize("kind", KINDS)
def test_evaluate_prints_metrics_and_examples(folder: Path, kind: str) -> None:
    content = answer(folder / kind, folder / "rows.jsonl")
    assert content["examples"] == 23
    assert {"r@1", "r@2", "r@5", "r@10", "mrr", "map", "ndcg@10", "milliseconds"} <= set(content["metrics"])
    assert all(isinstance(value, float) for value in content["metrics"].values())
    assert content["candidates"] == [{"candidates": "12", "rows": 23}]
    metrics = evaluate(folder / kind, str(folder / "rows.jsonl"), timed=0).metrics
    assert metrics == {name: value for name, value in content["metrics"].items() if name != "milliseconds"}
    shown = CliRunner().invoke(main, ["evaluate", str(folder / kind), str(folder / "rows.jsonl")]).stdout
    assert shown.startswith("23 examples\n")
    assert f"mrr          {metrics['mrr']:.4f}\n" in shown


def test_among_says_how_many_candidates_a_pair_gets(folder: Path) -> None:
    assert answer(folder / "bi", folder / "pairs.jsonl")["candidates"] == [{"candidates": "10", "rows": 37}]
    report = answer(folder / "bi", folder / "pairs.jsonl", "--among", "2")
    assert report["candidates"] == [{"candidates": "2", "rows": 37}]
    assert "r@2" not in report["metrics"]
    assert "different responses" in refusal(folder / "bi", folder / "pairs.jsonl", "--among", "1000")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"context": "a", "candidates": ["x", "y"], "label": 2}, ":2: 'label' must be from 0 to 1, not 2"),
        ({"context": "a", "candidates": ["x", "y"], "label": True}, ":2: 'label' must be from 0 to 1, not True"),
        ({"context": "a", "candidates": ["x", "y"]}, ":2: 'label' must be from 0 to 1, not None"),
        ({"context": "a", "candidates": [], "label": 0}, ":2: 'candidates' is empty"),
        ({"context": "a", "candidates": "xy", "label": 0}, ":2: 'candidates' is not a list of texts"),
        ({"context": "a", "candidates": ["x", "\ud83d"], "label": 0}, ":2: 'candidates' holds half a character"),
        ({"context": "", "candidates": ["x", "y"], "label": 0}, ":2: 'context' is empty"),
        ({"candidates": ["x", "y"], "label": 0}, ":2: no 'context' here"),
        ({"context": "a"}, ":2: no 'response' here"),
        ({"context": "a", "response": ""}, ":2: 'response' is empty"),
        ({"context": "a", "response": ["x", ""]}, ":2: 'response' holds an empty text"),
        ({"context": "a", "response": ["x", 7]}, ":2: 'response' is neither a text nor a list of texts"),
        ({"context": "a", "response": []}, ":2: 'response' is empty"),
    ],
)
def test_a_row_that_cannot_be_judged_is_named_with_its_line(folder: Path, row: dict[str, Any], said: str) -> None:
    file = folder / "wrong.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in (rows_of_candidates()[0], row)))
    assert refusal(folder / "bi", file, "--among", "2").startswith(f"{file}{said}")


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_not_numbers_are_one_line(folder: Path, tokenizer: TextTokenizer, kind: str) -> None:
    broken = ranker(tokenizer, kind)
    next(broken.encoder.parameters()).data.fill_(float("nan"))
    broken.save_pretrained(folder / "broken")
    said = refusal(folder / "broken", folder / "rows.jsonl")
    what = "scores" if kind == "cross" else "vectors"
    assert said == f"the {what} are not numbers; the model's weights are damaged or its training diverged"
