"""Settings that ask for more than the weights hold are one line, in bounded time and memory."""

from __future__ import annotations

import json
import resource
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.conftest import decoder, encoder, small_image_model, small_model
from tests.encoders.tiny_backbones import save
from tests.rankers import small_ranker
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.layers.sizes import built_without_memory
from twofold.model.load import load

HUGE = [10_000, 10**9, 2**40, 2**63, 10**30]


@pytest.fixture(autouse=True)
def within_bounds() -> Iterator[None]:
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    yield
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 400 << 10
    assert time.process_time() - start < 10


def refused(folder: Path) -> str:
    with warnings.catch_warnings(action="ignore"), pytest.raises(TwofoldError) as caught:  # warnings are of limits
        load(folder)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(str(folder))
    return line


def change(folder: Path, path: str, value: Any) -> None:
    """Set one number in config.json, at a place such as model.encoder.width."""
    about = json.loads((folder / "config.json").read_text())
    *inner, last = path.split(".")
    place = about
    for name in inner:
        place = place[name]
    place[last] = value
    about.pop("checksum", None)  # as somebody would who means to deceive
    (folder / "config.json").write_text(json.dumps(about))


MAKE: dict[str, Callable[[TextTokenizer], Any]] = {
    "texts": lambda t: small_model(t, encoder("transformer"), decoder("transformer")),
    "wide": lambda t: small_model(t, encoder("transformer", width=128, layers=1), decoder("transformer")),
    "rnn": lambda t: small_model(t, encoder("rnn"), decoder("label")),
    "backbone": lambda t: small_ranker(t, encoder("pretrained"), decoder("poly")),
    "images": lambda t: small_image_model(t, encoder("vit"), decoder("attention_rnn")),
}


@pytest.fixture(scope="module")
def models(tokenizer: TextTokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name, make in MAKE.items():
        make(tokenizer).save_pretrained(folder / name)
    save("bert", folder / "bert")
    save("gpt2", folder / "gpt2")
    return folder


@pytest.mark.parametrize("value", HUGE)
@pytest.mark.parametrize(
    ("model", "place"),
    [
        ("texts", "encoder.width"),
        ("texts", "encoder.layers"),
        ("texts", "encoder.feed_forward"),
        ("texts", "tasks.main.decoder.layers"),
        ("rnn", "encoder.layers"),
        ("rnn", "encoder.embedding"),
        ("backbone", "encoder.architecture.num_hidden_layers"),
        ("backbone", "encoder.architecture.hidden_size"),
        ("backbone", "encoder.architecture.vocab_size"),
        ("backbone", "tasks.main.decoder.codes"),
        ("images", "encoder.width"),
        ("images", "encoder.patch"),
    ],
)
def test_a_size_that_is_not_that_of_the_weights_is_refused(
    model: str, place: str, value: int, models: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(models / model, tmp_path / "spoilt"))
    change(folder, f"model.{place}", value)
    refused(folder)


def test_a_table_that_is_not_saved_is_bounded_too(models: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(models / "wide", tmp_path / "spoilt"))
    change(folder, "model.input.max_tokens", 10**6)  # sinusoids of that many places
    assert "its settings ask for" in refused(folder)
    change(folder, "model.input.max_tokens", 10**9)
    assert "model.input: max_tokens must be at most 1,000,000, not 1000000000" in refused(folder)


def test_a_number_of_labels_that_would_all_be_named_is_refused(models: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(models / "backbone", tmp_path / "saved"))
    change(folder, "model.encoder.architecture.num_labels", 10**9)
    with pytest.raises(TwofoldError, match="has 1,000,000,000 labels"):
        load(folder)
    folder = Path(shutil.copytree(models / "bert", tmp_path / "backbone"))
    change(folder, "num_labels", 10**9)
    assert "has 1,000,000,000 labels" in refused(folder)


@pytest.mark.parametrize("value", HUGE)
@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("bert", "hidden_size"),
        ("bert", "num_hidden_layers"),
        ("bert", "vocab_size"),
        ("bert", "intermediate_size"),
        ("gpt2", "n_layer"),
        ("gpt2", "n_embd"),
    ],
)
def test_a_size_that_is_not_that_of_a_backbones_weights_is_refused(
    model: str, name: str, value: int, models: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(models / model, tmp_path / "spoilt"))
    change(folder, name, value)
    refused(folder)


@pytest.mark.parametrize("model", ["texts", "bert"])
@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"model_type":' * 100_000, '{"model_type": NaN}', '{"a": ' + "9" * 5000 + "}"]
)
def test_a_config_that_is_no_plain_json_is_one_line(text: str, model: str, models: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(models / model, tmp_path / "spoilt"))
    (folder / "config.json").write_text(text)
    assert "config.json: not readable as JSON (" in refused(folder)


def test_a_header_that_promises_more_than_the_file_holds_is_refused(models: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(models / "rnn", tmp_path / "spoilt"))
    header = json.dumps({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert "model.safetensors: damaged (" in refused(folder)


def test_other_threads_may_build_while_sizes_are_checked() -> None:
    import threading

    def build() -> nn.Module:
        thread = threading.Thread(target=lambda: nn.ModuleList(nn.Linear(1, 1) for _ in range(2000)))
        thread.start()
        thread.join()
        return nn.Linear(2, 3)

    model = built_without_memory(build, {}, {"weight": (3, 2), "bias": (3,)}, "here", "try again")
    assert model is not None
    assert [tuple(one.shape) for one in model.parameters()] == [(3, 2), (3,)]
    with pytest.raises(
        TwofoldError, match=r"^here: its settings ask for more than the 2 tensors that its weights hold"
    ):
        built_without_memory(
            lambda: nn.ModuleList(nn.Linear(1, 1) for _ in range(10**9)),
            {},
            {"a": (1,), "b": (1,)},
            "here",
            "try again",
        )
    assert next(nn.Linear(2, 3).parameters()).device == torch.device("cpu")
