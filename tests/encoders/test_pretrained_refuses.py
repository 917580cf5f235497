"""Folders that hold no usable backbone are refused in one line, and no code in them is run."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from tests.encoders.tiny_backbones import POSITIONS, save
from twofold.config import structure
from twofold.data import named_models
from twofold.encoders import EncoderConfig
from twofold.encoders.pretrained import Config
from twofold.errors import TwofoldError
from twofold.types import Vocabulary

STATES = frozenset(["states"])
FOLDER = "give a folder with config.json, tokenizer.json and model.safetensors"
EVIL = "from pathlib import Path\nPath({!r}).touch()\n"


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save("bert", tmp_path_factory.mktemp("bert"))


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(saved, tmp_path / "spoilt"))


def config_of(name: Path | str) -> Config:
    config = structure({"kind": "pretrained", "name": str(name)}, EncoderConfig)
    assert isinstance(config, Config)
    return config


def vocabulary(size: int = 100, limit: int = 20) -> Vocabulary:
    return Vocabulary(size, limit, pad=0, unknown=1, start=2, end=3)


def build_and_fill(config: Config) -> None:
    config.fill(config.build(vocabulary(), STATES))


def refused(act: Callable[[], Any]) -> str:
    with pytest.raises(TwofoldError) as caught:
        act()
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 600
    return line


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


@pytest.mark.parametrize("name", ["/no/such/folder", "no/such", "./no-such-folder", "no-such-name"])
@pytest.mark.parametrize("act", [Config.settled, Config.spec, Config.own_tokenizer, build_and_fill])
def test_a_folder_that_is_not_there(name: str, act: Callable[[Config], Any]) -> None:
    start = time.perf_counter()
    line = refused(lambda: act(config_of(name)))
    assert line.startswith(f"{name}: could not be loaded (there is no such folder, and from the hub: ")
    assert FOLDER in line
    assert time.perf_counter() - start < 2


def test_the_default_without_its_package_names_the_command_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_models, "package_folder", lambda module: None)
    for act in (Config.settled, Config.own_tokenizer):
        line = refused(lambda act=act: act(Config()))  # type: ignore[misc]
        assert line == "default: its weights are not on this machine; `twofold pull default` brings them"


def test_no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    assert refused(config_of(folder).own_tokenizer).startswith(f"{folder}: has no tokenizer; {FOLDER}")


@pytest.mark.parametrize("content", ["", "{", "[]", "\0\xff"])
@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json"])
def test_a_damaged_tokenizer(file: str, content: str, folder: Path) -> None:
    (folder / file).write_text(content)
    assert str(folder) in refused(config_of(folder).own_tokenizer)


def test_a_tokenizer_without_special_tokens(folder: Path) -> None:
    about = json.loads((folder / "tokenizer_config.json").read_text())
    kept = {key: value for key, value in about.items() if not key.endswith("_token")}
    (folder / "tokenizer_config.json").write_text(json.dumps(kept))
    assert refused(config_of(folder).own_tokenizer) == (f"{folder}: its tokenizer has no token that could serve as pad")


def test_more_tokens_than_the_backbone_knows(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens([f"new{number}" for number in range(160)])
    tokenizer.save_pretrained(folder)
    config = config_of(folder)
    size = len(config.own_tokenizer())
    line = refused(lambda: config.build(vocabulary(size), STATES))
    assert line == f"{folder}: its weights know 160 tokens and the tokenizer {size}; take both from one model"


def test_a_token_beyond_what_the_backbone_knows(folder: Path) -> None:
    """As many tokens as there are vectors are not enough where one of them has a higher number."""
    content = json.loads((folder / "tokenizer.json").read_text())
    last = max(content["model"]["vocab"], key=content["model"]["vocab"].get)
    content["model"]["vocab"][last] = 500
    (folder / "tokenizer.json").write_text(json.dumps(content))
    config = config_of(folder)
    line = refused(lambda: config.build(vocabulary(len(config.own_tokenizer())), STATES))
    assert line == f"{folder}: its weights know 160 tokens and the tokenizer 501; take both from one model"


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"model_type": "no-such-type"}', '{"model_type": 3}'])
def test_a_damaged_config(content: str, folder: Path) -> None:
    (folder / "config.json").write_text(content)
    for act in (Config.settled, build_and_fill):
        assert refused(lambda act=act: act(config_of(folder))).startswith(f"{folder}: ")  # type: ignore[misc]


def test_settings_that_contradict_each_other(folder: Path) -> None:
    change(folder / "config.json", num_attention_heads=3)
    line = refused(lambda: build_and_fill(config_of(folder)))
    assert "not a multiple of the number of attention heads" in line


def test_a_saved_architecture_that_this_version_does_not_know() -> None:
    line = refused(lambda: build_and_fill(Config("gone", architecture={"model_type": "of-the-future"})))
    assert "of-the-future" in line
    assert line.endswith("; its architecture may need another version of transformers")


def test_weights_as_a_pickle(folder: Path, tmp_path: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    line = refused(lambda: build_and_fill(config_of(folder)))
    assert "no file named model.safetensors" in line
    assert FOLDER in line


@pytest.mark.parametrize("spoil", [lambda whole: whole[: len(whole) // 2], lambda _: b"", lambda _: b"\xff" * 100])
def test_damaged_weights(spoil: Callable[[bytes], bytes], folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(spoil(file.read_bytes()))
    assert refused(lambda: build_and_fill(config_of(folder))).startswith(f"{file}: damaged (")


def test_weights_that_are_not_all_there(folder: Path) -> None:
    file = folder / "model.safetensors"
    tensors = load_file(file)
    lost = ["encoder.layer.1.output.dense.weight", "encoder.layer.1.output.dense.bias"]
    save_file({name: value for name, value in tensors.items() if name not in lost}, file, {"format": "pt"})
    line = refused(lambda: build_and_fill(config_of(folder)))
    shapes = [tuple(tensors[name].shape) for name in lost]
    each = "; ".join(f"{name} {shape}, not there" for name, shape in zip(lost, shapes, strict=True))
    assert line.startswith(f"{folder}: its weights do not fit: {each}; take all from one model; start_anyway=true")


def test_weights_that_do_not_fit_are_left_out_where_that_is_asked_for(folder: Path) -> None:
    change(folder / "config.json", num_hidden_layers=1)
    with pytest.raises(
        TwofoldError, match=r"; encoder\.layer\.1\.output\.dense\.weight \(16, 32\), not here;"
    ) as caught:
        build_and_fill(config_of(folder))
    assert str(caught.value).endswith("start_anyway=true leaves these out")
    config = config_of(folder)
    encoder = config.build(vocabulary(), STATES)
    with pytest.warns(UserWarning, match=r"does not fit in all; left out: encoder\.layer\.1\."):
        config.fill(encoder, anyway=True)
    query = encoder.state_dict()["backbone.encoder.layer.0.attention.self.query.weight"]
    assert torch.equal(query, load_file(folder / "model.safetensors")["encoder.layer.0.attention.self.query.weight"])


@pytest.mark.parametrize("name", ["encoder.layer.0.adapter.weight", "adapter.0.weight"])
def test_weights_that_the_architecture_has_no_place_for(folder: Path, name: str) -> None:
    file = folder / "model.safetensors"
    save_file(load_file(file) | {name: torch.zeros(2, 3)}, file, {"format": "pt"})
    line = refused(lambda: build_and_fill(config_of(folder)))
    assert line.startswith(f"{folder}: its weights do not fit: {name} (2, 3), not here; ")


def test_what_was_trained_on_top_may_be_left_over(folder: Path) -> None:
    file = folder / "model.safetensors"
    within = {f"bert.{name}": value for name, value in load_file(file).items()}
    save_file(within | {"my_head.weight": torch.zeros(2), "cls.bias": torch.zeros(1)}, file, {"format": "pt"})
    build_and_fill(config_of(folder))


def test_weights_of_another_size(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    change(folder / "config.json", intermediate_size=48)
    line = refused(lambda: build_and_fill(config_of(folder)))
    assert re.search(
        r"do not fit: encoder\.layer\.0\.intermediate\.dense\.weight \(48, \d+\), there \(\d+, \d+\); ", line
    )
    assert line.count(", there (") == 6
    assert capfd.readouterr() == ("", "")


def test_a_pooler_may_be_missing(folder: Path) -> None:
    file = folder / "model.safetensors"
    tensors = load_file(file)
    assert any(name.startswith("pooler.") for name in tensors)
    kept = {name: value for name, value in tensors.items() if not name.startswith("pooler.")}
    save_file(kept, file, {"format": "pt"})
    build_and_fill(config_of(folder))


def test_an_architecture_that_is_code_is_refused_and_not_run(folder: Path, tmp_path: Path) -> None:
    (folder / "evil.py").write_text(EVIL.format(str(tmp_path / "ran")))
    change(folder / "config.json", model_type="evil", auto_map={"AutoConfig": "evil.C", "AutoModel": "evil.M"})
    assert "custom code" in refused(config_of(folder).settled)
    assert not (tmp_path / "ran").exists()


def test_code_beside_a_known_architecture_is_not_run(folder: Path, tmp_path: Path) -> None:
    (folder / "evil.py").write_text(EVIL.format(str(tmp_path / "ran")))
    change(folder / "config.json", auto_map={"AutoConfig": "evil.C", "AutoModel": "evil.M"})
    change(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.T", "evil.T"]}, tokenizer_class="T")
    config = config_of(folder).settled()
    config.own_tokenizer()
    build_and_fill(config)
    assert config.architecture is not None
    assert "auto_map" not in config.architecture
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("family", ["bert", "distilbert", "gpt2", "mpnet", "roberta"])
def test_limits_beyond_the_positions_that_the_backbone_knows(family: str, tmp_path: Path) -> None:
    config = config_of(save(family, tmp_path / family))
    tokens = torch.full((1, POSITIONS), 5)
    encoder = config.build(vocabulary(limit=POSITIONS), STATES)
    encoder.backbone(input_ids=tokens)  # every place has a vector
    line = refused(lambda: config.build(vocabulary(limit=POSITIONS + 1), STATES))
    reads = f"reads at most {POSITIONS} tokens, the limits ask for {POSITIONS + 1}"
    assert line == f"{config.name} {reads}; lower input.max_tokens, and output.candidate.max_tokens of a ranker"


def test_without_a_limit_of_positions_any_length_will_do(tmp_path: Path) -> None:
    config_of(save("t5", tmp_path / "t5")).build(vocabulary(limit=10_000), STATES)
