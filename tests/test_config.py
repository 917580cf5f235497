"""Recipes mean what people write in them, and every mistake is named with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import decoder, small_recipe
from twofold.config import Role, kind_of, kinds, part_config, structure, unstructure
from twofold.decoders import DecoderConfig, RankingDecoderConfig
from twofold.encoders import EncoderConfig
from twofold.errors import TwofoldError
from twofold.inputs import InputConfig
from twofold.inputs.text import Config as TextConfig
from twofold.losses import LossConfig
from twofold.outputs import OutputConfig
from twofold.outputs.text import Config as TextOutputConfig
from twofold.recipe import Recipe
from twofold.recipe.file import fill_environment, override, parse_yaml, read_yaml, recipe_names, to_yaml

BASES: dict[Role, type[Any]] = {
    "inputs": InputConfig,
    "outputs": OutputConfig,
    "encoders": EncoderConfig,
    "decoders": DecoderConfig,
    "losses": LossConfig,
}
PARTS: list[tuple[Role, str]] = [(role, kind) for role in BASES for kind in kinds(role)]
NEEDED: dict[str, dict[str, Any]] = {"mask": {"classes": ("road", "sky")}}
"""Settings without which a part cannot be."""


def recipe(**changes: Any) -> dict[str, Any]:
    return small_recipe("rows.jsonl", **changes)


def mistakes(content: dict[str, Any]) -> list[str]:
    with pytest.raises(TwofoldError) as caught:
        Recipe.of(content)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"encoder": {"widht": 8}}, "recipe.encoder has no 'widht'; did you mean 'width'?"),
        ({"enocder": {}}, "recipe has no 'enocder'; did you mean 'encoder'?"),
        ({"train": {"batch_token": 8}}, "recipe.train has no 'batch_token'; did you mean 'batch_tokens'?"),
        ({"train": {1: 8}}, "recipe.train has no '1'; "),
        ({"encoder": {"kind": "rmn"}}, "recipe.encoder: there is no encoder 'rmn'; did you mean 'rnn'?"),
        ({"decoder": {"kind": "zzz"}}, "recipe.decoder: there is no decoder 'zzz'; known are attention_rnn, bi, "),
        ({"decoder": {"kind": "no part"}}, "recipe.decoder: 'no part' is not the name of a part; known are "),
        ({"encoder": "rnn"}, "recipe.encoder: needs a `kind`; known are convnet, mobilenet, pretrained, rnn, "),
        ({"encoder": {"kind": "no_such.part"}}, "recipe.encoder: the encoder 'no_such.part' cannot be imported"),
        ({"encoder": {"kind": "json.decoder"}}, "recipe.encoder: the module json.decoder has no `Config` class"),
        ({"encoder": {"layers": 2.5}}, "recipe.encoder.layers: 2.5 is not a whole number"),
        ({"encoder": {"layers": True}}, "recipe.encoder.layers: True is not a whole number"),
        ({"encoder": {"bidirectional": "no"}}, "recipe.encoder.bidirectional: 'no' is not true or false"),
        ({"encoder": {"bidirectional": 0}}, "recipe.encoder.bidirectional: 0 is not true or false"),
        ({"train": {"learning_rate": "fast"}}, "recipe.train.learning_rate: 'fast' is not a number"),
        ({"train": {"epochs": "3"}}, "recipe.train.epochs: '3' is not a whole number"),
        ({"train": {"device": 3}}, "recipe.train.device: 3 is not a text"),
        ({"data": {"train": {"source": 5}}}, "recipe.data.train.source: 5 is not a text"),
        ({"train": {"optimizer": "adam"}}, "recipe.train.optimizer: 'adam' is not known; did you mean 'adamw'?"),
        ({"data": {"dev": "a", "held_out": 3}}, "recipe.data: give dev or held_out, not both"),
        ({"train": {"epochs": 0}}, "recipe.train: epochs must be at least 1, not 0"),
        ({"decoders": {"main": {"kind": "rnn", "target": "x"}}}, "recipe: give either `decoder` or `decoders`"),
    ],
)
def test_a_mistake_is_named_with_its_place(changes: dict[str, Any], said: str) -> None:
    (line,) = mistakes(recipe(**changes))
    assert line.startswith(said)


def test_all_mistakes_are_named_at_once() -> None:
    wrong = recipe(encoder={"widht": 8, "layers": 2.5}, train={"optimizer": "sgd", "epoch": 3})
    wrong["input"]["tokenizer"] = {"size": "x"}
    assert sorted(line.split(";")[0] for line in mistakes(wrong)) == [
        "recipe.encoder has no 'widht'",
        "recipe.encoder.layers: 2.5 is not a whole number",
        "recipe.input.tokenizer.size: 'x' is not a whole number",
        "recipe.train has no 'epoch'",
        "recipe.train.optimizer: 'sgd' is not known",
    ]


@pytest.mark.parametrize("key", ["data", "encoder", "decoder"])
def test_what_is_missing_is_named(key: str) -> None:
    content = recipe()
    del content[key]
    (line,) = mistakes(content)
    assert line.startswith("recipe")
    assert f"'{key}' is missing" in line or f"either `{key}`" in line


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1E5", 1e5),
        (".5", 0.5),
        ("2.", 2.0),
        ("-3e+2", -300.0),
        ("1_000", 1000),
        ("3", 3),
        ("no", "no"),
        ("on", "on"),
        ("Yes", "Yes"),
        ("true", True),
        ("False", False),
        ("1e", "1e"),
        ("~", None),
        ("[1, no, 1e-3]", [1, "no", 1e-3]),
    ],
)
def test_yaml_is_read_as_people_mean_it(text: str, value: Any) -> None:
    read = parse_yaml(text, "here")
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2\n", "here:4: not YAML (the key 'c' stands twice)"),
        ("a: [1\nb: 2\n", "here:2: not YAML ("),
        ("a: 1\n\tb: 2\n", "here:2: not YAML ("),
        ("a: !!python/object:os.system x\n", "here:1: not YAML ("),
        ("a: \0", "here: not YAML ("),
        ("? [a, b]\n: 1\n", "here"),
        ("a: 2024-13-45\n", "here"),
        ("[" * 600, "here"),
    ],
)
def test_what_is_not_yaml_is_named_with_its_line(text: str, said: str) -> None:
    with pytest.raises(TwofoldError) as caught:
        parse_yaml(text, "here")
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", ": a recipe is a mapping"),
        (b"- a\n", ": a recipe is a mapping"),
        (b"\xff\xfe", ": not readable as UTF-8 text"),
        (b"#" * 1_000_001, ": over 1,000,000 bytes; this is not a recipe"),
    ],
)
def test_a_file_that_is_no_recipe_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_bytes(content)
    with pytest.raises(TwofoldError) as caught:
        read_yaml(path)
    assert str(caught.value).startswith(f"{path}{said}")


def test_a_recipe_that_is_not_there_is_named_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(TwofoldError, match="there is no recipe 'translat'; did you mean 'translate'"):
        Recipe.load("translat")
    with pytest.raises(TwofoldError, match=r"none\.yaml: no such recipe"):
        Recipe.load(tmp_path / "none.yaml")


def test_changes_override_what_the_recipe_says() -> None:
    before = recipe()
    changes = [
        "encoder.width=5",
        "train.learning_rate=1e-4",
        "generate.beam=3",
        "source=no",
        "input.tokenizer={size: 9}",
    ]
    changed = Recipe.of(override(before, changes))
    assert isinstance(changed.input, TextConfig)
    assert (changed.input.column, changed.input.tokenizer.size, changed.generate.beam) == ("no", 9, 3)
    assert changed.train.learning_rate == 1e-4
    assert unstructure(changed.encoder)["width"] == 5
    assert before == recipe()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("train.epochs", "'train.epochs': a change is written key.path=value"),
        ("=3", "'=3': a change is written key.path=value"),
        ("data.train.x=3", "'data.train.x=3': recipe.train holds a value, not further keys"),
        ("train.epochs=[1", "'train.epochs=[1':1: not YAML ("),
    ],
)
def test_a_change_that_cannot_be_made_is_named(change: str, said: str) -> None:
    with pytest.raises(TwofoldError) as caught:
        override(recipe(), [change])
    assert str(caught.value).startswith(said)


def test_the_environment_fills_in_where_the_data_is(monkeypatch: pytest.MonkeyPatch) -> None:
    content = recipe(data={"train": {"a": "${TWOFOLD_DATA}/x", "b": "$HOME {y}"}})
    monkeypatch.delenv("TWOFOLD_DATA", raising=False)
    (line,) = mistakes(content)
    assert line.startswith("the recipe needs ${TWOFOLD_DATA}, which is not set")
    monkeypatch.setenv("TWOFOLD_DATA", "/some where")
    assert Recipe.of(content).data.train == {"a": "/some where/x", "b": "$HOME {y}"}
    assert fill_environment(["${TWOFOLD_DATA}${TWOFOLD_DATA}", 3, None]) == ["/some where/some where", 3, None]


@pytest.mark.parametrize(("role", "kind"), PARTS)
def test_the_defaults_of_every_part_come_back_from_plain_values(role: Role, kind: str) -> None:
    config = part_config(role, kind)(**NEEDED.get(kind, {}))
    plain = unstructure(config)
    assert plain["kind"] == kind_of(config) == kind
    assert structure(parse_yaml(to_yaml(plain), "here"), BASES[role]) == config


@pytest.mark.parametrize("kind", kinds("decoders"))
def test_a_recipe_comes_back_from_plain_values(kind: str) -> None:
    content = recipe() | {"decoder": {"kind": kind}}
    if not issubclass(part_config("outputs", decoder(kind).output), TextOutputConfig):
        del content["output"]  # its limit is that of texts
    if issubclass(part_config("decoders", kind), RankingDecoderConfig):
        content = {"data": {"train": "rows.jsonl"}, "encoder": {"kind": "transformer"}, "decoder": {"kind": kind}}
    if kind == "unet":
        content = {"data": {"train": "street"}, "encoder": {"kind": "convnet"}, "decoder": {"kind": kind}}
        content |= {"input": {"size": [20, 30]}, "output": {"classes": ["road", "sky"]}}
    if kind == "tree":
        content["target"] = ["heads", "relations"]
    loaded = Recipe.of(content)
    assert Recipe.of(loaded.plain()) == loaded
    assert Recipe.of(parse_yaml(to_yaml(loaded.plain()), "here")) == loaded


def test_several_decoders_have_their_own_targets_and_weights() -> None:
    content = recipe(decoders={"en": {"kind": "rnn", "target": "english"}})
    del content["decoder"], content["output"]
    content["decoders"]["ko"] = {"kind": "attention_rnn", "target": "korean", "weight": 0.5, "width": 7}
    both = Recipe.of(content)
    tasks = both.model_config().tasks
    assert [(name, task.output.columns(), task.weight) for name, task in tasks.items()] == [
        ("en", ("english",), 1.0),
        ("ko", ("korean",), 0.5),
    ]
    assert unstructure(tasks["ko"].decoder)["width"] == 7
    assert both.plain()["decoders"]["ko"]["width"] == 7
    assert Recipe.of(both.plain()) == both


@pytest.mark.parametrize(
    ("slot", "said"),
    [
        (3, "recipe.decoders.ko: needs `kind` and `target`"),
        ({"kind": "rnn"}, "recipe.decoders.ko: the decoder 'rnn' needs a column to learn from: target"),
        ({"kind": "rnn", "target": "x", "widht": 3}, "recipe.decoders.ko has no 'widht'; did you mean 'width'?"),
        ({"kind": "rnn", "targt": "x"}, "recipe.decoders.ko has no 'targt'; did you mean 'target'?"),
    ],
)
def test_a_mistake_in_one_of_several_decoders_is_named(slot: Any, said: str) -> None:
    content = recipe(decoders={"ko": slot})
    del content["decoder"], content["output"]
    assert mistakes(content) == [said]


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_that_comes_along_loads(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TWOFOLD_DATA", "/anywhere")
    loaded = Recipe.load(name)
    files = [loaded.data.train] if isinstance(loaded.data.train, str) else loaded.data.train
    assert all(file.startswith("/anywhere/") for file in files)
    assert Recipe.of(loaded.plain()) == loaded


def test_there_are_recipes_that_come_along() -> None:
    assert {"translate", "translate_rnn", "translate_attention_rnn"} <= set(recipe_names())
