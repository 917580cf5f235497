"""One loop for every pair: steps, schedules, logs and what is kept."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import twofold
from tests import made
from tests.conftest import decoder, encoder, small_model, small_recipe, write_jsonl
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.recipe import Recipe, train
from twofold.recipe.build import cache_rows, split_rows
from twofold.training.config import TrainConfig
from twofold.training.optimizer import ExponentialMovingAverage, learning_rate


@pytest.fixture
def rows(tmp_path: Path) -> str:
    return write_jsonl(tmp_path / "numbers.jsonl", made.numbers(200, seed=1))


def log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("parts", [("rnn", "rnn"), ("rnn", "attention_rnn"), ("transformer", "transformer")])
def test_accumulated_batches_give_the_gradients_of_their_union(
    tokenizer: TextTokenizer, parts: tuple[str, str]
) -> None:
    model = small_model(tokenizer, encoder(parts[0], dropout=0.0), decoder(parts[1], dropout=0.0))
    examples = made.numbers(9, seed=3)
    model.loss(model.batch(examples)).backward()  # type: ignore[no-untyped-call]
    whole = {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}
    model.zero_grad()
    batches = [model.batch(examples[start : start + 4]) for start in range(0, 9, 4)]
    counts = {"main": sum(model.counts(batch)["main"] for batch in batches)}
    for batch in batches:
        model.weighted(model.losses(batch), counts).backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, whole[name], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "adamax"},
        {"optimizer": "adamw", "schedule": "cosine", "clip": 0.0},
        {"schedule": "plateau", "evaluate_every": 5},
        {"schedule": "inverse_sqrt", "ema": 0.9},
        {"precision": "bfloat16"},
        {"batch_rows": 16},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_the_loss_falls_with_every_option(tmp_path: Path, rows: str, changes: dict[str, Any]) -> None:
    settings = {"max_steps": 40, "learning_rate": 1e-2, "log_every": 10, **changes}
    train(Recipe.of(small_recipe(rows, data={"held_out": 20}, train=settings)), tmp_path / "run")
    losses = [line["loss"] for line in log(tmp_path / "run") if "loss" in line]
    assert losses[-1] < 0.8 * losses[0]


def test_schedules_follow_their_formulas() -> None:
    def rate(schedule: str, step: int, progress: float = 0.0, plateau: float = 1.0) -> float:
        config = TrainConfig(schedule=schedule, warmup=100, learning_rate=1.0)  # type: ignore[arg-type]
        return learning_rate(config, step, progress, plateau)

    assert rate("constant", 50) == 0.5
    assert rate("constant", 5000) == 1.0
    assert rate("inverse_sqrt", 50) == 0.5
    assert rate("inverse_sqrt", 400) == pytest.approx(0.5)
    assert rate("cosine", 500, 0.5) == pytest.approx(0.5)
    assert rate("cosine", 500, 1.0) == pytest.approx(0.0)
    assert rate("plateau", 500, plateau=0.25) == 0.25


def test_a_plateau_lowers_the_rate_after_an_evaluation_without_gain(tmp_path: Path, rows: str) -> None:
    settings = {
        "schedule": "plateau",
        "max_steps": 12,
        "evaluate_every": 3,
        "learning_rate": 1e-12,
        "weight_decay": 0.0,
    }
    recipe = small_recipe(rows, data={"held_out": 20}, train={**settings, "ema": 0.0})
    train(Recipe.of(recipe), tmp_path / "run")
    rates = [line["learning_rate"] for line in log(tmp_path / "run") if "learning_rate" in line]
    assert rates[3] == pytest.approx(1e-12)
    assert rates[-1] == pytest.approx(0.25e-12)


def test_the_best_model_is_kept_not_the_last(tmp_path: Path, rows: str) -> None:
    settings = {"max_steps": 60, "evaluate_every": 10, "learning_rate": 0.5, "schedule": "constant", "warmup": 40}
    recipe = Recipe.of(small_recipe(rows, data={"held_out": 40}, train=settings))
    train(recipe, tmp_path / "run")
    judged = [line["dev_loss"] for line in log(tmp_path / "run") if "dev_loss" in line]
    assert min(judged) < judged[-1], "the rate was meant to ruin the model in the end"
    saved = twofold.load(tmp_path / "run")
    held_out = split_rows(recipe, cache_rows(recipe, saved), saved).validation
    report = twofold.evaluate(saved, [dict(row.values) for row in held_out])
    assert report.metrics["loss"] == pytest.approx(min(judged), rel=1e-5)


def test_the_running_mean_is_what_is_judged_and_saved(tokenizer: TextTokenizer) -> None:
    model = small_model(tokenizer, encoder("rnn"), decoder("rnn"))
    mean = ExponentialMovingAverage(model, 0.5)
    before = [one.detach().clone() for one in model.parameters()]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    mean.update(1000)
    mean.swap()
    for parameter, old in zip(model.parameters(), before, strict=True):
        torch.testing.assert_close(parameter.detach(), old + 0.5)
    mean.swap()
    for parameter, old in zip(model.parameters(), before, strict=True):
        torch.testing.assert_close(parameter.detach(), old + 1.0)


def test_the_running_mean_is_also_one_of_what_batch_norm_has_seen() -> None:
    norm = torch.nn.BatchNorm1d(2)
    mean = ExponentialMovingAverage(norm, 0.5)
    norm(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
    assert norm.running_mean is not None
    seen = norm.running_mean.clone()
    mean.update(1000)
    mean.swap()
    torch.testing.assert_close(norm.running_mean, seen / 2)
    assert norm.num_batches_tracked == 1
    mean.swap()
    torch.testing.assert_close(norm.running_mean, seen)


def test_batch_norm_is_refused_with_accumulation(tmp_path: Path, rows: str) -> None:
    recipe = small_recipe(rows, "transformer", "transformer", train={"accumulate": 2})
    recipe["decoder"]["norm"] = "batch"
    with pytest.raises(TwofoldError, match=r"norm: batch does not go with train\.accumulate"):
        train(Recipe.of(recipe), tmp_path / "run")


def test_batch_norm_trains_without_accumulation(tmp_path: Path, rows: str) -> None:
    recipe = small_recipe(rows, "transformer", "transformer", train={"max_steps": 30, "learning_rate": 1e-2})
    recipe["encoder"]["norm"] = recipe["decoder"]["norm"] = "batch"
    train(Recipe.of(recipe), tmp_path / "run")
    losses = [line["loss"] for line in log(tmp_path / "run") if "loss" in line]
    assert losses[-1] < losses[0]


def test_tensorboard_gets_what_is_logged(tmp_path: Path, rows: str) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

    train(Recipe.of(small_recipe(rows, train={"tensorboard": True})), tmp_path / "run")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    shown = [event.value for event in events.Scalars("loss")]
    assert shown == pytest.approx([line["loss"] for line in log(tmp_path / "run") if "loss" in line], rel=1e-6)


def test_an_unknown_metric_to_pick_the_best_is_named(tmp_path: Path, rows: str) -> None:
    recipe = small_recipe(rows, data={"held_out": 5}, train={"best": "blue"})
    with pytest.raises(TwofoldError, match=r"train\.best: no metric 'blue'; did you mean 'bleu'\?"):
        train(Recipe.of(recipe), tmp_path / "run")


def test_picking_the_best_by_what_is_written_needs_rows_to_judge_by(tmp_path: Path, rows: str) -> None:
    with pytest.raises(TwofoldError, match=r"train\.best=bleu needs validation rows: give data\.dev or"):
        train(Recipe.of(small_recipe(rows, train={"best": "bleu"})), tmp_path / "run")


def test_a_start_that_failed_can_be_corrected_in_the_same_folder(tmp_path: Path, rows: str) -> None:
    with pytest.raises(TwofoldError, match="no 'answer' here"):
        train(Recipe.of(small_recipe(rows, target="answer")), tmp_path / "run")
    train(Recipe.of(small_recipe(rows, input={"tokenizer": {"size": 70}})), tmp_path / "run")
    assert len(twofold.load(tmp_path / "run").tokenizers["input"]) == 70
    with pytest.raises(TwofoldError, match="holds a training already"):
        train(Recipe.of(small_recipe(rows)), tmp_path / "run")
    (tmp_path / "run" / "recipe.yaml").unlink()
    with pytest.raises(TwofoldError, match=r"not its recipe\.yaml; choose another folder"):
        train(Recipe.of(small_recipe(rows)), tmp_path / "run", resume=True)


def test_the_loss_of_any_loop_of_ones_own_can_be_minimized(tokenizer: TextTokenizer) -> None:
    model = small_model(tokenizer, encoder("rnn"), decoder("rnn"))
    batch = model.batch(made.numbers(8, seed=1))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = model.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    assert math.isfinite(losses[-1])


def test_a_loss_that_is_no_number_ends_the_training_with_one_line(tmp_path: Path, rows: str) -> None:
    settings = {"max_steps": 50, "learning_rate": 1e38, "warmup": 0, "clip": 0.0, "schedule": "constant"}
    with pytest.raises(TwofoldError, match=r"no longer a number at step \d+; lower train\.learning_rate"):
        train(Recipe.of(small_recipe(rows, train=settings)), tmp_path / "run")
