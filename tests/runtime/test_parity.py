"""Texts of every kind give in every engine and export what torch gives; `benchmarks/parity.py` is the long form."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests import strange
from tests.conftest import decoder, encoder, part_params
from tests.rankers import small_ranker
from tests.runtime.test_ctranslate2 import trained
from tests.test_pairs import EXAMPLES, HEARD, SHOWN, fitting_pair
from twofold import precision, runtime
from twofold.config import kinds
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.exporting import export
from twofold.exporting.card import output_scale
from twofold.exporting.parity import difference
from twofold.exporting.read import read
from twofold.inputs.audio import Spectrogram
from twofold.inputs.image import Images
from twofold.inputs.text import Tokens
from twofold.model import Model, Ranker
from twofold.model.representation import CANDIDATES
from twofold.runtime.compiled import CompiledEncoder

pytest.importorskip("onnx")
COUNT, SOME = 30, 8
CONTEXTS = ["eleven", "삼백", "one hundred and two"]
LIMIT = 20
"""Tokens of a candidate of small rankers, special tokens included."""


@pytest.fixture(autouse=True)
def engines_may_run(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> Iterator[None]:
    monkeypatch.delenv(runtime.VARIABLE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch must not step in
        yield


def all_texts(tokenizer: TextTokenizer) -> list[str]:
    """Some of every kind, in no order."""
    texts = [text for kind in strange.KINDS for text in strange.texts(kind, SOME if "10,000" in kind else COUNT)]
    texts += strange.at_limit(tokenizer, LIMIT - len(tokenizer.frame), COUNT)
    random.Random(0).shuffle(texts)
    return texts


def ranker_of(tokenizer: TextTokenizer, reads: str = "pretrained", ranks: str = "bi", **settings: Any) -> Ranker:
    """A small ranker of one tower, whose weights are all drawn at random."""
    how: dict[str, Any] = {"max_context": LIMIT, "max_candidate": LIMIT, "context": {"keep": "head"}}
    model = small_ranker(tokenizer, encoder(reads), decoder(ranks, **settings), **how)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 10)
    return model.eval()


def vectors_of(model: Ranker, texts: list[str]) -> list[np.ndarray[Any, Any]]:
    """Vectors of all texts at once, of unsorted batches, and of texts alone."""
    side = model.side(CANDIDATES)
    items = side.input.items_of(texts)
    with torch.no_grad():
        batches = [side.represent(items[start : start + 16], None, model.device) for start in range(0, 64, 16)]
    ragged = [batch.vectors.flatten(0, -2) if batch.mask is None else batch.vectors[batch.mask] for batch in batches]
    together = model.encode(texts)
    return [
        np.concatenate(together) if isinstance(together, list) else together,
        torch.cat(ragged).numpy(),
        *(model.encode(text) for text in texts[:24]),
    ]


@pytest.mark.parametrize("reads", part_params([kind for kind in kinds("encoders") if encoder(kind).reads is Tokens]))
def test_texts_of_every_kind_give_the_vectors_of_torch(tokenizer: TextTokenizer, reads: str) -> None:
    model, texts = ranker_of(tokenizer, reads), all_texts(tokenizer)
    expected = vectors_of(model, texts)
    for engine in ("openvino", "onnxruntime"):
        runtime.install(model, engine, "float32")
        for ours, theirs in zip(vectors_of(model, texts), expected, strict=True):
            assert difference(ours, theirs) <= 1e-5, engine


@pytest.mark.skipif(not precision.is_fast(), reason="this processor has no native bfloat16")
def test_texts_of_every_kind_are_close_in_bfloat16(tokenizer: TextTokenizer) -> None:
    model, texts = ranker_of(tokenizer, "transformer"), all_texts(tokenizer)
    expected = vectors_of(model, texts)
    runtime.install(model, "openvino", "bfloat16")
    for ours, theirs in zip(vectors_of(model, texts), expected, strict=True):
        lengths = np.linalg.norm(ours, axis=-1) * np.linalg.norm(theirs, axis=-1)
        assert ((ours * theirs).sum(-1) / lengths).mean() > 0.9999


def run_of(folder: Path, to: str) -> Any:
    """Computes the vectors of texts by an exported folder alone."""
    graph = json.loads((folder / "config.json").read_text(encoding="utf-8"))["graphs"]["candidate"]
    engine = runtime.engine_named({"onnx": "onnxruntime"}.get(to, to), "float32")
    assert engine is not None
    run = engine.load(folder / graph["file"], "float32", 1)
    return lambda texts: run(read(graph["input"], texts, folder))[0]


@pytest.mark.parametrize("to", ["onnx", "openvino"])
def test_texts_of_every_kind_give_the_vectors_of_torch_in_an_export(
    tokenizer: TextTokenizer, tmp_path: Path, to: str
) -> None:
    model, texts = ranker_of(tokenizer), all_texts(tokenizer)
    export(model, tmp_path / "out", to)
    run, expected = run_of(tmp_path / "out", to), model.encode(texts)
    ragged = [run(texts[start : start + 16]) for start in range(0, len(texts), 16)]
    assert difference(np.concatenate(ragged), expected) <= 1e-5
    for text, vector in zip(texts[:24], expected, strict=False):
        assert difference(run([text])[0], vector) <= 1e-5, text[:100]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_texts_of_every_kind_give_the_vectors_of_torch_in_sentence_transformers(
    tokenizer: TextTokenizer, tmp_path: Path
) -> None:
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed (extra dev)")
    model, texts = ranker_of(tokenizer, pooling="mean"), all_texts(tokenizer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        export(model, tmp_path / "out", "sentence-transformers")
        theirs = library.SentenceTransformer(str(tmp_path / "out"), device="cpu")
        vectors = theirs.encode_document(texts)
    assert difference(vectors, model.encode(texts) / output_scale(model)) <= 1e-5


def written(model: Model, texts: list[str]) -> list[Any]:
    """The text written for each text, or why it is refused."""
    answers: list[Any] = []
    for text in texts:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that long ones are cut
                answers.append(model.predict([text])[0].output)
        except TwofoldError as error:
            answers.append(str(error))
    return answers


def test_texts_of_every_kind_are_translated_by_ctranslate2_as_by_torch(tokenizer: TextTokenizer) -> None:
    pytest.importorskip("ctranslate2", reason="the extra `fast` is not installed")
    model, texts = trained(tokenizer), all_texts(tokenizer)
    runtime.install(model, "torch", "float32")
    expected = written(model, texts)
    assert len(set(expected)) > COUNT
    runtime.install(model, "ctranslate2", "float32")
    assert written(model, texts) == expected


def engines_of(model: Model) -> list[CompiledEncoder]:
    """The engines of the encoders of a model."""
    return [encoder.engine for encoder in model.encoders() if isinstance(encoder.engine, CompiledEncoder)]


def computed(model: Model) -> list[torch.Tensor]:
    """What the decoder of a model makes of some rows: scores of all pairs, or logits."""
    if isinstance(model, Ranker):
        return [torch.from_numpy(model.similarity(CONTEXTS, CONTEXTS[::-1]))]
    rows: list[dict[str, Any]] = {Images: SHOWN, Spectrogram: HEARD}.get(model.config.input.gives, EXAMPLES)
    with torch.no_grad():
        output = model(model.batch(rows))["main"]
    return [part for part in (output.logits, output.relations) if part is not None]


@pytest.mark.parametrize("writes", part_params(kinds("decoders")))
def test_every_decoder_makes_of_an_engines_states_what_it_makes_of_torchs(
    tokenizer: TextTokenizer, writes: str
) -> None:
    model = fitting_pair(tokenizer, decoder(writes)).eval()
    expected = computed(model)
    runtime.install(model, "openvino", "float32")
    for ours, theirs in zip(computed(model), expected, strict=True):
        assert difference(ours, theirs) <= 1e-5
    engines = engines_of(model)
    assert engines
    assert all(form is not None for engine in engines for form in engine._forms.values())
    assert any(engine._forms for engine in engines), "torch was used"
