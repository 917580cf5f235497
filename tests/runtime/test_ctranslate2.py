"""A Transformer from text to text writes through CTranslate2 what it writes in torch, or torch writes and says why."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import made
from tests.conftest import decoder, encoder, small_model
from tests.rankers import small_ranker
from twofold import runtime
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.generate.search import GenerateOptions
from twofold.model import Model
from twofold.results import Prediction
from twofold.runtime import store

pytest.importorskip("ctranslate2", reason="the extra `fast` is not installed")
from twofold.runtime import ctranslate2  # after the check of its package

TEXTS = [pair["source"] for pair in made.numbers(30, seed=5)] + ["eleven", "삼백", "one " * 9, "?"]
SHAPES: dict[str, dict[str, Any]] = {
    "pre": {},
    "post": {"norm_place": "post", "activation": "gelu"},
    "learned": {"positions": "learned", "feed_forward": 24},
    "no positions": {"positions": "none"},
}
"""Settings of both sides, of every shape that CTranslate2 has layers for."""
UNLIKE: dict[str, dict[str, Any]] = {
    "rotary positions": {"positions": "rotary"},
    "batch norm": {"norm": "batch"},
    "window attention": {"attention": "window", "window": 3},
    "linear attention": {"attention": "linear"},
    "no residual connections": {"residual": False},
}
BEAM = GenerateOptions(beam=4)


@pytest.fixture(autouse=True)
def engines_may_run(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    monkeypatch.delenv(runtime.VARIABLE)


@pytest.fixture
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def transformer(tokenizer: TextTokenizer, reads: dict[str, Any], writes: dict[str, Any] | None = None) -> Model:
    writes = reads if writes is None else writes
    model = small_model(tokenizer, encoder("transformer", **reads), decoder("transformer", **writes))
    with torch.no_grad():  # larger weights make a random model sure of some tokens
        for parameter in model.parameters():
            parameter.mul_(2 if parameter.ndim > 1 else 1)
    return model.eval()


def trained(tokenizer: TextTokenizer, steps: int = 60) -> Model:
    """Has learned to write short texts, and to end them."""
    model = small_model(tokenizer, encoder("transformer", width=32), decoder("transformer", width=32, tied=False))
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    pairs = made.numbers(64, seed=2)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        model.loss(model.batch(pairs)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model.eval()


def assert_same(ours: list[Prediction], theirs: list[Prediction]) -> None:
    assert [prediction.tokens for prediction in ours] == [prediction.tokens for prediction in theirs]
    for mine, right in zip(ours, theirs, strict=True):
        assert mine.score == pytest.approx(right.score, rel=1e-4, abs=1e-4)
        assert mine.normalized_scores == pytest.approx(right.normalized_scores, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_greedy_texts_and_scores_are_torchs(tokenizer: TextTokenizer, shape: str, no_warnings: None) -> None:
    model = transformer(tokenizer, SHAPES[shape], {**SHAPES[shape], "tied": shape == "pre", "layers": 1})
    expected = model.predict(TEXTS)
    runtime.install(model, "ctranslate2", "float32")
    assert_same(model.predict(TEXTS), expected)
    assert model.computing == {"precision": "float32", "runtime": "ctranslate2"}


@pytest.mark.parametrize("options", [BEAM, GenerateOptions(beam=4, length_penalty=0.3), GenerateOptions(max_length=3)])
def test_a_trained_model_writes_and_ends_as_in_torch(
    tokenizer: TextTokenizer, options: GenerateOptions, no_warnings: None
) -> None:
    model = trained(tokenizer)
    expected = model.predict(TEXTS, options)
    assert len({len(prediction.tokens or ()) for prediction in expected}) > 2, "texts end at different lengths"
    runtime.install(model, "ctranslate2", "float32")
    assert_same(model.predict(TEXTS, options), expected)


@pytest.mark.parametrize("reason", UNLIKE)
def test_a_model_without_a_layer_there_runs_in_torch_and_says_why_once(tokenizer: TextTokenizer, reason: str) -> None:
    model = transformer(tokenizer, {}, UNLIKE[reason])
    expected = model.predict(TEXTS[:3])
    runtime.install(model, "ctranslate2", "float32")
    with pytest.warns(UserWarning, match=f"ctranslate2: the decoder has {reason}; torch is used") as said:
        answers = [model.predict(TEXTS[:3]) for _ in range(2)]
    assert len(said) == 1
    assert answers == [expected, expected]


def test_models_that_write_no_text_run_in_torch(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    model = small_model(tokenizer, encoder("transformer"), decoder("label")).eval()
    runtime.install(model, "ctranslate2", "float32")
    with pytest.warns(UserWarning, match="one text and write one text; torch is used"):
        model.predict(TEXTS[:2])
    with pytest.raises(TwofoldError, match="cannot be exported to CTranslate2: the encoder is no Transformer"):
        ctranslate2.convert(small_model(tokenizer, encoder("rnn"), decoder("transformer")), tmp_path / "out")
    ranker = small_ranker(tokenizer, encoder("transformer"), decoder("bi")).eval()
    runtime.install(ranker, "ctranslate2", "float32")
    ranker.rank("eleven", ["one", "two"])
    assert not (tmp_path / "out").exists()


def test_sampling_is_torchs(tokenizer: TextTokenizer) -> None:
    model = transformer(tokenizer, {})
    options = GenerateOptions(sample=True, seed=3)
    expected = model.predict(TEXTS[:3], options)
    runtime.install(model, "ctranslate2", "float32")
    with pytest.warns(UserWarning, match="sampling.*torch is used"):
        assert model.predict(TEXTS[:3], options) == expected


def test_int8_is_close_to_float32_and_only_for_ctranslate2(tokenizer: TextTokenizer) -> None:
    model = trained(tokenizer)
    expected = model.predict(TEXTS)
    runtime.install(model, "ctranslate2", "int8")
    answers = model.predict(TEXTS)
    same = sum(ours.tokens == theirs.tokens for ours, theirs in zip(answers, expected, strict=True))
    assert same > 0.7 * len(TEXTS)
    assert [ours.score for ours in answers] != [theirs.score for theirs in expected]
    with pytest.raises(TwofoldError, match="precision=int8 is for runtime=ctranslate2"):
        runtime.install(model, "torch", "int8")


def test_the_converted_model_is_kept_and_made_anew_when_damaged(tokenizer: TextTokenizer) -> None:
    model = transformer(tokenizer, {})
    expected = model.predict(TEXTS[:3])
    runtime.install(model, "ctranslate2", "float32")
    model.predict(TEXTS[:1])
    (folder,) = store.engines_folder().iterdir()
    path = folder / ctranslate2.FILE
    before = path.stat().st_mtime_ns
    runtime.install(model, "ctranslate2", "float32")
    assert_same(model.predict(TEXTS[:3]), expected)
    assert path.stat().st_mtime_ns == before
    path.write_bytes(path.read_bytes()[:-100])
    runtime.install(model, "ctranslate2", "float32")
    with pytest.warns(UserWarning, match="its file is damaged; made anew"):
        assert_same(model.predict(TEXTS[:3]), expected)


def test_learning_takes_the_engine_off(tokenizer: TextTokenizer) -> None:
    model = transformer(tokenizer, {})
    runtime.install(model, "ctranslate2", "float32")
    model.predict(TEXTS[:1])
    model.train()
    assert model.writer is None


def test_a_cache_folder_that_cannot_be_written_leaves_torch(
    tokenizer: TextTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "file"))
    model = transformer(tokenizer, {})
    expected = model.predict(TEXTS[:3])
    runtime.install(model, "ctranslate2", "float32")
    with pytest.warns(UserWarning, match="cannot be kept in the cache folder .*; torch is used"):
        assert model.predict(TEXTS[:3]) == expected
