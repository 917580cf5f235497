"""Mined negatives are the best wrong ones, a teacher's scores its own, and another model's weights are taken over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests import made
from tests.conftest import decoder, encoder, small_model, write_jsonl
from tests.rankers import small_ranker
from tests.recipe.tasks import recipe, write_pairs
from twofold.data.ranking import text_key
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.model import Ranker
from twofold.model.load import load
from twofold.recipe import Recipe, hard_negatives, train
from twofold.recipe.build import build_model, cache_rows, split_rows
from twofold.recipe.folder import PREPARED

ROWS = [{"context": row["source"], "response": row["target"]} for row in made.numbers(60, seed=3)]
# Vectors that come again with another response, and responses that differ only in case and blanks.
ROWS += [{"context": ROWS[0]["context"], "response": row["response"]} for row in ROWS[1:7]]
ROWS += [{"context": "one X", "response": "a b"}, {"context": "One  x", "response": "A  B"}]


@pytest.fixture
def miner(tmp_path: Path, tokenizer: TextTokenizer) -> Ranker:
    """A ranker, saved as `miner`, whose vectors are spread out."""
    model = small_ranker(tokenizer, encoder("transformer"), decoder("bi"), seed=2)
    model.save_pretrained(tmp_path / "miner")
    return model


def cosines(model: Ranker, texts: list[str], others: list[str]) -> torch.Tensor:
    """(texts, others)"""
    first, second = (torch.nn.functional.normalize(model.embed_candidates(one).single) for one in (texts, others))
    return first @ second.T


@pytest.fixture
def similar(miner: Ranker) -> float:
    """Far enough from every cosine, and such that many texts count as near-duplicates."""
    texts = [row["response"] for row in ROWS]
    values = np.unique(cosines(miner, texts, texts).numpy())
    values = values[(values > np.quantile(values, 0.7)) & (values < np.quantile(values, 0.9))]
    gap = int(np.diff(values).argmax())
    return float(values[gap : gap + 2].mean())


def prepare(content: dict[str, Any], folder: Path) -> None:
    """Make the rows that a recipe learns from, as before its training."""
    hard_negatives.prepared(Recipe.of(content), folder / PREPARED)


def prepared(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / PREPARED).read_text(encoding="utf-8").splitlines()]


def mined(folder: Path, rows: list[dict[str, Any]], seed: int = 1, **settings: Any) -> list[dict[str, Any]]:
    """The rows after mining, as they stand in the prepared file."""
    folder.mkdir(exist_ok=True)
    path = write_jsonl(folder / "rows.jsonl", rows)
    made_of = recipe(path, mine={"model": str(folder.parent / "miner"), **settings}, train={"seed": seed})
    prepare(made_of, folder)
    return prepared(folder)


def wrong_ones(model: Ranker, corpus: list[str], similar: float) -> list[list[str]]:
    """For each row all that may be mined for it, best first."""
    near = cosines(model, [row["response"] for row in ROWS], corpus)
    scores = model.score([row["context"] for row in ROWS], model.prepare(corpus))
    wrong = []
    for number, row in enumerate(ROWS):
        known = {text_key(one["response"]) for one in ROWS if text_key(one["context"]) == text_key(row["context"])}
        order = scores[number].argsort(descending=True).tolist()
        wrong.append(
            [corpus[one] for one in order if near[number, one] <= similar and text_key(corpus[one]) not in known]
        )
    return wrong


RESPONSES = list(dict.fromkeys(row["response"] for row in ROWS))


def test_negatives_are_the_best_of_what_is_wrong(tmp_path: Path, miner: Ranker, similar: float) -> None:
    rows = mined(tmp_path / "run", ROWS, count=5, depth=5, similar=similar)
    assert [{key: row[key] for key in ("context", "response")} for row in rows] == ROWS
    wrong = wrong_ones(miner, RESPONSES, similar)
    assert [row["negatives"] for row in rows] == [one[:5] for one in wrong]
    assert min(map(len, wrong)) < len(RESPONSES) - 10  # near-duplicates there were


def test_some_of_the_best_are_drawn_and_the_very_best_may_be_left_out(
    tmp_path: Path, miner: Ranker, similar: float
) -> None:
    places = set()
    rows = mined(tmp_path / "run", ROWS, count=3, depth=8, skip=2, similar=similar)
    for row, wrong in zip(rows, wrong_ones(miner, RESPONSES, similar), strict=True):
        assert len(row["negatives"]) == min(3, len(wrong[2:10]))
        assert set(row["negatives"]) <= set(wrong[2:10])
        places.add(tuple(wrong.index(one) for one in row["negatives"]))
    assert len(places) > 9


def test_a_poly_encoder_mines_too(tmp_path: Path, tokenizer: TextTokenizer) -> None:
    model = small_ranker(tokenizer, encoder("transformer"), decoder("poly"), seed=2)
    model.save_pretrained(tmp_path / "miner")
    rows = mined(tmp_path / "run", ROWS, count=4, depth=4, similar=1.0)
    assert [row["negatives"] for row in rows] == [one[:4] for one in wrong_ones(model, RESPONSES, 1.0)]


def test_negatives_may_come_from_a_corpus_alone(tmp_path: Path, miner: Ranker, similar: float) -> None:
    others = [row["target"] for row in made.numbers(40, seed=11)] + [ROWS[0]["response"], ROWS[4]["response"]]
    corpus = list(dict.fromkeys(others))
    file = tmp_path / "corpus.txt"
    file.write_text("\n\n".join(corpus) + "\n", encoding="utf-8")
    rows = mined(tmp_path / "run", ROWS, count=5, depth=5, similar=similar, corpus=str(file))
    assert [row["negatives"] for row in rows] == [one[:5] for one in wrong_ones(miner, corpus, similar)]


def test_no_right_response_of_a_row_is_mined_for_it(tmp_path: Path, miner: Ranker) -> None:
    several: list[dict[str, Any]] = [
        {"context": row["context"], "response": [row["response"], ROWS[number + 1]["response"], f"new {number}"]}
        for number, row in enumerate(ROWS[:20])
    ]
    rows = mined(tmp_path / "run", several, count=200, depth=200, similar=1.0)
    assert [row["response"] for row in rows] == [row["response"] for row in several]
    corpus = {text_key(text) for row in several for text in row["response"]}
    for row in rows:
        right = {text_key(text) for text in row["response"]}
        wrong = {text_key(text) for text in row["negatives"]}
        known = {
            text_key(text)
            for other in several
            if text_key(other["context"]) == text_key(row["context"])
            for text in other["response"]
        }
        assert right <= known
        assert not wrong & known
        assert wrong | known == corpus


def test_what_is_like_any_right_response_is_not_mined(tmp_path: Path, miner: Ranker, similar: float) -> None:
    several: list[dict[str, Any]] = [
        {"context": f"{row['context']} {number}", "response": [row["response"], ROWS[number + 1]["response"]]}
        for number, row in enumerate(ROWS[:30])
    ]
    rows = mined(tmp_path / "run", several, count=200, depth=200, similar=similar)
    left_out = 0
    for row in rows:
        near = cosines(miner, row["response"], row["negatives"])
        assert (near <= similar).all()
        everything = cosines(miner, row["response"], RESPONSES)
        left_out += int(((everything[0] <= similar) & (everything[1] > similar)).sum())
    assert left_out


def test_a_teacher_scores_every_right_response(tmp_path: Path, miner: Ranker) -> None:
    rows: list[dict[str, Any]] = [
        {"context": row["context"], "response": [row["response"], f"new {number}"]}
        for number, row in enumerate(ROWS[:9])
    ]
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    settings = {
        "teacher": {"model": str(tmp_path / "miner"), "negatives": 3},
        "losses": [{"kind": "in_batch"}, {"kind": "kl"}],
    }
    prepare(recipe(path, **settings), tmp_path)
    for row in prepared(tmp_path):
        assert len(row["negatives"]) == 3
        assert not set(row["negatives"]) & set(row["response"])
        texts = [*row["response"], *row["negatives"]]
        assert row["scores"] == pytest.approx(miner.score([row["context"]], texts)[0].tolist(), abs=1e-5)


def test_mining_follows_its_seed(tmp_path: Path, miner: Ranker) -> None:
    first = mined(tmp_path / "a", ROWS, count=3, depth=20)
    assert first == mined(tmp_path / "b", ROWS, count=3, depth=20)
    assert first != mined(tmp_path / "c", ROWS, count=3, depth=20, seed=2)


def test_blocks_smaller_than_the_corpus_change_nothing(
    tmp_path: Path, miner: Ranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = mined(tmp_path / "a", ROWS, count=3, depth=20)
    for name, size in (("CORPUS", 7), ("CONTEXTS", 5), ("ROWS", 11)):
        monkeypatch.setattr(hard_negatives, name, size)
    assert mined(tmp_path / "b", ROWS, count=3, depth=20) == whole


def test_where_there_are_too_few_texts_all_that_are_wrong_are_taken(tmp_path: Path, miner: Ranker) -> None:
    rows = mined(tmp_path / "run", ROWS[10:14], count=10, depth=10, similar=1.0)
    responses = {row["response"] for row in ROWS[10:14]}
    assert [set(row["negatives"]) for row in rows] == [responses - {row["response"]} for row in rows]


def test_mined_negatives_take_the_place_of_given_ones_and_of_their_scores(tmp_path: Path, miner: Ranker) -> None:
    given: list[dict[str, Any]] = [{**ROWS[20], "negatives": ["x", "y"], "scores": [1.0, 2.0, 3.0]}, *ROWS[:20]]
    rows = mined(tmp_path / "run", given, count=5, depth=5)
    assert len(rows[0]["negatives"]) == 5
    assert "scores" not in rows[0]


@pytest.mark.parametrize(("kind", "said"), [("cross", "a cross-encoder cannot search"), ("text", "does not rank")])
def test_a_model_that_cannot_search_is_refused(tmp_path: Path, tokenizer: TextTokenizer, kind: str, said: str) -> None:
    if kind == "cross":
        small_ranker(tokenizer, encoder("transformer"), decoder("cross")).save_pretrained(tmp_path / "miner")
    else:
        small_model(tokenizer, encoder("rnn"), decoder("rnn")).save_pretrained(tmp_path / "miner")
    with pytest.raises(TwofoldError, match=said):
        mined(tmp_path / "run", ROWS)


@pytest.fixture
def teacher(tmp_path: Path, tokenizer: TextTokenizer) -> Ranker:
    """A cross-encoder, saved as `teacher`, whose scores are some way apart."""
    model = small_ranker(tokenizer, encoder("transformer"), decoder("cross"), seed=4)
    model.head.output.weight.data.mul_(50)  # type: ignore[union-attr, operator]
    model.save_pretrained(tmp_path / "teacher")
    return model


def taught(rows: str | Path, folder: Path, how: str, **changes: Any) -> dict[str, Any]:
    return recipe(
        rows, teacher={"model": str(folder / "teacher")}, losses=[{"kind": "in_batch"}, {"kind": how}], **changes
    )


def test_the_scores_are_the_teachers_own(tmp_path: Path, teacher: Ranker) -> None:
    given: list[dict[str, Any]] = [
        {**ROWS[0], "negatives": ["x", "12"]},
        {"context": ["a", "b"], "candidates": ["p", "q", "r"], "label": 1},
    ]
    path = write_jsonl(tmp_path / "rows.jsonl", [*given, *ROWS[1:8]])
    prepare(taught(path, tmp_path, "kl"), tmp_path)
    rows = prepared(tmp_path)
    assert rows[0]["negatives"] == ["x", "12"]
    assert (rows[1]["response"], rows[1]["negatives"]) == ("q", ["p", "r"])
    for row in rows[2:]:
        assert len(set(row["negatives"])) == 4
        assert row["response"] not in row["negatives"]
    for row in rows:
        texts = [row["response"], *row["negatives"]]
        scores = teacher.score_pairs([(row["context"], text) for text in texts]).tolist()
        assert row["scores"] == pytest.approx(scores, abs=1e-5)


def test_a_teacher_scores_what_was_mined(tmp_path: Path, miner: Ranker, teacher: Ranker) -> None:
    settings = taught(write_jsonl(tmp_path / "rows.jsonl", ROWS), tmp_path, "kl")
    prepare({**settings, "mine": {"model": str(tmp_path / "miner"), "count": 2}}, tmp_path)
    for row in prepared(tmp_path):
        assert len(row["negatives"]) == 2
        scores = teacher.score_pairs([(row["context"], text) for text in (row["response"], *row["negatives"])])
        assert row["scores"] == pytest.approx(scores.tolist(), abs=1e-5)


def distance(student: Ranker, rows: list[dict[str, Any]], how: str) -> float:
    """Distance of a student from the teacher's scores in a prepared file."""
    total = 0.0
    for row in rows:
        scores = student.score([row["context"]], student.prepare([row["response"], *row["negatives"]]))[0].double()
        wanted = torch.tensor(row["scores"], dtype=torch.double)
        if how == "margin_mse":
            total += ((scores[0] - scores[1:]) - (wanted[0] - wanted[1:])).square().mean().item()
        else:
            total += (wanted.softmax(0) * (wanted.log_softmax(0) - scores.log_softmax(0))).sum().item()
    return total / len(rows)


@pytest.mark.parametrize("kind", ["bi", "poly"])
@pytest.mark.parametrize("how", ["margin_mse", "kl"])
def test_a_student_comes_nearer_to_its_teacher(tmp_path: Path, teacher: Ranker, how: str, kind: str) -> None:
    path = write_jsonl(tmp_path / "rows.jsonl", ROWS[:40])
    settings = taught(
        path, tmp_path, how, decoder={"kind": kind}, train={"max_steps": 25, "batch_rows": 40, "learning_rate": 5e-3}
    )
    settings["losses"][0]["weight"] = 0.0
    made_of = Recipe.of(settings)
    torch.manual_seed(made_of.train.seed)
    start = build_model(made_of, tmp_path / "tokenizers")
    assert isinstance(start, Ranker)
    train(made_of, tmp_path / "run")
    rows = prepared(tmp_path / "run")
    before, after = distance(start, rows, how), distance(Ranker.from_pretrained(tmp_path / "run"), rows, how)
    assert after < before / 2
    first = json.loads((tmp_path / "run" / "log.jsonl").read_text().splitlines()[1])
    # Without dropout and labels, the first loss is the distance from the teacher at the start.
    assert first["loss"] == pytest.approx(before, rel=1e-4)


def test_only_rows_that_are_learned_from_are_prepared(tmp_path: Path, miner: Ranker, teacher: Ranker) -> None:
    settings = taught(write_jsonl(tmp_path / "rows.jsonl", ROWS), tmp_path, "kl", data={"held_out": 14, "rows": 15})
    train(Recipe.of({**settings, "mine": {"model": str(tmp_path / "miner")}}), tmp_path / "run")
    rows = prepared(tmp_path / "run")
    made_of = Recipe.of(settings)
    model = build_model(made_of, tmp_path / "run" / "tokenizers")
    learned = split_rows(made_of, cache_rows(made_of, model), model).rows.tolist()
    assert [number for number, row in enumerate(rows) if "scores" in row] == learned
    assert len(rows) == len(ROWS)


def test_columns_keep_their_names_in_the_prepared_file(tmp_path: Path, miner: Ranker, teacher: Ranker) -> None:
    rows = [{"said": row["context"], "right": row["response"], "who": ["seven"], "more": 1} for row in ROWS[:20]]
    path = write_jsonl(tmp_path / "rows.jsonl", [*rows[:-1], {**rows[-1], "who": []}])
    columns = {"input": {"column": "said", "preface": "who"}, "output": {"candidate": {"column": "right"}}}
    settings = taught(path, tmp_path, "kl", **columns)
    train(Recipe.of({**settings, "mine": {"model": str(tmp_path / "miner")}}), tmp_path / "run")
    prepared_rows = prepared(tmp_path / "run")
    for row, given in zip(prepared_rows, rows, strict=True):
        assert set(row) == {"said", "right", "who", "negatives", "scores"}
        assert (row["said"], row["right"]) == (given["said"], given["right"])
        scores = teacher.score_pairs([([*row["who"], row["said"]], text) for text in (row["right"], *row["negatives"])])
        assert row["scores"] == pytest.approx(scores.tolist(), abs=1e-5)
    assert load(tmp_path / "run").config.input.columns() == ("said",)


def test_what_a_failed_start_prepared_is_not_taken_for_another_recipes(tmp_path: Path, miner: Ranker) -> None:
    mined(tmp_path / "run", ROWS, count=4)
    path = write_jsonl(tmp_path / "rows.jsonl", ROWS)
    train(Recipe.of(recipe(path, mine={"model": str(tmp_path / "miner"), "count": 1})), tmp_path / "run")
    rows = prepared(tmp_path / "run")
    assert {len(row["negatives"]) for row in rows} == {1}


def test_a_training_may_start_from_another_models_weights(tmp_path: Path) -> None:
    path = write_pairs(tmp_path)
    train(Recipe.of(recipe(path, "poly")), tmp_path / "first")
    first = Ranker.from_pretrained(tmp_path / "first").state_dict()
    again = recipe(path, "poly", start=str(tmp_path / "first"))
    begins = build_model(Recipe.of(again), tmp_path / "a").state_dict()
    assert all(torch.equal(begins[name], value) for name, value in first.items())
    more = recipe(path, "poly", start=str(tmp_path / "first"), decoder={"codes": 7})
    begins = build_model(Recipe.of(more), tmp_path / "b").state_dict()
    assert begins["decoders.main.codes"].shape[0] == 7
    for name, value in first.items():
        assert name == "decoders.main.codes" or torch.equal(begins[name], value)


def test_two_towers_both_start_from_the_weights_of_one(tmp_path: Path) -> None:
    path = write_pairs(tmp_path)
    train(Recipe.of(recipe(path)), tmp_path / "first")
    first = Ranker.from_pretrained(tmp_path / "first").encoder.state_dict()
    both = recipe(path, start=str(tmp_path / "first"), two_towers=True)
    model = build_model(Recipe.of(both), tmp_path / "tokenizers")
    assert isinstance(model, Ranker)
    for tower in (model.encoder, model.candidate_encoder):
        assert all(torch.equal(tower.state_dict()[name], value) for name, value in first.items())


@pytest.mark.parametrize("change", [{"width": 16}, {"layers": 2}, {"feed_forward": 32}])
def test_a_start_from_another_encoder_is_refused(tmp_path: Path, change: dict[str, int]) -> None:
    path = write_pairs(tmp_path)
    train(Recipe.of(recipe(path)), tmp_path / "first")
    other = Recipe.of(recipe(path, start=str(tmp_path / "first"), encoder=change))
    with pytest.raises(
        TwofoldError, match=r"^start: .* does not fit: encoder\..* start from a model of the same encoder"
    ):
        train(other, tmp_path / "second")


def test_layers_that_have_no_place_are_not_lost_in_silence(tmp_path: Path) -> None:
    path = write_pairs(tmp_path)
    train(Recipe.of(recipe(path, encoder={"layers": 2})), tmp_path / "first")
    shorter = recipe(path, start=str(tmp_path / "first"))
    with pytest.raises(TwofoldError, match=r"encoder\.blocks\.1\..*, not here.*start_anyway=true leaves these out"):
        build_model(Recipe.of(shorter), tmp_path / "a")
    with pytest.warns(UserWarning, match=r"left out: encoder\.blocks\.1\."):
        build_model(Recipe.of({**shorter, "start_anyway": True}), tmp_path / "b")


def test_the_tokens_of_the_other_model_come_along(tmp_path: Path) -> None:
    train(Recipe.of(recipe(write_pairs(tmp_path))), tmp_path / "first")
    other = write_jsonl(tmp_path / "other.jsonl", ROWS)
    second = build_model(Recipe.of(recipe(other, start=str(tmp_path / "first"))), tmp_path / "tokenizers")
    assert (
        second.tokenizers["input"].fingerprint() == Ranker.from_pretrained(tmp_path / "first").tokenizer.fingerprint()
    )
