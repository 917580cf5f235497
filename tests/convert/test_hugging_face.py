"""Folders of transformers with pickled weights: read without running code, and the same model afterwards."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    BertForPreTraining,
    GPT2LMHeadModel,
    T5ForConditionalGeneration,
)

from tests.commands import answer, refusal, run
from tests.encoders.tiny_backbones import FAMILIES, save, tokenizer_of
from twofold.convert import Item, Settings, convert
from twofold.encoders.pretrained import Config
from twofold.errors import TwofoldError

IDS = torch.tensor([[5, 9, 33, 7, 120, 6]])
WHOLE = {"bert": BertForPreTraining, "gpt2": GPT2LMHeadModel, "t5": T5ForConditionalGeneration}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """As transformers saves models today."""
    return {family: save(family, tmp_path_factory.mktemp(family)) for family in FAMILIES}


@pytest.fixture
def folder(saved: dict[str, Path], tmp_path: Path) -> Path:
    """A BERT whose weights are pickled."""
    return pickled(saved["bert"], tmp_path / "source")


def pickled(saved: Path, folder: Path, change: Callable[[dict[str, Tensor]], Any] = lambda one: one) -> Path:
    """A copy of a folder with its weights as they were saved before safetensors."""
    shutil.copytree(saved, folder)
    torch.save(change(load_file(folder / "model.safetensors")), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder


def changed(folder: Path, **tensors: Tensor | None) -> None:
    """Replace, add or remove tensors of a pickled folder; two underscores stand for a dot."""
    file = folder / "pytorch_model.bin"
    weights = torch.load(file, weights_only=True)
    weights |= {name.replace("__", "."): value for name, value in tensors.items()}
    torch.save({name: value for name, value in weights.items() if value is not None}, file)


def states(folder: Path) -> Tensor:
    model: Any = AutoModel.from_pretrained(folder).eval()
    more = {"decoder_input_ids": IDS} if folder.name.startswith("t5") or model.config.is_encoder_decoder else {}
    with torch.no_grad():
        hidden: Tensor = model(input_ids=IDS, **more).last_hidden_state
    return hidden


def with_head(family: str, folder: Path) -> Path:
    """A whole model with its head, tied tensors pickled as one."""
    torch.manual_seed(3)
    kind: Any = WHOLE[family]
    model = kind(AutoConfig.for_model(family, **FAMILIES[family]))
    folder.mkdir()
    model.config.save_pretrained(folder)
    tokenizer_of(family).save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    model.base_model.save_pretrained(folder.with_name("plain"))
    return folder


def names(items: tuple[Item, ...]) -> dict[str, set[str]]:
    modules: dict[str, set[str]] = {}
    for item in items:
        modules.setdefault(item.why, set()).add(item.name)
    return modules


@pytest.mark.parametrize("family", FAMILIES)
def test_the_states_are_the_same_afterwards(family: str, saved: dict[str, Path], tmp_path: Path) -> None:
    done = convert(pickled(saved[family], tmp_path / family), tmp_path / "out")
    assert (done.format, done.kind, done.not_read) == ("transformers", family, ())
    assert torch.equal(states(tmp_path / "out"), states(saved[family]))
    before, after = (load_file(one / "model.safetensors") for one in (saved[family], tmp_path / "out"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == (saved[family] / "tokenizer.json").read_bytes()
    assert not list((tmp_path / "out").glob("*.bin"))


def test_what_torch_saved_before_version_1_6(folder: Path, saved: dict[str, Path], tmp_path: Path) -> None:
    tensors = torch.load(folder / "pytorch_model.bin", weights_only=True)
    torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    convert(folder, tmp_path / "out")
    assert torch.equal(states(tmp_path / "out"), states(saved["bert"]))


def test_weights_in_several_files(folder: Path, saved: dict[str, Path], tmp_path: Path) -> None:
    tensors = torch.load(folder / "pytorch_model.bin", weights_only=True)
    (folder / "pytorch_model.bin").unlink()
    where = {name: f"pytorch_model-{place % 3}.bin" for place, name in enumerate(tensors)}
    for file in set(where.values()):
        torch.save({name: value for name, value in tensors.items() if where[name] == file}, folder / file)
    listed = folder / "pytorch_model.bin.index.json"
    listed.write_text(json.dumps({"metadata": {}, "weight_map": where}))
    convert(folder, tmp_path / "out")
    assert torch.equal(states(tmp_path / "out"), states(saved["bert"]))
    first = next(iter(where))
    shape = f"({', '.join(map(str, tensors[first].shape))})"
    where["gone"] = where.pop(first)
    listed.write_text(json.dumps({"weight_map": where}))
    (line, *more) = run("import", folder, tmp_path / "two").stderr.splitlines()
    assert line == f"error: {folder}: 2 things do not fit; --allow-mismatch leaves out what does not fit"
    assert more == ["error: missing: gone", f"error: unknown: {first} {shape}"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, "does not list which tensor is in which file"),
        ({"weight_map": {"a": 3}}, "does not list which tensor is in which file"),
        ({"weight_map": {"a": "../away.bin"}}, r"names a file outside of its folder \(../away.bin\)"),
        ({"weight_map": {"a": "gone.bin"}}, r"gone.bin: no such file"),
    ],
)
def test_a_list_of_files_that_cannot_be_right(content: Any, said: str, folder: Path, tmp_path: Path) -> None:
    (folder / "pytorch_model.bin").rename(tmp_path / "away.bin")
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(content))
    with pytest.raises(TwofoldError, match=said):
        convert(folder, tmp_path / "out")


@pytest.mark.parametrize("family", WHOLE)
def test_heads_are_kept_and_known(family: str, tmp_path: Path) -> None:
    source = with_head(family, tmp_path / family)
    done = convert(source, tmp_path / "out")
    assert names(done.not_read).keys() <= {"head"}
    assert torch.equal(states(tmp_path / "out"), states(tmp_path / "plain"))
    before = torch.load(source / "pytorch_model.bin", weights_only=True)
    after = load_file(tmp_path / "out" / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_names_of_older_versions_are_understood(saved: dict[str, Path], tmp_path: Path) -> None:
    def old(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        names = {one: one.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta") for one in tensors}
        older = {f"bert.{names[one]}": value for one, value in tensors.items()}
        return {**older, "bert.embeddings.position_ids": torch.arange(80)[None]}

    done = convert(pickled(saved["bert"], tmp_path / "source", old), tmp_path / "out")
    assert names(done.not_read).keys() <= {"constant"}
    assert torch.equal(states(tmp_path / "out"), states(saved["bert"]))


def test_masks_that_gpt2_used_to_save_are_known(saved: dict[str, Path], tmp_path: Path) -> None:
    source = pickled(saved["gpt2"], tmp_path / "source")
    changed(source, h__0__attn__bias=torch.ones(1, 1, 8, 8), h__0__attn__masked_bias=torch.tensor(-1e4))
    assert names(convert(source, tmp_path / "out").not_read).keys() <= {"constant"}


def test_what_nobody_knows_is_refused_unless_allowed(folder: Path, tmp_path: Path) -> None:
    changed(folder, encoder__layer__2__gate=torch.ones(3, 4))
    line = refusal("import", folder, tmp_path / "out")
    misfit = "unknown: encoder.layer.2.gate (3, 4)"
    assert line == f"{folder}: does not fit ({misfit}); --allow-mismatch leaves out what does not fit"
    assert not (tmp_path / "out").exists()
    shown = run("import", folder, tmp_path / "out", "--allow-mismatch")
    assert shown.stdout == ""
    assert shown.stderr.splitlines()[0] == f"left out, {misfit}"
    again = answer("import", folder, tmp_path / "two", "--allow-mismatch")
    assert again["not_read"] == [{"name": "encoder.layer.2.gate", "why": "unknown", "shape": [3, 4]}]
    assert "encoder.layer.2.gate" not in load_file(tmp_path / "two" / "model.safetensors")


def test_more_layers_than_the_settings_tell_are_left_out_where_that_is_allowed(folder: Path, tmp_path: Path) -> None:
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"num_hidden_layers": 1}))
    with pytest.raises(TwofoldError, match=r"16 things do not fit; --allow-mismatch leaves out what does not fit"):
        convert(folder, tmp_path / "out")
    made = convert(folder, tmp_path / "out", Settings(allow_mismatch=True))
    written = load_file(tmp_path / "out" / "model.safetensors")
    assert len(written) == made.tensors
    assert not any(name.startswith("encoder.layer.1.") for name in written)
    Config(name=str(tmp_path / "out")).own_tokenizer()


def test_what_the_encoder_reads_must_be_there(folder: Path, tmp_path: Path) -> None:
    changed(
        folder,
        encoder__layer__1__output__dense__bias=None,
        encoder__layer__0__output__dense__weight=torch.ones(2, 2),
        pooler__dense__bias=None,
    )
    for allowed in ([], ["--allow-mismatch"]):
        lines = run("import", folder, tmp_path / "out", *allowed).stderr.splitlines()
        assert [line.removeprefix("error: ") for line in lines] == [
            f"{folder}: 2 things do not fit; the encoder cannot do without",
            "missing: encoder.layer.1.output.dense.bias (16)",
            "another shape: encoder.layer.0.output.dense.weight (2, 2), expected (16, 32)",
        ]
    assert not list(tmp_path.glob("*out*"))


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_code_in_a_pickle_is_not_run(folder: Path, tmp_path: Path) -> None:
    for content in (Evil(tmp_path / "ran"), {"weight": Evil(tmp_path / "ran")}):
        torch.save(content, folder / "pytorch_model.bin")
        line = refusal("import", folder, tmp_path / "out")
        assert line.startswith(f"{folder}/pytorch_model.bin: not readable as tensors alone (")
        assert line.endswith("; code in it is never run")
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps(content))
        assert "not readable as tensors alone" in refusal("import", folder, tmp_path / "out")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"version https://git-lfs.github.com/spec/v1\n", b"\x80\x02."])
def test_a_damaged_pickle(content: bytes, folder: Path, tmp_path: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(content)
    line = refusal("import", folder, tmp_path / "out")
    assert line.startswith(f"{folder}/pytorch_model.bin: not readable as tensors alone (")


@pytest.mark.parametrize("content", [{}, {"step": 3}, {"model": {"weight": torch.ones(2)}}, [torch.ones(2)]])
def test_a_pickle_of_something_else(content: Any, folder: Path, tmp_path: Path) -> None:
    torch.save(content, folder / "pytorch_model.bin")
    line = refusal("import", folder, tmp_path / "out")
    assert line == (
        f"{folder}/pytorch_model.bin: does not hold named tensors and nothing else; save the model's state_dict alone"
    )


def test_a_tokenizer_that_is_only_a_list_of_words(folder: Path, saved: dict[str, Path], tmp_path: Path) -> None:
    theirs = AutoTokenizer.from_pretrained(saved["bert"])
    known = sorted(theirs.get_vocab().items(), key=lambda one: one[1])
    for file in folder.glob("*token*.json"):
        file.unlink()
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token, _ in known))
    done = convert(folder, tmp_path / "out")
    assert done.vocabulary == len(known)
    ours = Config(name=str(tmp_path / "out")).own_tokenizer()
    assert ours.encode(["the first Gulls!"])[0] == theirs("the first gulls!")["input_ids"][1:-1]


def test_no_tokenizer(folder: Path, tmp_path: Path) -> None:
    for file in folder.glob("*token*.json"):
        file.unlink()
    line = refusal("import", folder, tmp_path / "out")
    assert line == f"{folder}: has no tokenizer (tokenizer.json, or vocab.txt); copy its files there"


def test_a_tokenizer_with_more_tokens_than_the_weights(folder: Path, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens([f"new{number}" for number in range(160)])
    tokenizer.save_pretrained(folder)
    line = refusal("import", folder, tmp_path / "out", "--allow-mismatch")
    remedy = "give it the tokenizer that it was trained with"
    assert line == f"{folder}: its tokenizer knows {len(tokenizer)} tokens, its weights 160; {remedy}"


def test_a_config_without_a_type_needs_to_be_told(folder: Path, saved: dict[str, Path], tmp_path: Path) -> None:
    content = json.loads((folder / "config.json").read_text())
    del content["model_type"]
    (folder / "config.json").write_text(json.dumps(content))
    line = refusal("import", folder, tmp_path / "out")
    assert line == f"{folder}/config.json: has no model_type; say --kind bert or --kind gpt2"
    assert convert(folder, tmp_path / "out", Settings(kind="bert")).kind == "bert"
    assert torch.equal(states(tmp_path / "out"), states(saved["bert"]))


def test_a_kind_that_is_another(folder: Path, tmp_path: Path) -> None:
    line = refusal("import", folder, tmp_path / "out", "--kind", "gpt2")
    assert line == f"{folder}: holds bert, and --kind says gpt2; leave --kind away"


def test_a_folder_with_safetensors_is_taken_too(saved: dict[str, Path], tmp_path: Path) -> None:
    convert(saved["bert"], tmp_path / "out")
    assert torch.equal(states(tmp_path / "out"), states(saved["bert"]))
