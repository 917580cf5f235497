"""Folders of sentence-transformers: what they know of reducing states is kept, whichever version wrote it."""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file

from tests.commands import refusal, run
from tests.encoders.tiny_backbones import TEXTS, save
from twofold.convert import Settings, convert
from twofold.inputs import Input
from twofold.model import Ranker
from twofold.model.load import load_ranker

OLD = {"Transformer": "sentence_transformers.models.Transformer", "Pooling": "sentence_transformers.models.Pooling"}
OLD |= {name: f"sentence_transformers.models.{name}" for name in ("Normalize", "Dense", "LayerNorm")}
FLAGS = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "lasttoken": "lasttoken"}
FLAGS |= {"mean_sqrt_len_tokens": "mean_sqrt_len_tokens"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save("bert", tmp_path_factory.mktemp("bert"))


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def modules(folder: Path, *paths: str) -> None:
    kinds = [path.rpartition("_")[2] or "Transformer" for path in paths]
    lines = [{"idx": n, "name": str(n), "path": path, "type": OLD[kinds[n]]} for n, path in enumerate(paths)]
    write(folder / "modules.json", lines)


def old(saved: Path, folder: Path, mode: str = "mean", network: str = "0_Transformer", length: int | None = 20) -> Path:
    """As version 2 wrote a folder, with pickled weights."""
    inner = folder / network
    shutil.copytree(saved, inner)
    torch.save(load_file(inner / "model.safetensors"), inner / "pytorch_model.bin")
    (inner / "model.safetensors").unlink()
    write(inner / "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False})
    flags = {f"pooling_mode_{flag}": mode == name for name, flag in FLAGS.items()}
    write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 16, **flags})
    (folder / "2_Normalize").mkdir()
    modules(folder, network, "1_Pooling", "2_Normalize")
    return folder


def new(saved: Path, folder: Path, mode: str = "mean") -> Path:
    """As version 6 writes a folder: another name for the pooling, and the length only in the tokenizer."""
    shutil.copytree(saved, folder)
    write(folder / "sentence_bert_config.json", {"transformer_task": "feature-extraction"})
    about = json.loads((folder / "tokenizer_config.json").read_text())
    write(folder / "tokenizer_config.json", {**about, "model_max_length": 20})
    write(folder / "1_Pooling" / "config.json", {"embedding_dimension": 16, "pooling_mode": mode})
    write(folder / "config_sentence_transformers.json", {"prompts": {"query": "", "document": ""}})
    modules(folder, "", "1_Pooling")
    return folder


def vectors(model: Ranker) -> torch.Tensor:
    return model.embed_candidates(TEXTS).single.float()


def limit(side: Input[Any]) -> int:
    return side.limit


@pytest.mark.parametrize("make", [old, new])
@pytest.mark.parametrize(("mode", "pooling"), [("cls", "first"), ("mean", "mean"), ("max", "max")])
def test_states_are_reduced_as_they_were(make: Any, mode: str, pooling: str, saved: Path, tmp_path: Path) -> None:
    done = convert(make(saved, tmp_path / "source", mode), tmp_path / "out")
    assert (done.format, done.kind, done.not_read) == ("sentence-transformers", "bert", ())
    model = load_ranker(tmp_path / "out")
    settings: Any = model.config.tasks["main"].decoder
    assert settings.pooling == pooling
    assert (limit(model.contexts), limit(model.candidates)) == (20, 20)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a model that the hub's cache holds as owner/name."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    about = tmp_path / "hub" / "models--owner--name"
    (about / "refs").mkdir(parents=True)
    (about / "refs" / "main").write_text("0" * 40)
    return about / "snapshots" / ("0" * 40)


@pytest.mark.parametrize(("mode", "pooling"), [("cls", "first"), ("mean", "mean"), ("max", "max")])
def test_a_model_of_the_hub_is_read_as_its_folder_is(mode: str, pooling: str, saved: Path, hub: Path) -> None:
    folder = new(saved, hub, mode)
    model = load_ranker("owner/name")
    settings: Any = model.config.tasks["main"].decoder
    assert (settings.pooling, limit(model.contexts)) == (pooling, 20)
    torch.testing.assert_close(vectors(model), vectors(load_ranker(folder)))


@pytest.mark.filterwarnings("ignore:owner/name reads at most 80 tokens")
def test_what_cannot_be_asked_of_the_hub_is_said(saved: Path, hub: Path) -> None:
    shutil.copytree(saved, hub)
    with pytest.warns(UserWarning, match="owner/name: modules.json is not in the cache, and the hub cannot be asked"):
        model = load_ranker("owner/name")
    settings: Any = model.config.tasks["main"].decoder
    assert settings.pooling == "mean"


@pytest.mark.parametrize("network", ["", "0_Transformer", "0_BERT"])
def test_the_network_may_be_in_a_folder_of_its_own(network: str, saved: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    if network:
        old(saved, source, network=network if network != "0_BERT" else "0_Transformer")
    else:
        new(saved, source)
    if network == "0_BERT":
        (source / "0_Transformer").rename(source / network)
        text = (source / "modules.json").read_text().replace("Transformer", "BERT")
        (source / "modules.json").write_text(text)
    convert(source, tmp_path / "out")
    written = json.loads((tmp_path / "out" / "modules.json").read_text())
    assert [one["path"] for one in written][:2] == ["", "1_Pooling"]
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {one.name for one in (tmp_path / "out").iterdir()}
    load_ranker(tmp_path / "out")


def test_the_length_is_the_least_that_is_said(saved: Path, tmp_path: Path) -> None:
    convert(old(saved, tmp_path / "source", length=None), tmp_path / "out")
    assert limit(load_ranker(tmp_path / "out").contexts) == 80  # as many as it has positions


def test_a_limit_above_the_positions_is_lowered_with_the_name_of_the_source(saved: Path, tmp_path: Path) -> None:
    source = old(saved, tmp_path / "source", length=500)
    with pytest.warns(
        UserWarning, match=rf"^{source}\S* reads at most 80 tokens: input.max_tokens is lowered from 500 to 80"
    ):
        convert(source, tmp_path / "out")


@pytest.mark.parametrize("mode", ["median", ["cls", "mean"]])
def test_a_pooling_that_is_not_known_is_refused_unless_allowed(mode: Any, saved: Path, tmp_path: Path) -> None:
    source = new(saved, tmp_path / "source", mode)
    shown = " and ".join(mode) if isinstance(mode, list) else mode
    line = refusal("import", source, tmp_path / "out")
    known = "known is one of cls, mean, max, lasttoken, mean_sqrt_len_tokens, weightedmean"
    assert f"(module: Pooling in 1_Pooling by {shown}; {known}); --allow-mismatch" in line
    allowed = run("import", source, tmp_path / "out", "--allow-mismatch").stderr
    assert allowed.startswith(f"left out, module: Pooling in 1_Pooling by {shown}")
    settings: Any = load_ranker(tmp_path / "out").config.tasks["main"].decoder
    assert settings.pooling == "mean"


def test_what_would_change_the_vectors_is_refused(saved: Path, tmp_path: Path) -> None:
    source = old(saved, tmp_path / "source")
    modules(source, "0_Transformer", "1_Pooling", "2_LayerNorm")
    write(source / "0_Transformer" / "sentence_bert_config.json", {"query_length": 32})
    write(source / "config_sentence_transformers.json", {"default_prompt_name": "query", "prompts": {"other": "q: "}})
    lines = run("import", source, tmp_path / "out").stderr.splitlines()
    assert lines[0].startswith(f"error: {source}: 3 things do not fit; ")
    assert [line.removeprefix("error: ") for line in lines[1:]] == [
        "setting: query_length",
        "setting: the default prompt 'query', which is not among its prompts",
        "module: LayerNorm in 2_LayerNorm",
    ]
    convert(source, tmp_path / "out", Settings(allow_mismatch=True))
    assert len(json.loads((tmp_path / "out" / "modules.json").read_text())) == 2


def test_do_lower_case_is_kept(saved: Path, tmp_path: Path) -> None:
    source = old(saved, tmp_path / "source")
    write(source / "0_Transformer" / "sentence_bert_config.json", {"max_seq_length": 20, "do_lower_case": True})
    assert convert(source, tmp_path / "out").not_read == ()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[", "not a list of modules ("),
        ("{}", "lists no module"),
        ('{"a": 1}', "not a list of modules ("),
        ('[{"idx": 0}]', "not a list of modules ("),
        (
            '[{"idx": 0, "path": "../away", "type": "sentence_transformers.models.Transformer"}]',
            "names a folder outside of its own (../away)",
        ),
        (
            '[{"idx": 0, "path": "/away", "type": "sentence_transformers.models.Transformer"}]',
            "names a folder outside of its own (/away)",
        ),
        (
            '[{"idx": 0, "path": "", "type": "sentence_transformers.models.CLIPModel"}]',
            "must begin with its one Transformer, and has CLIPModel",
        ),
    ],
)
def test_modules_that_cannot_be_read(content: str, said: str, saved: Path, tmp_path: Path) -> None:
    source = old(saved, tmp_path / "source")
    (source / "modules.json").write_text(content)
    assert refusal("import", source, tmp_path / "out").startswith(f"{source}/modules.json: {said}")


def test_a_folder_without_a_pooling_is_refused(saved: Path, tmp_path: Path) -> None:
    source = old(saved, tmp_path / "source")
    modules(source, "0_Transformer")
    assert "(module: no Pooling, so that nothing tells how states are reduced)" in refusal(
        "import", source, tmp_path / "o"
    )


@pytest.mark.bench
@pytest.mark.parametrize("mode", ["cls", "mean", "max", "lasttoken", "mean_sqrt_len_tokens"])
@pytest.mark.parametrize("make", [old, new])
@torch.no_grad()
def test_vectors_are_those_of_sentence_transformers(make: Any, mode: str, saved: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = pytest.importorskip("sentence_transformers")
        source = make(saved, tmp_path / "source", mode)
        convert(source, tmp_path / "out")
        before, after = (theirs.SentenceTransformer(str(one), device="cpu") for one in (source, tmp_path / "out"))
        expected = torch.from_numpy(before.encode_document(TEXTS))
        again = torch.from_numpy(after.encode_document(TEXTS))
    embeddings = vectors(load_ranker(tmp_path / "out"))
    for ours in (embeddings, again):
        difference = (ours - expected).abs().max().item()
        print(f"greatest difference {difference:.1e}", file=sys.stderr)
        assert difference < 1e-5
