"""Ranking recipes from data to model: resumed as if never stopped, and mistakes said before the first step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import made
from tests.conftest import small_recipe, write_jsonl
from tests.encoders.tiny_backbones import save
from tests.rankers import PAIRS
from twofold.encoders.pretrained import Config as Pretrained
from twofold.errors import TwofoldError
from twofold.model import Ranker
from twofold.recipe import Recipe, train
from twofold.recipe.build import build_model


def recipe_of(rows: str, **changes: Any) -> dict[str, Any]:
    """A small recipe; changes are merged section by section."""
    content: dict[str, Any] = {
        "data": {"train": rows},
        "input": {"max_tokens": 20, "tokenizer": {"size": 60}},
        "output": {"candidate": {"max_tokens": 10}},
        "encoder": {"kind": "rnn", "embedding": 6, "width": 4},
        "decoder": {"kind": "bi"},
        "train": {"max_steps": 2, "batch_rows": 5, "learning_rate": 1e-2, "log_every": 1},
    }
    for section, values in changes.items():
        content[section] = {**content.get(section, {}), **values} if isinstance(values, dict) else values
    return content


def pairs(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    return [{"context": row["source"], "response": row["target"]} for row in rows]


@pytest.fixture
def numbers(tmp_path: Path) -> str:
    return write_jsonl(tmp_path / "numbers.jsonl", pairs(made.numbers(40, seed=1)))


def steps(folder: Path) -> list[dict[str, Any]]:
    """Log lines of each step, without their times."""
    path = folder / "log.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [{k: v for k, v in line.items() if not k.endswith("_per_second")} for line in lines if line["step"]]


@pytest.mark.parametrize("decoder", [{"kind": "poly", "codes": 3}, {"kind": "cross"}], ids=["poly", "cross"])
def test_a_resumed_training_is_the_training_that_was_never_stopped(
    numbers: str, tmp_path: Path, decoder: dict[str, Any]
) -> None:
    settings = {"max_steps": 6, "memory_tokens": 0, "chunk_tokens": 30, "negatives": 2, "schedule": "constant"}
    recipe = recipe_of(numbers, decoder=decoder, train=settings, data={"held_out": 12}, encoder={"dropout": 0.3})
    train(Recipe.of(recipe), tmp_path / "whole")
    train(Recipe.of({**recipe, "train": {**recipe["train"], "max_steps": 3}}), tmp_path / "parts")
    train(Recipe.of(recipe), tmp_path / "parts", resume=True)
    whole, parts = ([line for line in steps(tmp_path / name) if "loss" in line] for name in ("whole", "parts"))
    assert parts == whole
    assert len(whole) == 6
    assert steps(tmp_path / "parts")[-1] == steps(tmp_path / "whole")[-1]
    assert steps(tmp_path / "whole")[-1]["dev_mrr"] > 0


def test_a_training_starts_from_the_weights_and_the_tokens_of_another(numbers: str, tmp_path: Path) -> None:
    train(Recipe.of(recipe_of(numbers)), tmp_path / "first")
    others = write_jsonl(tmp_path / "others.jsonl", pairs(made.numbers(40, seed=7)))
    again = recipe_of(others, start=str(tmp_path / "first"), train={"max_steps": 1, "learning_rate": 1e-9})
    train(Recipe.of(again), tmp_path / "second")
    first, second = (Ranker.from_pretrained(tmp_path / name) for name in ("first", "second"))
    for name, value in first.state_dict().items():
        torch.testing.assert_close(second.state_dict()[name], value, atol=1e-6, rtol=1e-6)
    # The number of a token must stand for the same piece of text, or the vectors mean nothing.
    assert second.tokenizer.fingerprint() == first.tokenizer.fingerprint()


def test_a_text_recipe_reads_with_the_tokenizer_of_its_backbone(tmp_path: Path) -> None:
    rows = write_jsonl(tmp_path / "numbers.jsonl", made.numbers(40, seed=1))
    backbone = str(save("bert", tmp_path / "bert"))
    recipe = small_recipe(rows, "pretrained", "attention_rnn")
    recipe["encoder"] = {"kind": "pretrained", "name": backbone}
    model = build_model(Recipe.of(recipe), tmp_path / "tokenizers")
    assert model.tokenizers["input"].fingerprint() == Pretrained(name=backbone).own_tokenizer().fingerprint()


def test_a_norm_over_the_batch_is_refused_as_a_batch_is_read_in_pieces(numbers: str, tmp_path: Path) -> None:
    reads = {"kind": "transformer", "width": 8, "layers": 1, "heads": 2, "norm": "batch"}
    with pytest.raises(TwofoldError, match="norm: batch does not go with"):
        train(Recipe.of({**recipe_of(numbers), "encoder": reads}), tmp_path / "out")


@pytest.mark.parametrize("decoder", ["bi", "cross"])
def test_a_teacher_is_for_decoders_that_can_follow_it(numbers: str, decoder: str) -> None:
    recipe = recipe_of(numbers, decoder={"kind": decoder}, losses=[{"kind": "in_batch"}, {"kind": "kl"}])
    if decoder == "bi":
        assert [loss["kind"] for loss in Recipe.of(recipe).plain()["losses"]] == ["in_batch", "kl"]
    else:
        with pytest.raises(TwofoldError, match="a teacher's scores are for decoders that read both sides apart"):
            Recipe.of(recipe)


@pytest.mark.parametrize(
    ("dev", "says"),
    [
        ([{"context": "one", "candidates": ["1", "2"], "label": 2}], "'label' must be from 0 to 1"),
        ([{"context": "", "response": "1"}], "'context' is empty"),
        (PAIRS, "10 candidates need as many different responses, not 5"),
    ],
)
def test_what_is_wrong_with_the_rows_to_judge_by_is_said_before_the_first_step(
    numbers: str, tmp_path: Path, dev: list[dict[str, Any]], says: str
) -> None:
    recipe = recipe_of(numbers, data={"dev": write_jsonl(tmp_path / "dev.jsonl", dev)})
    with pytest.raises(TwofoldError) as caught:
        train(Recipe.of(recipe), tmp_path / "out")
    assert says in str(caught.value)
    assert steps(tmp_path / "out") == []
