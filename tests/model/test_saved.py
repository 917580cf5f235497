"""A saved model loads as it was; a damaged or foreign one is refused with a line that names the file."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import twofold
from tests.conftest import decoder, encoder, small_model
from twofold import storage
from twofold.data.tokenizer import TextTokenizer, TokenizerConfig
from twofold.errors import TwofoldError
from twofold.model import Model
from twofold.model.saved import unique_tensors

TEXTS = ["one thousand and one", "구만 육백", "a b c"]


@pytest.fixture
def saved(tmp_path: Path, tokenizer: TextTokenizer) -> Path:
    small_model(tokenizer, encoder("rnn"), decoder("attention_rnn")).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def refusal(folder: Path, allow_code: bool = False) -> str:
    with pytest.raises(TwofoldError) as caught:
        twofold.load(folder, "cpu", allow_code)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    about = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    change(about)
    about.pop("checksum", None)
    (folder / "config.json").write_text(json.dumps(about), encoding="utf-8")


def test_settings_that_are_not_what_was_saved_are_refused_unless_somebody_says_so(saved: Path) -> None:
    config = saved / "config.json"
    config.write_text(config.read_text().replace('"max_tokens": ', '"max_tokens": 1', 1))
    assert refusal(saved).startswith(f"{config}: damaged or changed by hand")
    edit(saved, lambda about: None)
    twofold.load(saved, "cpu")


def test_a_loaded_model_predicts_what_the_saved_one_did(saved: Path, tokenizer: TextTokenizer) -> None:
    model = small_model(tokenizer, encoder("rnn"), decoder("attention_rnn"))
    loaded = twofold.load(saved)
    assert loaded.config == model.config
    assert loaded.predict(TEXTS) == model.predict(TEXTS)
    assert not loaded.training


def test_a_model_is_safetensors_and_json_and_nothing_else(tmp_path: Path, tokenizer: TextTokenizer) -> None:
    trained = TextTokenizer.train(TEXTS, TokenizerConfig(size=40))
    model = small_model(tokenizer, encoder("transformer"), decoder("rnn"), decoder("transformer"))
    Model(model.config, {"input": tokenizer, "main": tokenizer, "main1": trained}).save_pretrained(tmp_path / "model")
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert names == {"model.safetensors", "config.json", "tokenizer.input.json", "tokenizer.main1.json"}
    for name in names - {"model.safetensors"}:
        json.loads((tmp_path / "model" / name).read_bytes())
    tensors = storage.read_tensors(tmp_path / "model" / "model.safetensors", "")
    assert {name.split(".")[0] for name in tensors} == {"encoder", "decoders"}
    assert {name.split(".")[1] for name in tensors if name.startswith("decoders.")} == {"main", "main1"}
    loaded = twofold.load(tmp_path / "model")
    assert loaded.tokenizers["main1"].to_json() == trained.to_json()


def test_a_tied_tensor_is_saved_once_and_stays_tied(tmp_path: Path, tokenizer: TextTokenizer) -> None:
    parts = encoder("transformer"), decoder("transformer", tied=True)
    model = small_model(tokenizer, *parts, tie_embeddings=True)
    model.save_pretrained(tmp_path / "model")
    loaded: Any = twofold.load(tmp_path / "model")
    assert loaded.encoder.embedding.weight is loaded.decoders["main"].embedding.weight
    assert loaded.encoder.embedding.weight is loaded.decoders["main"].output.weight
    tensors = storage.read_tensors(tmp_path / "model" / "model.safetensors", "")
    assert sum(tensor.shape == (len(tokenizer), 16) for tensor in tensors.values()) == 1
    assert loaded.predict(TEXTS) == model.predict(TEXTS)


def test_the_model_may_be_a_training_folder_or_its_model(tmp_path: Path, saved: Path) -> None:
    from_folder, from_model = twofold.load(tmp_path), twofold.load(str(saved))
    assert from_folder.predict(TEXTS) == from_model.predict(TEXTS)


@pytest.mark.parametrize("inside", [".", "model"])
def test_the_model_may_be_the_current_folder(
    tmp_path: Path, saved: Path, monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    monkeypatch.chdir(tmp_path / inside)
    assert len(twofold.load(".").predict(TEXTS)) == len(TEXTS)


def test_a_model_that_is_just_being_replaced_is_read_as_it_was(tmp_path: Path, saved: Path) -> None:
    expected = twofold.load(saved).predict(TEXTS)
    saved.rename(tmp_path / ".model.old")
    assert twofold.load(saved).predict(TEXTS) == expected
    assert twofold.load(tmp_path).predict(TEXTS) == expected


def test_a_model_loads_on_the_device_asked_for(saved: Path) -> None:
    assert twofold.load(saved, device="cpu").device == torch.device("cpu")


@pytest.mark.parametrize("device", ["nonsense", "cuda:99"])
def test_a_device_that_is_not_there_is_one_line(saved: Path, device: str) -> None:
    with pytest.raises(TwofoldError, match=device):
        twofold.load(saved, device=device)


def test_a_folder_that_is_no_model_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none").startswith(f"{tmp_path / 'none'}: no such model")
    assert refusal(tmp_path).startswith(f"{tmp_path}: holds no model (config.json is missing)")


def cut(content: bytes) -> bytes:
    return content[:-10]


def flip(content: bytes) -> bytes:
    return content[:-10] + bytes([content[-10] ^ 1]) + content[-9:]


def garble(content: bytes) -> bytes:
    return b"garbage"


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model.safetensors", cut),
        ("model.safetensors", flip),
        ("model.safetensors", garble),
        ("config.json", cut),
        ("config.json", garble),
        ("tokenizer.input.json", cut),
        ("tokenizer.input.json", garble),
    ],
)
def test_a_damaged_file_is_named(saved: Path, name: str, damage: Callable[[bytes], bytes]) -> None:
    (saved / name).write_bytes(damage((saved / name).read_bytes()))
    assert refusal(saved).startswith(f"{saved / name}: ")


def test_the_tokenizer_of_another_model_is_refused_whatever_its_size(saved: Path) -> None:
    """Its ids would stand for other tokens than the weights have learned, and nothing else would tell."""
    path = saved / "tokenizer.input.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = content["model"]["vocab"]
    first, second = list(vocabulary)[-2:]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    path.write_text(json.dumps(content), encoding="utf-8")
    assert refusal(saved).startswith(f"{path}: not the tokenizer that the weights beside it were trained with")
    edit(saved, lambda about: about.pop("tokenizer_sha256"))  # as models were saved before
    twofold.load(saved, "cpu")


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.input.json"])
def test_a_missing_file_is_named(saved: Path, name: str) -> None:
    (saved / name).unlink()
    assert refusal(saved).startswith(f"{saved / name}: no such file")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda about: about.update(format=99), ": saved in format 99, this version reads 2; update twofold"),
        (lambda about: about.update(format=1), ": saved in format 1, this version reads 2; train it anew"),
        (lambda about: about.pop("format"), ": saved in format None"),
        (lambda about: about.pop("model"), "/config.json: model"),
        (lambda about: about.pop("tokenizers"), "/config.json: tokenizers"),
        (
            lambda about: about["tokenizers"].pop("main"),
            "/config.json: must name a tokenizer file for each of input, main",
        ),
        (
            lambda about: about["tokenizers"].update(main="../x.json"),
            "/config.json: must name a tokenizer file for each of input, main",
        ),
        (lambda about: about["tokenizers"].update(other="../x.json"), "/config.json: "),
        (lambda about: about["model"]["encoder"].update(widht=3), "/config.json: model.encoder has no 'widht'"),
        (
            lambda about: about["model"]["encoder"].update(kind="rmn"),
            "/config.json: model.encoder: there is no encoder",
        ),
        (lambda about: about["model"]["encoder"].update(width=13), "/model.safetensors: does not fit the model: "),
    ],
)
def test_settings_that_cannot_be_are_named(saved: Path, change: Callable[[dict[str, Any]], object], said: str) -> None:
    edit(saved, change)
    assert refusal(saved).startswith(f"{saved}{said}")


def test_a_tensor_of_another_shape_is_named_with_both_shapes(saved: Path) -> None:
    path = saved / "model.safetensors"
    tensors = storage.read_tensors(path, "")
    name = "encoder.embedding.weight"
    rows, width = tensors[name].shape
    tensors[name] = torch.zeros(rows + 1, width)
    del tensors["decoders.main.first.bias"]
    storage.write_tensors(path, {**tensors, "more": torch.zeros(1)}, {})
    edit(saved, lambda about: about.update(sha256=storage.sha256(path)))
    said = refusal(saved)
    assert said.startswith(f"{path}: does not fit the model: ")
    for part in (
        f"{name} is {(rows + 1, width)}, not {(rows, width)}",
        "decoders.main.first.bias is missing",
        "more is not in the model",
    ):
        assert part in said


OWN_PART = """
from dataclasses import dataclass
from twofold.encoders import rnn

@dataclass(frozen=True)
class Config(rnn.Config):
    pass
"""


@pytest.fixture
def own_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a part outside twofold that could be imported."""
    (tmp_path / "code" / "own_parts").mkdir(parents=True)
    (tmp_path / "code" / "own_parts" / "__init__.py").write_text("")
    (tmp_path / "code" / "own_parts" / "reader.py").write_text(OWN_PART)
    monkeypatch.syspath_prepend(tmp_path / "code")
    for name in ("own_parts", "own_parts.reader"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "own_parts.reader"


def test_a_part_outside_twofold_is_loaded_only_when_allowed(saved: Path, own_part: str) -> None:
    expected = twofold.load(saved).predict(TEXTS)
    edit(saved, lambda about: about["model"]["encoder"].update(kind=own_part))
    assert refusal(saved).startswith(f"{saved}: needs code outside twofold ({own_part})")
    assert "own_parts" not in sys.modules
    loaded = twofold.load(saved, allow_code=True)
    assert "own_parts" in sys.modules
    assert loaded.predict(TEXTS) == expected
    shutil.rmtree(saved)
    loaded.save_pretrained(saved)
    assert twofold.load(saved, allow_code=True).predict(TEXTS) == expected


@pytest.mark.parametrize(
    "change",
    [
        lambda model, kind: model["encoder"].update(kind=kind),
        lambda model, kind: model["tasks"]["main"]["decoder"].update(kind=kind),
        lambda model, kind: model["tasks"]["main"]["decoder"].update(kind="cross", compare={"kind": kind}),
        lambda model, kind: model.update(encoder={"kind": kind}, tasks=[]),
        lambda model, kind: model.update(encoder={"kind": kind}, tasks=None),
    ],
)
def test_no_code_outside_twofold_runs_unasked(
    saved: Path, own_part: str, change: Callable[[dict[str, Any], str], object]
) -> None:
    edit(saved, lambda about: change(about["model"], own_part))
    with pytest.raises(TwofoldError):
        twofold.load(saved)
    assert "own_parts" not in sys.modules


def test_saving_takes_the_place_of_an_older_model_as_a_whole(saved: Path, tokenizer: TextTokenizer) -> None:
    (saved / "left over").write_text("from an older model")
    other = small_model(tokenizer, encoder("transformer"), decoder("rnn"), seed=3)
    other.save_pretrained(saved)
    assert {path.name for path in saved.iterdir()} == {"model.safetensors", "config.json", "tokenizer.input.json"}
    loaded = twofold.load(saved)
    assert all(torch.equal(one, unique_tensors(other)[name]) for name, one in unique_tensors(loaded).items())
