"""Encoders are cut into levels, each parameter in one of them, and a lower level may learn slower than one above."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from tests.conftest import decoder, encoder
from tests.encoders.tiny_backbones import save
from tests.rankers import small_ranker
from tests.training.test_freezing import labelling, trainer_of
from twofold.data.tokenizer import TextTokenizer
from twofold.model import Model
from twofold.recipe import Recipe
from twofold.recipe.build import build_model
from twofold.training.config import TrainConfig
from twofold.training.optimizer import make_optimizer
from twofold.types import Encoder, Vocabulary

VOCABULARY = Vocabulary(size=20, limit=20, pad=0, unknown=1, start=2, end=3)


def built(kind: str, **settings: Any) -> Encoder:
    config = encoder(kind, **settings)
    return config.build(VOCABULARY, config.gives())


LEVELS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("transformer", {"layers": 3}, ["embedding", "blocks.0", "blocks.1", "blocks.2 norm"]),
    ("transformer", {"layers": 1, "positions": "learned"}, ["embedding embed", "blocks.0 norm"]),
    (
        "rnn",
        {"layers": 2},
        ["embedding", "layers.forwards.0 layers.backwards.0", "layers.forwards.1 layers.backwards.1"],
    ),
    ("rnn", {"bidirectional": False}, ["embedding", "layers.forwards.0"]),
    ("text_convnet", {}, ["embedding", "enter enter_norm convolutions norm project finish"]),
    ("convnet", {}, ["stem", "stages.0", "stages.1", "stages.2"]),
    ("vit", {"layers": 2, "positions": "learned"}, ["stem rows columns", "blocks.0", "blocks.1 norm"]),
    ("vit", {"layers": 1, "prefix": True}, ["stem embedding kind", "blocks.0 norm"]),
    ("pretrained", {}, ["backbone.embeddings", "backbone.encoder.layer.0"]),
]


@pytest.mark.parametrize(("kind", "settings", "expected"), LEVELS, ids=[kind for kind, _, _ in LEVELS])
def test_levels_go_from_what_stands_before_the_layers_to_the_top(
    kind: str, settings: dict[str, Any], expected: list[str]
) -> None:
    part = built(kind, **settings)
    names = {id(one): name for name, one in part.named_parameters()}
    levels = [[names[id(one)] for one in level] for level in part.levels()]
    assert len(levels) == len(expected)
    for level, prefixes in zip(levels, expected, strict=True):
        groups = {next((one for one in prefixes.split() if f"{name}.".startswith(f"{one}.")), name) for name in level}
        assert groups == set(prefixes.split())
    every = [name for level in levels for name in level]
    assert sorted(every) == sorted(names.values())  # each once


@pytest.mark.parametrize("family", ["bert", "distilbert", "gpt2", "roberta", "t5"])
def test_the_levels_of_a_backbone_are_its_layers(tmp_path: Path, family: str) -> None:
    content = labelling(tmp_path)
    content["encoder"] = {"kind": "pretrained", "name": str(save(family, tmp_path / family))}
    content["input"]["max_tokens"] = 60
    model = build_model(Recipe.of(content), tmp_path / "tokenizers")
    levels = model.encoder.levels()
    every = [id(one) for level in levels for one in level]
    assert len(every) == len(set(every)) == len(list(model.encoder.parameters()))
    assert len(levels) == 3  # the tables, and two layers


def rates(model: Model, **settings: Any) -> dict[str, float]:
    """For each parameter what its rate is multiplied by; each must be in one group."""
    optimizer = make_optimizer(model, TrainConfig(**settings))
    groups = [(id(one), group["scale"]) for group in optimizer.param_groups for one in group["params"]]
    scales = dict(groups)
    assert len(groups) == len(scales)
    return {name: scales[id(one)] for name, one in model.named_parameters()}


def test_each_layer_learns_slower_than_the_one_above_it(tmp_path: Path) -> None:
    model = build_model(Recipe.of(labelling(tmp_path)), tmp_path / "tokenizers")
    by_name = rates(model, layer_decay=0.5)
    expected = {"embedding": 0.125, "blocks.0": 0.25, "blocks.1": 0.5, "blocks.2": 1.0, "norm": 1.0}
    for name, scale in by_name.items():
        short = name.removeprefix("encoder.")
        prefix = next((one for one in expected if short.startswith(one)), None)
        assert scale == (1.0 if prefix is None else expected[prefix]), name
    assert {name for name, scale in by_name.items() if scale < 1} > {"encoder.embedding.weight"}
    assert set(rates(model).values()) == {1.0}
    both = rates(model, layer_decay=0.5, learning_rate_multipliers={"decoders": 10.0, "encoder.embedding": 2.0})
    assert both["encoder.embedding.weight"] == 0.25
    assert {scale for name, scale in both.items() if name.startswith("decoders")} == {10.0}


def test_the_rates_of_a_step_are_those_of_the_groups(tmp_path: Path) -> None:
    content = labelling(tmp_path, layer_decay=0.5, schedule="constant", warmup=0, learning_rate=0.02)
    trainer = trainer_of(content, tmp_path / "run")
    trainer.run()
    assert {group["lr"] for group in trainer.optimizer.param_groups} == {0.02, 0.01, 0.005, 0.0025}


def test_both_towers_of_a_ranker_have_the_same_rates(tokenizer: TextTokenizer) -> None:
    ranker = small_ranker(tokenizer, encoder("transformer", layers=2), decoder("bi"), two_towers=True)
    by_name = rates(ranker, layer_decay=0.5)
    for name, scale in by_name.items():
        if name.startswith("encoder."):
            assert by_name[name.replace("encoder.", "candidate_tower.", 1)] == scale
    assert set(by_name.values()) == {1.0, 0.5, 0.25}


def test_settings_that_cannot_be_are_refused() -> None:
    for wrong in ({"unfrozen_by": 0.0}, {"unfrozen_by": 1.5}, {"layer_decay": 0.0}, {"layer_decay": 1.1}):
        with pytest.raises(ValueError, match="unfrozen_by and layer_decay must be above 0 and at most 1"):
            TrainConfig(**cast(Any, wrong))
