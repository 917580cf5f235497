"""A flipped bit in any file of an index, a training folder or a cache is named or harmless."""

from __future__ import annotations

import contextlib
import io
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests import made
from tests.attacks.flips import NAMED, RIGHT, changed_index, flip_all, kinds_of, summed
from tests.attacks.kills import losses_of
from tests.conftest import small_recipe, write_jsonl
from tests.index.common import ranker_of
from twofold.data.tokenizer import TextTokenizer
from twofold.index import Index
from twofold.model import Model
from twofold.recipe import Recipe, train

FLIPS = pytest.mark.parametrize(
    "count", [pytest.param(4, id="4-each"), pytest.param(100, id="100-each", marks=pytest.mark.bench)]
)


@FLIPS
@pytest.mark.parametrize("kind", ["poly", "late"])
def test_a_flipped_bit_in_an_index_never_gives_a_wrong_answer(
    tmp_path: Path, tokenizer: TextTokenizer, kind: str, count: int
) -> None:
    ranker = ranker_of(tokenizer, kind)
    folder = changed_index(tmp_path, ranker)
    assert {"index.sqlite", "index.sqlite-wal", "version"} <= kinds_of(folder).keys()

    def answer(copy: Path) -> Any:
        with Index(copy, ranker) as index:
            answers = [index.search("one", 100), index.search("seven hundred", 5, 'lang = "en"')]
            return [[(hit.id, hit.text, hit.score, dict(hit.fields)) for hit in hits] for hits in answers], len(index)

    outcomes = flip_all(folder, answer, count, tmp_path / "copy")
    assert NAMED in set(summed(outcomes)) <= {NAMED, RIGHT}, outcomes


@FLIPS
def test_a_flipped_bit_in_a_training_folder_never_changes_the_training_or_the_model(tmp_path: Path, count: int) -> None:
    rows = write_jsonl(tmp_path / "numbers.jsonl", made.numbers(60, seed=1))
    settings = {"max_steps": 4, "evaluate_every": 2, "save_every": 2, "batch_tokens": 300}
    recipe = small_recipe(rows, data={"held_out": 10, "train": rows}, train=settings)
    longer = Recipe.of({**recipe, "train": {**recipe["train"], "max_steps": 5}})
    train(Recipe.of(recipe), tmp_path / "run")

    def answer(copy: Path) -> Any:
        predictions = Model.from_pretrained(copy).predict(["seven hundred", "삼백"])
        with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("error")
            train(longer, copy, resume=True)
        return [(one.output, one.score) for one in predictions], losses_of(copy)

    outcomes = flip_all(tmp_path / "run", answer, count, tmp_path / "copy")
    assert {"model/config.json", "recipe.yaml", "log.jsonl"} <= outcomes.keys()
    assert NAMED in set(summed(outcomes)) <= {NAMED, RIGHT}, outcomes


@FLIPS
def test_a_flipped_bit_in_the_cache_never_changes_a_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    rows = write_jsonl(tmp_path / "numbers.jsonl", made.numbers(60, seed=1))
    recipe = small_recipe(rows, data={"held_out": 10, "train": rows}, train={"max_steps": 3, "batch_tokens": 300})
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "whole"))
    train(Recipe.of(recipe), tmp_path / "run")

    def answer(copy: Path) -> Any:
        monkeypatch.setenv("TWOFOLD_CACHE", str(copy))
        out = tmp_path / "again"
        shutil.rmtree(out, ignore_errors=True)
        with contextlib.redirect_stderr(io.StringIO()):
            train(Recipe.of(recipe), out)
        return losses_of(out)

    outcomes = flip_all(tmp_path / "whole", answer, count, tmp_path / "copy")
    assert NAMED in set(summed(outcomes)) <= {NAMED, RIGHT}, outcomes
