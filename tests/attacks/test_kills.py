"""A process that is killed at any call which changes a file loses nothing that was acknowledged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import made
from tests.attacks.kills import kill_builds, kill_changes, kill_trainings
from tests.attacks.victim import Victims
from tests.conftest import small_recipe, write_jsonl
from tests.index.common import ranker_of
from twofold.data.tokenizer import TextTokenizer
from twofold.model import Ranker


@pytest.fixture(scope="module", params=["poly", "late"])
def ranker(tokenizer: TextTokenizer, request: pytest.FixtureRequest) -> Ranker:
    return ranker_of(tokenizer, request.param)


@pytest.fixture(scope="module")
def victims(ranker: Ranker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victims]:
    folder = tmp_path_factory.mktemp("victims")
    ranker.save_pretrained(folder / "model")
    try:
        made = Victims(folder)
    except FileNotFoundError:
        pytest.skip("needs a C compiler")
    yield made
    made.close()


def test_an_index_killed_in_any_change_holds_what_was_there_before_or_after(
    tmp_path: Path, victims: Victims, ranker: Ranker
) -> None:
    outcomes = kill_changes(tmp_path, victims, ranker, 8)
    assert "whole" in set(outcomes) <= {"whole", "not killed"}, outcomes


def test_a_killed_build_or_copy_comes_to_its_end_when_run_again(
    tmp_path: Path, victims: Victims, ranker: Ranker
) -> None:
    outcomes = kill_builds(tmp_path, victims, ranker, 12)
    assert "whole" in set(outcomes) <= {"whole", "not killed"}, outcomes


def test_a_killed_training_goes_on_with_the_same_losses(tmp_path: Path, victims: Victims) -> None:
    rows = write_jsonl(tmp_path / "numbers.jsonl", made.numbers(60, seed=1))
    settings = {"max_steps": 6, "evaluate_every": 3, "save_every": 2, "batch_tokens": 150, "ema": 0.9}
    recipe = small_recipe(rows, data={"held_out": 10, "train": rows}, train=settings)
    outcomes = kill_trainings(tmp_path, victims, recipe, 8)
    assert "whole" in set(outcomes) <= {"whole", "not killed"}, outcomes
