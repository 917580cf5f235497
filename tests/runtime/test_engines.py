"""Every encoder gives in an engine what it gives in torch, or is refused by name; what does not suit runs in torch."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import decoder, encoder, part_params, small_model, some_image
from tests.rankers import PAIRS, small_ranker
from tests.test_pairs import EXAMPLES, HEARD, SHOWN, small_pair
from twofold import precision, runtime
from twofold.config import kinds
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.inputs.audio import Spectrogram
from twofold.inputs.image import Images
from twofold.model import Model, Ranker
from twofold.runtime import store
from twofold.types import Batch, Hidden

pytest.importorskip("onnx")
ENGINES = ["openvino", "onnxruntime"]


@pytest.fixture(autouse=True)
def engines_may_run(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    monkeypatch.delenv(runtime.VARIABLE)


def model_of(kind: str, tokenizer: TextTokenizer) -> Model:
    """A small model over the encoder: a U-Net over feature maps, else labels."""
    part = encoder(kind)
    writes = "unet" if "maps" in part.gives() else "label"
    return small_pair(tokenizer, part, decoder(writes)).eval()


def batches_of(model: Model) -> list[Batch]:
    """All rows, the first, and the others."""
    shown = [{**row, "image": some_image(8, 12, seed)} for seed, row in enumerate(SHOWN)]
    rows: list[dict[str, Any]] = {Images: shown, Spectrogram: HEARD}.get(model.config.input.gives, EXAMPLES)
    return [model.batch(some, targets=False) for some in (rows, rows[:1], rows[1:])]


@torch.no_grad()
def hidden_of(model: Model, batches: list[Batch]) -> list[Hidden]:
    return [model.encode_batch(batch) for batch in batches]


def tensors_of(hidden: Hidden) -> dict[str, torch.Tensor]:
    """Everything that decoders may read; states of padding are nobody's."""
    tensors = {}
    for field in dataclasses.fields(hidden):
        value = getattr(hidden, field.name)
        for number, tensor in enumerate(value if isinstance(value, tuple) and field.name == "maps" else [value]):
            if isinstance(tensor, torch.Tensor):
                tensors[f"{field.name}{number}"] = tensor[hidden.mask] if field.name == "states" else tensor
    return tensors


@pytest.fixture
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("kind", part_params(kinds("encoders")))
def test_every_encoder_gives_in_an_engine_what_it_gives_in_torch(
    tokenizer: TextTokenizer, kind: str, no_warnings: None
) -> None:
    model = model_of(kind, tokenizer)
    batches = batches_of(model)
    expected = hidden_of(model, batches)
    for engine in ENGINES:  # of one graph
        runtime.install(model, engine, "float32")
        with torch.no_grad():
            assert model.encoder.engine is not None
            assert model.encoder.engine(batches[0]) is not None, f"torch was used in place of {engine}"
        for ours, theirs in zip(hidden_of(model, batches), expected, strict=True):
            right = tensors_of(theirs)
            assert tensors_of(ours).keys() == right.keys()
            assert (ours.size, ours.grid) == (theirs.size, theirs.grid)
            for name, tensor in tensors_of(ours).items():
                torch.testing.assert_close(tensor, right[name], rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not precision.is_fast(), reason="this processor has no native bfloat16")
@pytest.mark.parametrize("kind", ["transformer", "pretrained"])
def test_bfloat16_in_an_engine_is_close_to_float32(tokenizer: TextTokenizer, kind: str) -> None:
    model = small_ranker(tokenizer, encoder(kind), decoder("bi")).eval()
    texts = [str(pair["response"]) for pair in PAIRS]
    expected = model.encode(texts)
    runtime.install(model, "openvino", "bfloat16")
    vectors = model.encode(texts)
    assert not np.array_equal(vectors, expected)
    assert ((vectors * expected).sum(1) / np.linalg.norm(expected, axis=1) ** 2 > 0.999).all()


def test_a_graph_made_in_bfloat16_computes_float32_as_exactly(tokenizer: TextTokenizer) -> None:
    model = small_ranker(tokenizer, encoder("pretrained"), decoder("bi")).eval()
    texts = [str(pair["response"]) for pair in PAIRS]
    expected = model.encode(texts)
    for chosen in ("bfloat16", "float32"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            runtime.install(model, "openvino", chosen)
            vectors = model.encode(texts)
    np.testing.assert_allclose(vectors, expected, atol=2e-6)
    assert model.encoder.engine is not None
    assert all(store.read_record(path, "openvino", "float32") for path in store.engines_folder().iterdir())


@pytest.mark.parametrize("ranks", ["bi", "poly", "late", "cross"])
def test_a_ranker_ranks_in_an_engine_as_in_torch(tokenizer: TextTokenizer, ranks: str) -> None:
    model = small_ranker(tokenizer, encoder("pretrained"), decoder(ranks)).eval()
    texts = [str(pair["response"]) for pair in PAIRS] + ["", "1"]
    expected = [model.rank(context, texts) for context in ("eleven", "삼백", "one " * 40)]
    runtime.install(model, "openvino", "float32")
    for ours, theirs in zip(
        [model.rank(text, texts) for text in ("eleven", "삼백", "one " * 40)], expected, strict=True
    ):
        assert [hit.id for hit in ours] == [hit.id for hit in theirs]
        np.testing.assert_allclose([hit.score for hit in ours], [hit.score for hit in theirs], atol=2e-5)


def some_ranker(tokenizer: TextTokenizer) -> Ranker:
    return small_ranker(tokenizer, encoder("transformer"), decoder("bi")).eval()


def test_another_runtime_takes_the_place_of_the_engine(tokenizer: TextTokenizer) -> None:
    model = some_ranker(tokenizer)
    runtime.install(model, "openvino", "float32")
    assert model.encoder.engine is not None
    runtime.install(model, "torch", "float32")
    assert model.encoder.engine is None
    assert model.computing["runtime"] == "torch"


def test_learning_takes_the_engine_off_since_it_holds_the_old_weights(tokenizer: TextTokenizer) -> None:
    model = some_ranker(tokenizer)
    runtime.install(model, "openvino", "float32")
    model.train()
    assert model.encoder.engine is None


def test_weights_that_are_changed_by_hand_are_not_answered_from_the_old_graph(tokenizer: TextTokenizer) -> None:
    model = some_ranker(tokenizer)
    runtime.install(model, "openvino", "float32")
    before = model.encode(["eleven"])
    with torch.no_grad():
        for parameter in model.encoder.parameters():
            parameter.add_(0.1)
    after = model.encode(["eleven"])
    assert not np.allclose(before, after, atol=1e-3)
    runtime.install(model, "torch", "float32")
    np.testing.assert_array_equal(model.encode(["eleven"]), after)


def test_gradients_are_torchs(tokenizer: TextTokenizer) -> None:
    model = some_ranker(tokenizer)
    runtime.install(model, "openvino", "float32")
    model.loss(model.batch(PAIRS)).backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad is not None for parameter in model.encoder.parameters())


def engine_folder(model: Model) -> Path:
    """The folder of the graph that the model has made."""
    model.encode(["eleven", "one"])
    (folder,) = store.engines_folder().iterdir()
    return folder


def test_the_file_is_made_once(tokenizer: TextTokenizer) -> None:
    model = some_ranker(tokenizer)
    runtime.install(model, "openvino", "float32")
    graph = engine_folder(model) / store.GRAPH
    before = graph.stat()
    runtime.install(model, "openvino", "float32")
    model.encode(["eleven"])
    runtime.install(model, "onnxruntime", "float32")
    model.encode(["eleven"])
    assert (graph.stat().st_mtime_ns, graph.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


def test_a_damaged_file_is_made_anew_and_said_once(tokenizer: TextTokenizer) -> None:
    model = some_ranker(tokenizer)
    expected = model.encode(["eleven"])
    runtime.install(model, "openvino", "float32")
    graph = engine_folder(model) / store.GRAPH
    content = bytearray(graph.read_bytes())
    content[len(content) // 2] ^= 1
    graph.write_bytes(content)
    runtime.install(model, "openvino", "float32")
    with pytest.warns(UserWarning, match="its file is damaged; made anew"):
        np.testing.assert_allclose(model.encode(["eleven"]), expected, atol=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.encode(["one"])
        runtime.install(model, "openvino", "float32")
        model.encode(["one"])


def test_a_file_of_another_version_or_processor_is_checked_anew(tokenizer: TextTokenizer) -> None:
    model = some_ranker(tokenizer)
    runtime.install(model, "openvino", "float32")
    folder = engine_folder(model)
    record = store.read_record(folder, "openvino", "float32")
    assert record is not None
    for changed in (replace(record, version="0.1"), replace(record, processor=["sse2"])):
        store.write_record(folder, changed)
        runtime.install(model, "openvino", "float32")
        with pytest.warns(UserWarning, match="another version or another processor"):
            model.encode(["eleven"])
        again = store.read_record(folder, "openvino", "float32")
        assert again is not None
        assert (again.version, again.processor) == (record.version, record.processor)
    (folder / record.file).write_text(json.dumps({"format": 1}))
    runtime.install(model, "openvino", "float32")
    with pytest.warns(UserWarning, match="made anew"):
        model.encode(["eleven"])


def test_a_cache_folder_that_cannot_be_written_leaves_torch_and_says_so_once(
    tokenizer: TextTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "file"))
    model = some_ranker(tokenizer)
    expected = model.encode(["eleven"])
    runtime.install(model, "openvino", "float32")
    with pytest.warns(UserWarning, match="torch is used") as said:
        answers = [model.encode([text]) for text in ("eleven", "one")]
    assert len(said) == 1
    np.testing.assert_array_equal(answers[0], expected)


def test_a_model_that_no_engine_computes_runs_in_torch_and_says_so_once(tokenizer: TextTokenizer) -> None:
    model = some_ranker(tokenizer)
    forward = model.encoder.forward

    def strange(batch: Batch) -> Hidden:
        hidden = forward(batch)
        assert hidden.states is not None
        return dataclasses.replace(hidden, states=hidden.states * float(hidden.states.sum() > 0))

    model.encoder.forward = strange  # type: ignore[method-assign]
    expected = model.encode(["eleven"])
    runtime.install(model, "openvino", "float32")
    with pytest.warns(UserWarning, match="cannot be exported .*; torch is used") as said:
        answers = [model.encode([text]) for text in ("eleven", "one")]
    assert len(said) == 1
    np.testing.assert_array_equal(answers[0], expected)


def test_graphs_that_were_not_used_for_longest_are_removed_first(
    tokenizer: TextTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = some_ranker(tokenizer), small_ranker(tokenizer, encoder("rnn"), decoder("bi")).eval()
    runtime.install(first, "openvino", "float32")
    folder = engine_folder(first)
    monkeypatch.setattr(store, "MOST_BYTES", store.size_of(folder) + 1)
    runtime.install(second, "openvino", "float32")
    second.encode(["eleven", "one"])
    assert not folder.exists()
    assert len(list(store.engines_folder().iterdir())) == 1


def test_names_of_runtimes_are_checked(tokenizer: TextTokenizer) -> None:
    model = small_model(tokenizer, encoder("rnn"), decoder("label"))
    with pytest.raises(TwofoldError, match="did you mean 'openvino'"):
        runtime.install(model, "openvinoo")
    with pytest.raises(TwofoldError, match="did you mean 'bfloat16'"):
        runtime.install(model, precision="bfloat")
    with pytest.raises(TwofoldError, match="onnxruntime computes float32; set precision=float32"):
        runtime.install(model, "onnxruntime", "bfloat16")
