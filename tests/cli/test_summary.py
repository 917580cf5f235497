"""`twofold summary`: parts, shapes and parameters of recipes and models, and what is refused in one line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import twofold
from tests import made
from tests.commands import answer, refusal, run
from tests.conftest import small_recipe, write_jsonl
from tests.recipe.tasks import recipe as ranking_recipe
from tests.recipe.tasks import write_pairs
from twofold.errors import TwofoldError
from twofold.model.summary import Summary
from twofold.recipe import train
from twofold.recipe.file import recipe_names, to_yaml
from twofold.storage import tensor_shapes

NOT_HERE = {"rank_convai2", "rank_reranker", "rank_ubuntu_v2"}
"""Recipes whose backbone is downloaded."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small recipe, and `run`, its training of one step."""
    folder = tmp_path_factory.mktemp("summary")
    content = small_recipe(
        write_jsonl(folder / "rows.jsonl", made.numbers(60, seed=4)), train={"max_steps": 1, "device": "cpu"}
    )
    (folder / "recipe.yaml").write_text(to_yaml(content), encoding="utf-8")
    train(content, folder / "run")
    return folder


def parts(content: dict[str, Any]) -> dict[str, Any]:
    return {part["name"]: part for part in content["parts"]}


@pytest.mark.parametrize("name", sorted(set(recipe_names()) - NOT_HERE))
def test_every_packaged_recipe_is_summarized_without_its_data(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TWOFOLD_DATA", raising=False)
    summary = twofold.summary(name)
    assert summary.total.parameters > 0
    assert (summary.parts[0].letter, summary.parts[-1].letter) == ("X", "Y")
    assert max(map(len, repr(summary).splitlines())) < 140


def test_a_loaded_model_is_summarized_like_its_folder(folder: Path) -> None:
    assert repr(twofold.summary(twofold.load(folder / "run"))) == repr(twofold.summary(folder / "run"))
    with pytest.raises(TwofoldError, match=r"encoder.width=3: changes are for recipes, and this is a model"):
        twofold.summary(twofold.load(folder / "run"), ["encoder.width=3"])


def test_the_shapes_follow_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TWOFOLD_DATA", raising=False)
    content = parts(answer("summary", "translate", "encoder.width=64", "input.max_tokens=50"))
    assert content["encoder"]["gives"] == [{"name": "states", "shape": ["batch", "positions ≤ 50", 64]}]
    assert content["input"]["vocabulary"] == content["output"]["vocabulary"] == 4000
    shown = run("summary", "translate", "encoder.width=64", "input.max_tokens=50").stdout
    assert "f: X → H, g: H → Y" in shown
    assert "H: states (batch, positions ≤ 50, 64)" in shown


def test_the_maps_of_images_of_one_size_have_their_height_and_width() -> None:
    encoder = {"kind": "convnet", "widths": [8, 16], "blocks": 1, "stem": 2}
    content = {"encoder": encoder, "decoder": {"kind": "label"}, "input": {"kind": "image", "size": [12, 20]}}
    states = twofold.summary({"data": {"train": "x"}, **content}).parts[1].gives
    assert [str(flow) for flow in states] == ["states (batch, 15, 16)"]  # 3 × 5 places of the last map


def test_a_trained_model_has_the_parameters_of_its_summary(folder: Path) -> None:
    content = answer("summary", folder / "run")
    model = twofold.load(folder / "run")
    assert content["total"]["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert content == answer("summary", folder / "run" / "model")
    assert json.loads(json.dumps(model.summary().as_dict())) == content
    shapes = tensor_shapes(folder / "run" / "model" / "model.safetensors", "")
    assert content["total"]["bytes"] == 4 * sum(math.prod(shape) for shape in shapes.values())


def test_a_recipe_has_the_parameters_of_the_model_it_trains(folder: Path) -> None:
    trained, told = twofold.load(folder / "run").summary(), twofold.summary(folder / "recipe.yaml")
    assert told.sizes == trained.sizes
    assert told.parts[-1].vocabulary == trained.parts[-1].vocabulary == 90
    assert "little data may give fewer tokens" in " ".join(told.notes)


def test_a_summary_takes_no_memory_for_the_weights() -> None:
    widths = ["encoder.width=16384", "encoder.layers=30", "decoder.width=16384"]
    assert answer("summary", "translate", *widths)["total"]["parameters"] > 10**10


def test_classes_that_only_the_rows_tell_are_said_to_be_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TWOFOLD_DATA", raising=False)
    assert parts(answer("summary", "tag_names_ko"))["output"]["classes"] == 0
    shown = run("summary", "tag_names_ko").stdout
    assert "classes known after training" in shown
    assert "note: the number of classes is known after training" in shown


def test_a_frozen_encoder_has_no_trained_parameters(folder: Path) -> None:
    encoder, decoder = answer("summary", folder / "recipe.yaml", "train.freeze=encoder")["sizes"]
    assert encoder["parameters"] > 0 == encoder["trained"]
    assert decoder["trained"] == decoder["parameters"] > 0


def test_both_sides_of_a_ranker_are_shown_and_what_is_kept_of_a_candidate(tmp_path: Path) -> None:
    rows = write_pairs(tmp_path)
    for ranks, vectors, size in (("bi", 1, 4), ("late", 9, 2)):
        content = ranking_recipe(rows, ranks, output={"candidate": {"max_tokens": 9}})
        summary = twofold.summary(content)
        assert {"contexts", "candidates", "encoder", "same encoder"} <= {part.name for part in summary.parts}
        assert summary.candidate is not None
        assert summary.candidate.vectors == vectors
        assert summary.candidate.bytes == vectors * summary.candidate.width * size
    joined = twofold.summary(ranking_recipe(rows, "cross"))
    assert joined.candidate is None
    assert "← pairs of tokens" in repr(joined)


def test_an_index_keeps_of_a_candidate_what_its_summary_says(tmp_path: Path) -> None:
    twofold_run = train(ranking_recipe(write_pairs(tmp_path), "late", train={"max_steps": 1}), tmp_path / "run")
    summary: Summary = twofold_run.model.summary()
    assert summary.candidate is not None
    with twofold.build_index(tmp_path / "index", tmp_path / "run", ["a b", "c d e"]) as index:
        info = index.info()
    assert info["width"] == summary.candidate.width
    assert info["bytes_per_candidate"] <= summary.candidate.bytes


def test_the_default_model_is_summarized() -> None:
    content = answer("summary", "default")
    assert content["candidate"]["width"] == 384


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["translat"], "there is no model or recipe 'translat'; did you mean 'translate'?"),
        (["no/such/model"], "no/such/model: no such model"),
        (["none.yaml"], "none.yaml: no such recipe"),
        (["translate", "encoder.witdh=3"], "did you mean 'width'?"),
        (["default", "encoder.width=3"], "changes are for recipes, and default is a model"),
    ],
)
def test_what_has_no_summary_is_refused_in_a_line(arguments: list[str], said: str) -> None:
    assert said in refusal("summary", *arguments)
