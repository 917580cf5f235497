"""Trainings start from another model's encoder: its weights, settings and tokenizer."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import twofold
from tests.encoders.tiny_backbones import save
from tests.images import COLORS, segmenting, shape, squares_files, write_files, write_shapes
from tests.recipe import tasks
from tests.texts import FILL, READS, colored, recipe, tagged, write
from twofold.api import load_ranker
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.model import Model
from twofold.recipe import Recipe, train
from twofold.recipe.build import build_model

LABEL = ({"source": "text", "target": "label", "input": {"max_tokens": 60}}, {"kind": "label"})
TAGS = ({"source": "words", "target": "tags", "input": {"max_tokens": 60}}, {"kind": "tags"})


pytestmark = pytest.mark.usefixtures("one_thread")


def repeated(draw: random.Random) -> dict[str, Any]:
    """Words and numbers that no other data here has."""
    return {"text": " ".join(draw.choice(["ferry", "gulls", "seven", *FILL]) for _ in range(6))}


@pytest.fixture
def pretrained(tmp_path: Path) -> Path:
    """The folder of a short pre-training."""
    rows = write(tmp_path / "raw", repeated, 60)
    content = recipe(rows, {"source": "text"}, {"kind": "tokens"}, max_steps=3)
    content["input"]["tokenizer"] = {"size": 60}
    train(Recipe.of(content), tmp_path / "pretrained")
    return tmp_path / "pretrained"


def begun(content: dict[str, Any], folder: Path) -> Any:
    """The model of a recipe before its first step."""
    torch.manual_seed(1)
    return build_model(Recipe.of(content), folder / "tokenizers")


def encoder_of(model: Model) -> dict[str, Tensor]:
    return dict(model.encoder.state_dict())


def same(first: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return first.keys() == other.keys() and all(torch.equal(first[name], value) for name, value in other.items())


def tokenizer_of(model: Any) -> TextTokenizer:
    tokenizer: TextTokenizer = model.tokenizers["input"]
    return tokenizer


def test_a_pretrained_folder_as_the_encoder_is_the_same_as_to_start_from_it(tmp_path: Path, pretrained: Path) -> None:
    rows, (data, writes) = write(tmp_path, colored, 30), LABEL
    plain = recipe(rows, data, writes, max_steps=2)
    by_folder = {**plain, "encoder": str(pretrained)}
    by_start = {**plain, "start": str(pretrained)}
    assert Recipe.of(by_folder) == Recipe.of(by_start)
    before, models = twofold.load(pretrained, "cpu"), []
    for number, content in enumerate((by_folder, by_start)):
        model = begun(content, tmp_path / str(number))
        assert same(encoder_of(model), encoder_of(before))
        assert tokenizer_of(model).fingerprint() == tokenizer_of(before).fingerprint()
        train(Recipe.of(content), tmp_path / f"run{number}")
        models.append(twofold.load(tmp_path / f"run{number}", "cpu"))
    assert same(dict(models[0].state_dict()), dict(models[1].state_dict()))
    assert not same(encoder_of(models[0]), encoder_of(before))  # it went on learning
    alone = begun(plain, tmp_path / "alone")
    assert tokenizer_of(alone).fingerprint() != tokenizer_of(before).fingerprint()


def test_what_was_learned_before_is_there_at_the_first_step(tmp_path: Path) -> None:
    rows, (data, writes) = write(tmp_path, colored), LABEL
    train(Recipe.of(recipe(rows, data, writes, max_steps=60)), tmp_path / "first")
    again = recipe(rows, data, writes, max_steps=15, freeze="encoder", learning_rate=3e-2)
    train(Recipe.of({**again, "encoder": str(tmp_path / "first")}), tmp_path / "known")
    train(Recipe.of(again), tmp_path / "unknown")
    dev = write(tmp_path, colored, 60, 2, "dev")
    known, unknown = (twofold.evaluate(tmp_path / name, dev).metrics["accuracy"] for name in ("known", "unknown"))
    assert known > 0.95 > unknown + 0.1


@pytest.mark.parametrize("attention", ["window", "linear"])
def test_another_attention_starts_from_the_weights_of_full_attention(
    tmp_path: Path, pretrained: Path, attention: str
) -> None:
    rows, (data, writes) = write(tmp_path, colored, 30), LABEL
    content = recipe(rows, data, writes, max_steps=2)
    content |= {"start": str(pretrained), "encoder": {**READS, "attention": attention, "window": 2}}
    before = twofold.load(pretrained, "cpu")
    assert same(encoder_of(begun(content, tmp_path)), encoder_of(before))
    train(Recipe.of(content), tmp_path / "run")
    again = {**content, "encoder": str(tmp_path / "run")}
    del again["start"]
    assert Recipe.of(again).plain()["encoder"]["attention"] == attention


@pytest.mark.parametrize("change", [{"width": 24}, {"layers": 3}, {"feed_forward": 48}, {"positions": "learned"}])
def test_weights_that_do_not_fit_are_named_with_both_shapes(
    tmp_path: Path, pretrained: Path, change: dict[str, Any]
) -> None:
    rows, (data, writes) = write(tmp_path, colored, 30), LABEL
    content = recipe(rows, data, writes, max_steps=2)
    content |= {"start": str(pretrained), "encoder": {**READS, **change}}
    with pytest.raises(TwofoldError) as caught:
        train(Recipe.of(content), tmp_path / "run")
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(f"start: {pretrained / 'model'} does not fit: encoder.")
    assert line.endswith("start from a model of the same encoder; start_anyway=true leaves these out")
    tokens = len(tokenizer_of(twofold.load(pretrained, "cpu")))
    shapes = {
        "width": f"encoder.embedding.weight ({tokens}, 24), there ({tokens}, 32)",
        "layers": "encoder.blocks.2.attention.",
        "feed_forward": "feed_forward.inner.weight (48, 32), there (64, 32)",
        "positions": "not there",
    }
    assert shapes[next(iter(change))] in line


def test_weights_that_do_not_fit_stay_as_they_are_where_that_is_asked_for(tmp_path: Path, pretrained: Path) -> None:
    rows, (data, writes) = write(tmp_path, colored, 30), LABEL
    content = recipe(rows, data, writes, max_steps=2)
    content |= {"encoder": {**READS, "layers": 3}, "start": str(pretrained), "start_anyway": True}
    with pytest.warns(UserWarning, match=r"does not fit in all; left out: encoder\.blocks\.2\.\S+ \(.*not there"):
        model = begun(content, tmp_path)
    torch.manual_seed(1)
    drawn = encoder_of(Model(model.config, model.tokenizers))
    theirs = encoder_of(twofold.load(pretrained, "cpu"))
    for name, value in encoder_of(model).items():
        assert torch.equal(value, theirs[name] if name in theirs else drawn[name])
    assert any(name.startswith("blocks.2") for name in drawn)
    content["encoder"] = {**READS, "width": 16, "feed_forward": 12}
    with pytest.raises(TwofoldError, match=r"^start: nothing of .* fits: encoder\."):
        begun(content, tmp_path / "none")


def test_a_backbone_keeps_its_own_tokens_where_other_weights_need_not_fit(tmp_path: Path, pretrained: Path) -> None:
    folder = save("bert", tmp_path / "bert")
    content = recipe(write(tmp_path, colored, 20), *LABEL, max_steps=2)
    content |= {"encoder": str(folder)}  # a folder of transformers is an encoder too
    fingerprint = tokenizer_of(begun(content, tmp_path / "own")).fingerprint()
    content |= {"encoder": {"kind": "pretrained", "name": str(folder)}, "start": str(pretrained)}
    with pytest.raises(TwofoldError, match=r"start: nothing of .* fits"):
        begun({**content, "start_anyway": True}, tmp_path / "run")
    kept = Recipe.of({**content, "start_anyway": True}).own_tokenizer()
    assert kept is not None
    assert kept.fingerprint() == fingerprint


def test_the_decoders_of_the_other_model_are_not_taken(tmp_path: Path) -> None:
    rows, (data, writes) = write(tmp_path, colored, 30), LABEL
    train(Recipe.of(recipe(rows, data, writes, max_steps=3)), tmp_path / "first")
    plain = recipe(rows, data, writes, max_steps=2)
    begun_again = begun({**plain, "start": str(tmp_path / "first")}, tmp_path / "a")
    other, first = begun(plain, tmp_path / "b"), twofold.load(tmp_path / "first", "cpu")
    assert same(dict(begun_again.decoders.state_dict()), dict(other.decoders.state_dict()))
    assert not same(dict(begun_again.decoders.state_dict()), dict(first.decoders.state_dict()))


@pytest.mark.parametrize(
    ("ranks", "two_towers"), [("bi", False), ("bi", True), ("poly", False), ("poly", True), ("cross", False)]
)
def test_a_pretrained_encoder_serves_a_ranker(tmp_path: Path, pretrained: Path, ranks: str, two_towers: bool) -> None:
    content = tasks.recipe(tasks.write_pairs(tmp_path), ranks, two_towers=two_towers, train={"max_steps": 2})
    content["encoder"] = str(pretrained)
    before, model = twofold.load(pretrained, "cpu"), begun(content, tmp_path)
    for tower in model.encoders():
        assert same(dict(tower.state_dict()), encoder_of(before))
    assert len(model.encoders()) == 1 + two_towers
    assert model.tokenizer.fingerprint() == tokenizer_of(before).fingerprint()
    train(Recipe.of(content), tmp_path / "ranker")
    assert len(load_ranker(tmp_path / "ranker", "cpu").rank("the old boat", ["boat", "gulls"])) == 2


def test_a_rankers_encoder_serves_a_tagger(tmp_path: Path) -> None:
    train(
        Recipe.of(tasks.recipe(tasks.write_pairs(tmp_path), two_towers=True, train={"max_steps": 2})), tmp_path / "bi"
    )
    rows, (data, writes) = write(tmp_path, tagged, 30), TAGS
    content = {**recipe(rows, data, writes, max_steps=2), "encoder": str(tmp_path / "bi")}
    assert same(encoder_of(begun(content, tmp_path / "t")), encoder_of(twofold.load(tmp_path / "bi", "cpu")))
    train(Recipe.of(content), tmp_path / "run")


def write_colors(folder: Path, rows: int, first: int = 0) -> Path:
    """Images of shapes, and a table with the color of each."""
    table = write_shapes(folder, rows, first)
    lines = [f"{number:03}.png\t{list(COLORS)[number % len(COLORS)]}" for number in range(first, first + rows)]
    table.write_text("\n".join(["image\tcolor", *lines]) + "\n")
    return table


def test_what_tells_colors_of_images_helps_to_paint_them(tmp_path: Path) -> None:
    table = write_colors(tmp_path / "colors", 64)
    content = segmenting(table, decoder={"kind": "label"}, target="color")
    del content["output"]
    content["train"] |= {"max_steps": 60, "batch_rows": 16, "learning_rate": 1e-2}
    train(Recipe.of(content), tmp_path / "labels")
    dev = write_colors(tmp_path / "dev", 24, 500)
    assert twofold.evaluate(tmp_path / "labels", str(dev)).metrics["accuracy"] > 0.9
    model = twofold.load(tmp_path / "labels", "cpu")
    predictions = model.predict([shape(seed)[0] for seed in range(600, 608)])
    assert sum(one.output == shape(600 + n)[1].split()[1] for n, one in enumerate(predictions)) >= 7
    squares = write_files(tmp_path / "squares", squares_files(8))
    painting = {**segmenting(squares, train={"freeze": "encoder"}), "encoder": str(tmp_path / "labels")}
    assert same(encoder_of(begun(painting, tmp_path)), encoder_of(model))
    train(Recipe.of(painting), tmp_path / "paints")
    assert same(encoder_of(twofold.load(tmp_path / "paints", "cpu")), encoder_of(model))  # statistics of norms too


def test_a_backbone_that_was_trained_on_needs_its_first_folder_no_more(tmp_path: Path) -> None:
    folder = save("bert", tmp_path / "bert")
    rows, (data, writes) = write(tmp_path, colored, 20), LABEL
    content = recipe(rows, data, writes, max_steps=2)
    train(Recipe.of({**content, "encoder": {"kind": "pretrained", "name": str(folder)}}), tmp_path / "first")
    folder.rename(tmp_path / "moved")
    tags = recipe(write(tmp_path, tagged, 20, name="tags"), *TAGS, max_steps=2)
    tags["encoder"] = str(tmp_path / "first")
    assert same(encoder_of(begun(tags, tmp_path / "t")), encoder_of(twofold.load(tmp_path / "first", "cpu")))
    train(Recipe.of(tags), tmp_path / "second")
    ranking = {**tasks.recipe(tasks.write_pairs(tmp_path), train={"max_steps": 2}), "encoder": str(tmp_path / "first")}
    train(Recipe.of(ranking), tmp_path / "third")


def test_one_table_for_both_sides_needs_one_vocabulary(tmp_path: Path, pretrained: Path) -> None:
    size = len(tokenizer_of(twofold.load(pretrained, "cpu")))
    writes = {"kind": "transformer", "width": 32, "layers": 1, "heads": 2}
    data = {"source": "text", "target": "text", "input": {"max_tokens": 60, "tokenizer": {"size": size}}}
    content = recipe(write(tmp_path, colored), data, writes, max_steps=2)
    content |= {"tie_embeddings": True}
    train(Recipe.of(content), tmp_path / "alone")
    assert len(tokenizer_of(twofold.load(tmp_path / "alone", "cpu"))) == size  # as many tokens, but others
    with pytest.raises(TwofoldError, match=r"tie_embeddings: .* over one vocabulary"):
        train(Recipe.of({**content, "encoder": str(pretrained)}), tmp_path / "tied")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"encoder": "{here}/none"}, "recipe.encoder: needs a `kind`"),
        ({"start": "{here}"}, "{here}: holds no model"),
        ({"encoder": "{here}/pretrained", "start": "{here}/other"}, "recipe.start: {here}/other, but the encoder is"),
    ],
)
@pytest.mark.usefixtures("pretrained")
def test_a_folder_that_cannot_be_started_from_is_named(tmp_path: Path, changes: dict[str, str], said: str) -> None:
    rows, (data, writes) = write(tmp_path, colored, 20), LABEL
    filled = {name: value.format(here=tmp_path) for name, value in changes.items()}
    with pytest.raises(TwofoldError) as caught:
        train(Recipe.of({**recipe(rows, data, writes), **filled}), tmp_path / "run")
    assert str(caught.value).startswith(said.format(here=tmp_path))
