"""Limits above what a backbone has positions for are lowered, which is said once and saved."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import write_jsonl
from tests.encoders.tiny_backbones import POSITIONS, save
from twofold.model import Ranker
from twofold.model.load import load, load_ranker
from twofold.recipe import Recipe, train
from twofold.recipe.build import build_model

ROWS = [
    {"context": f"the gulls {word}", "response": word, "text": f"a {word}", "letter": word[:1], "number": word}
    for word in ("one", "two", "three", "four", "nine", "ten")
]
TRAIN: dict[str, Any] = {"max_steps": 1, "warmup": 1}


@pytest.fixture(scope="module")
def backbones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("backbones")
    for family in ("bert", "roberta"):
        save(family, folder / family)
    return folder


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_backbone_that_is_loaded_reads_what_it_has_positions_for(
    family: str, backbones: Path, tmp_path: Path
) -> None:
    folder = backbones / family
    lowered = "input.max_tokens is lowered from 256 to 80, output.candidate.max_tokens is lowered from"
    said = f"{folder} reads at most 80 tokens: {lowered}"
    with pytest.warns(UserWarning, match=said):
        ranker = load_ranker(folder)
    assert limits(ranker) == (POSITIONS, POSITIONS)
    ranker.embed_candidates(["gulls " * 100])
    ranker.save_pretrained(tmp_path / "model")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_ranker(tmp_path / "model").config == ranker.config


def test_a_limit_within_the_positions_is_not_spoken_of(backbones: Path, tmp_path: Path) -> None:
    recipe = ranking(backbones / "bert", tmp_path, {"kind": "bi"}, 80, 20)
    model = build_model(Recipe.of(recipe), tmp_path / "tokenizers")
    assert isinstance(model, Ranker)
    assert limits(model) == (80, 20)


def limits(ranker: Ranker) -> tuple[int, int]:
    """The most tokens of a context and of a candidate."""
    return ranker.contexts.limit, ranker.candidates.limit


def ranking(backbone: Path, folder: Path, decoder: dict[str, Any], context: int, candidate: int) -> dict[str, Any]:
    return {
        "data": {"train": write_jsonl(folder / "rows.jsonl", ROWS)},
        "input": {"max_tokens": context},
        "encoder": {"kind": "pretrained", "name": str(backbone)},
        "decoder": decoder,
        "output": {"candidate": {"max_tokens": candidate}},
        "train": TRAIN,
    }


@pytest.mark.parametrize(
    ("decoder", "asked", "kept"),
    [
        ({"kind": "bi"}, (200, 50), (80, 50)),
        ({"kind": "poly", "codes": 2}, (100, 120), (80, 80)),
        ({"kind": "cross"}, (200, 20), (61, 20)),  # two texts in one frame are a token shorter than each in its own
        ({"kind": "cross"}, (20, 200), (20, 61)),
        ({"kind": "cross"}, (200, 200), (40, 41)),
    ],
)
def test_a_ranking_recipe_lowers_its_limits(
    decoder: dict[str, Any], asked: tuple[int, int], kept: tuple[int, int], backbones: Path, tmp_path: Path
) -> None:
    recipe = ranking(backbones / "bert", tmp_path, decoder, *asked)
    lowered = [
        f"{name} is lowered from {before} to {after}"
        for name, before, after in zip(("input.max_tokens", "output.candidate.max_tokens"), asked, kept, strict=True)
        if before != after
    ]
    with pytest.warns(UserWarning, match="reads at most") as said:
        train(Recipe.of(recipe), tmp_path / "out")
    lines = [str(one.message) for one in said if "reads at most" in str(one.message)]
    assert lines == [f"{backbones / 'bert'} reads at most 80 tokens: {', '.join(lowered)}"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = load_ranker(tmp_path / "out")
    assert limits(model) == kept
    model.rank("gulls " * 100, ["the " * 100, "a"])


@pytest.mark.parametrize(
    "decoder",
    [{"kind": "label"}, {"kind": "attention_rnn", "embedding": 8, "width": 8}],
    ids=["label", "text"],
)
def test_a_recipe_that_reads_texts_lowers_its_limit(decoder: dict[str, Any], backbones: Path, tmp_path: Path) -> None:
    rows = write_jsonl(tmp_path / "rows.jsonl", ROWS)
    target = "letter" if decoder["kind"] == "label" else "number"
    recipe = {
        "data": {"train": rows},
        "input": {"column": "text", "max_tokens": 100, "tokenizer": {"size": 60}},
        "encoder": {"kind": "pretrained", "name": str(backbones / "roberta")},
        "decoder": decoder,
        "target": target,
        "train": TRAIN,
    }
    with pytest.warns(
        UserWarning, match=r"roberta reads at most 80 tokens: input\.max_tokens is lowered from 100 to 80$"
    ):
        train(Recipe.of(recipe), tmp_path / "out")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = load(tmp_path / "out")
    assert model.config.input.limits() == {"max_tokens": 80}
    with pytest.warns(UserWarning, match="longer than 80 tokens"):
        model.predict(["gulls " * 200])


def test_a_recipe_says_what_it_does_not_take_from_a_folder_of_sentence_transformers(
    backbones: Path, tmp_path: Path
) -> None:
    folder = save("bert", tmp_path / "sentences")
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense"}
    lines = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(lines))
    prompts = {"prompts": {"query": "find: ", "document": "text: "}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    recipe = ranking(folder, tmp_path, {"kind": "bi"}, 20, 20)
    alone = f"{folder}: a recipe takes its network alone, without Dense in 2_Dense"
    with pytest.warns(UserWarning, match="a recipe takes its network alone") as said:
        build_model(Recipe.of(recipe), tmp_path / "tokenizers")
    remedy = "input.prompt and output.candidate.prompt set prompts"
    assert [str(one.message) for one in said] == [f"{alone}, the prompt 'find: ', the prompt 'text: '; {remedy}"]
    recipe["input"] |= {"prompt": "find: "}
    recipe["output"]["candidate"] |= {"prompt": "text: "}
    with pytest.warns(UserWarning, match="a recipe takes its network alone") as said:
        build_model(Recipe.of(recipe), tmp_path / "tokenizers")
    assert [str(one.message) for one in said] == [alone]
    (folder / "modules.json").write_text(json.dumps(lines[:2]))
    build_model(Recipe.of(recipe), tmp_path / "tokenizers")  # nothing is left out, and nothing is said
