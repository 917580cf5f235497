"""Training in bfloat16: what is rounded, what stays float32, and that a resumed training keeps its precision."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests import made
from tests.conftest import decoder, encoder, small_model, small_recipe, write_jsonl
from twofold.data.tokenizer import TextTokenizer
from twofold.generate.search import GenerateOptions
from twofold.layers.lookups import RowGradients
from twofold.layers.mixed_precision import autocast
from twofold.recipe import Recipe, train
from twofold.types import Loss


@pytest.fixture
def recipe(tmp_path: Path) -> dict[str, Any]:
    rows = write_jsonl(tmp_path / "numbers.jsonl", made.numbers(200, seed=1))
    return small_recipe(rows, "transformer", "transformer", train={"max_steps": 8, "schedule": "constant"})


def log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def losses(folder: Path) -> list[float]:
    return [line["loss"] for line in log(folder) if "loss" in line]


def test_a_resumed_training_keeps_the_precision_it_began_with(
    tmp_path: Path, recipe: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TWOFOLD_PRECISION", "bfloat16")
    train(Recipe.of(recipe), tmp_path / "whole")
    train(Recipe.of(recipe), tmp_path / "parts", ["train.max_steps=3"])
    monkeypatch.setenv("TWOFOLD_PRECISION", "float32")
    train(Recipe.of(recipe), tmp_path / "parts", resume=True)
    assert losses(tmp_path / "parts")[3:] == losses(tmp_path / "whole")[3:]
    assert "train.precision: goes on in bfloat16, in which the training began" in capsys.readouterr().err
    train(Recipe.of(recipe), tmp_path / "exact")
    assert losses(tmp_path / "exact") != losses(tmp_path / "whole")
    assert losses(tmp_path / "exact") == pytest.approx(losses(tmp_path / "whole"), rel=0.01)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_first_line_of_the_log_says_the_precision(tmp_path: Path, recipe: dict[str, Any], precision: str) -> None:
    train(Recipe.of(recipe), tmp_path / "run", [f"train.precision={precision}", "train.max_steps=1"])
    assert log(tmp_path / "run")[0]["precision"] == precision


def test_weights_optimizer_state_and_saved_model_stay_float32(tmp_path: Path, recipe: dict[str, Any]) -> None:
    from safetensors.torch import load_file

    train(Recipe.of(recipe), tmp_path / "run", ["train.precision=bfloat16"])
    files = [*(tmp_path / "run").glob("checkpoints/*/*.safetensors"), *(tmp_path / "run/model").glob("*.safetensors")]
    assert len(files) == 3
    assert {tensor.dtype for file in files for tensor in load_file(file).values()} == {torch.float32}


@pytest.mark.parametrize(
    ("reads", "writes"),
    [("transformer", "transformer"), ("rnn", "rnn"), ("transformer", "label")],
)
def test_losses_and_gradients_are_float32_and_close(tokenizer: TextTokenizer, reads: str, writes: str) -> None:
    rows = [{**row, "label": "few"} for row in made.numbers(9, seed=3)]
    model = small_model(tokenizer, encoder(reads), decoder(writes)).eval()

    def loss() -> Loss:
        torch.manual_seed(0)
        (loss,) = model.losses(model.batch(rows)).values()
        return loss

    exact = loss()
    model.precision = torch.bfloat16
    rounded = loss()
    assert rounded.sum.dtype == torch.float32
    assert not torch.equal(rounded.sum, exact.sum)
    torch.testing.assert_close(rounded.sum, exact.sum, rtol=0.02, atol=0)
    rounded.sum.backward()  # type: ignore[no-untyped-call]
    assert {one.grad.dtype for one in model.parameters() if one.grad is not None} == {torch.float32}


def test_attention_of_a_training_is_computed_in_float32() -> None:
    torch.manual_seed(0)
    queries, keys, values = (torch.randn(2, 3, 5, 4).bfloat16().requires_grad_() for _ in range(3))
    mask = torch.ones(2, 1, 1, 5, dtype=torch.bool)
    with autocast("cpu", torch.bfloat16, training=True):
        attended = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
    exact = F.scaled_dot_product_attention(queries.float(), keys.float(), values.float(), attn_mask=mask)
    assert attended.dtype == torch.bfloat16
    assert torch.equal(attended, exact.bfloat16())


@pytest.mark.parametrize("padding", [None, 0])
def test_gradients_of_lookups_are_those_of_torch(padding: int | None) -> None:
    torch.manual_seed(0)
    embedding = torch.nn.Embedding(20, 6, padding)
    tokens = torch.tensor([[1, 4, 4, 0], [19, 1, 0, 0]])

    def gradient() -> torch.Tensor:
        embedding.weight.grad = None
        for _ in range(2):  # two chunks, and an output layer that shares the table
            states = embedding(tokens)
            (F.linear(states, embedding.weight).sin().sum() + states.square().sum()).backward()
        assert embedding.weight.grad is not None
        return embedding.weight.grad

    expected = gradient()
    with RowGradients():
        found = gradient()
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)


def test_a_table_that_does_not_learn_gets_no_gradient() -> None:
    embedding = torch.nn.Embedding(20, 6)
    embedding.weight.requires_grad_(False)
    with RowGradients():
        states = embedding(torch.tensor([3]))
    assert not states.requires_grad
    assert embedding.weight.grad is None


@pytest.mark.parametrize("writes", ["transformer", "rnn", "attention_rnn"])
@pytest.mark.parametrize("reads", ["transformer", "rnn"])
def test_texts_are_generated_in_the_precision_of_the_model(tokenizer: TextTokenizer, reads: str, writes: str) -> None:
    torch.manual_seed(3)
    model = small_model(tokenizer, encoder(reads), decoder(writes)).eval()
    texts = ["one two three", "seven", "nine eight seven six five four"]
    for beam in (1, 3):
        options = GenerateOptions(beam=beam, min_length=6, max_length=6)
        model.precision = None
        exact = model.predict(texts, options)
        model.precision = torch.bfloat16
        rounded = model.predict(texts, options)
        scores = [[prediction.score for prediction in predictions] for predictions in (exact, rounded)]
        assert scores[0] != scores[1]
        assert scores[1] == pytest.approx(scores[0], rel=0.1)
    greedy = GenerateOptions(min_length=6, max_length=6)
    streamed = model.stream(texts[2], greedy)
    first = next(streamed)
    assert not torch.is_autocast_enabled("cpu")  # between two pieces
    assert first + "".join(streamed) == model.predict(texts[2], greedy)[0].output
