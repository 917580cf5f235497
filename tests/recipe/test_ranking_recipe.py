"""Ranking recipes learn what they must be able to learn, keep the best model, go on where they stopped, and say no."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from tests.conftest import write_jsonl
from tests.recipe.tasks import pairs, read_log, recipe, write_pairs
from twofold.api import evaluate
from twofold.cli import main
from twofold.data.files import Row
from twofold.data.ranking import RankingReader, questions
from twofold.encoders import pretrained
from twofold.errors import TwofoldError
from twofold.model import Ranker
from twofold.model.config import MAIN
from twofold.outputs.ranking import Config as RankingOutput
from twofold.recipe import Recipe, train
from twofold.recipe.build import build_model, cache_rows, draw_rows, split_rows
from twofold.recipe.file import recipe_folder, to_yaml
from twofold.training.loop import Trainer
from twofold.training.optimizer import learning_rate

KINDS = ["bi", "poly", "cross"]


def classes(rows: int, seed: int) -> list[dict[str, Any]]:
    """One word of five to be answered by its own, each beside a word that says nothing."""
    draw = random.Random(seed)
    names = []
    for _ in range(rows):
        word = draw.randrange(5)
        candidates = [f"r{one} y{draw.randrange(4)}" for one in range(5)]
        names.append({"context": f"w{word} x{draw.randrange(4)}", "candidates": candidates, "label": word})
    return names


@pytest.mark.parametrize("kind", ["bi", "poly"])
def test_pairs_are_learned_and_unseen_ones_are_found_among_ten(tmp_path: Path, kind: str) -> None:
    settings = {"max_steps": 60, "learning_rate": 5e-3, "batch_rows": 25, "log_every": 60}
    outcome = train(
        Recipe.of(recipe(write_pairs(tmp_path, 132), kind, data={"held_out": 32}, train=settings)), tmp_path / "run"
    )
    (judged,) = [line for line in read_log(tmp_path / "run") if "dev_r@1" in line and line["step"] == 60]
    assert judged["dev_r@1"] > 0.9
    assert outcome.best is not None
    assert outcome.best > 0.9
    assert read_log(tmp_path / "run")[0]["validation_rows"] == 32


def test_pairs_of_several_files_are_ranked_as_those_of_one(tmp_path: Path) -> None:
    files = [write_jsonl(tmp_path / f"{seed}.jsonl", pairs(30, seed)) for seed in (1, 2)]
    whole = write_jsonl(tmp_path / "whole.jsonl", [*pairs(30, 1), *pairs(30, 2)])
    for name, rows in {"several": files, "one": whole}.items():
        settings = {"data": {"train": rows, "held_out": 20}, "train": {"max_steps": 3, "log_every": 1}}
        train(Recipe.of(recipe(whole, "bi", **settings)), tmp_path / name)
    assert losses(tmp_path / "several") == losses(tmp_path / "one")


def test_rows_that_another_has_learned_from_can_be_left_out(tmp_path: Path) -> None:
    path = write_pairs(tmp_path, 50)

    def learned(**data: int) -> set[int]:
        made_of = Recipe.of(recipe(path, "cross", data={"held_out": 10, **data}))
        return set(draw_rows(made_of.data, 50, made_of.train.seed)[0].tolist())

    everything, first = learned(), learned(rows=15)
    assert len(first) == 15
    assert learned(skip=15) == everything - first
    assert learned(skip=15, rows=20) < everything - first
    assert len(learned(skip=15, rows=20)) == 20
    with pytest.raises(TwofoldError, match=r"data\.skip=39: .* there are only 40; data\.skip=0 trains on all"):
        learned(skip=39)


@pytest.mark.parametrize("kind", KINDS)
def test_only_what_compares_can_tell_the_hardest_wrong_candidates(tmp_path: Path, kind: str) -> None:
    with pytest.raises(TwofoldError, match=r"train.hard_negatives needs the scores of decoder.compare: set it"):
        Recipe.of(recipe(write_pairs(tmp_path, 20), kind, train={"hard_negatives": True}))


def test_a_cross_encoder_learns_from_rows_of_candidates(tmp_path: Path) -> None:
    settings = {"max_steps": 150, "learning_rate": 1e-2, "negatives": 4, "log_every": 150, "evaluate_every": 150}
    rows, dev = (write_jsonl(tmp_path / f"{seed}.jsonl", classes(count, seed)) for seed, count in ((1, 200), (2, 40)))
    train(Recipe.of(recipe(rows, "cross", data={"dev": dev}, train=settings)), tmp_path / "run")
    assert evaluate(tmp_path / "run", dev, timed=0).metrics["r@1"] > 0.9


@pytest.mark.parametrize("kind", ["bi", "cross"])
def test_rows_with_several_right_responses_are_learned_and_judged(tmp_path: Path, kind: str) -> None:
    rows = [
        {
            "context": row["context"],
            "response": [f"r{row['label']} y{number}" for number in (0, 2, 3)],
            "negatives": [text for text in row["candidates"] if not text.startswith(f"r{row['label']}")],
        }
        for row in classes(80, 1)
    ]
    rows += [{**row, "label": None, "labels": [row["label"]]} for row in classes(40, 2)]
    path, dev = write_jsonl(tmp_path / "rows.jsonl", rows), write_jsonl(tmp_path / "dev.jsonl", classes(30, 3))
    settings = {"max_steps": 150, "learning_rate": 1e-2, "negatives": 4, "log_every": 150, "evaluate_every": 150}
    train(Recipe.of(recipe(path, kind, data={"dev": dev}, train=settings)), tmp_path / "run")
    assert evaluate(tmp_path / "run", dev, timed=0).metrics["r@1"] > 0.8


def test_a_column_that_looks_like_a_label_is_named_before_the_training(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{**row, "Label": number % 2} for number, row in enumerate(pairs(20, 1))]
    path = write_jsonl(tmp_path / "rows.jsonl", [*pairs(3, 2), *rows])
    for run in ("first", "again"):  # the second time the rows come from the cache
        with pytest.warns(UserWarning, match="'label' is not read") as caught:
            train(Recipe.of(recipe(path, "bi", data={"held_out": 10}, train={"max_steps": 1})), tmp_path / run)
        (warning,) = caught
        assert str(warning.message).startswith(f"{path}:4: 'label' is not read (here and in 19 more rows); ")


def test_the_first_of_the_best_models_is_kept(tmp_path: Path) -> None:
    rows, dev = write_pairs(tmp_path, 132), write_jsonl(tmp_path / "dev.jsonl", pairs(40, seed=2))
    settings = {"max_steps": 60, "evaluate_every": 10, "schedule": "constant", "warmup": 0, "learning_rate": 1e-2}
    whole = recipe(rows, data={"dev": dev}, train=settings)
    outcome = train(Recipe.of(whole), tmp_path / "run")
    judged = {line["step"]: line["dev_mrr"] for line in read_log(tmp_path / "run") if "dev_mrr" in line}
    assert list(judged) == [10, 20, 30, 40, 50, 60]
    best = max(judged, key=lambda step: judged[step])
    assert best < 60
    assert outcome.best == judged[best] == evaluate(tmp_path / "run", dev, timed=0).metrics["mrr"]
    train(Recipe.of({**whole, "train": {**whole["train"], "max_steps": best}}), tmp_path / "short")
    kept = [(tmp_path / run / "model" / "model.safetensors").read_bytes() for run in ("run", "short")]
    assert kept[0] == kept[1]


def losses(folder: Path) -> list[str]:
    """Step and loss or MRR of every line of the log, as they stand there."""
    text = (folder / "log.jsonl").read_text()
    return re.findall(r'"step": \d+, "loss": [^,}]+|"step": \d+, .*"dev_mrr": [^,}]+', text)


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_that_was_stopped_goes_on_with_the_same_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    settings = {"max_steps": 12, "accumulate": 2, "ema": 0.9, "evaluate_every": 4, "memory_tokens": 60}
    more = {"chunk_tokens": 40, "negatives": 3, "learning_rate_multipliers": {"decoders": 3.0}}
    content = recipe(
        write_pairs(tmp_path), kind, data={"held_out": 20}, encoder={"dropout": 0.2}, train={**settings, **more}
    )
    train(Recipe.of(content), tmp_path / "whole")
    step = Trainer._step

    def stopping(self: Trainer, *given: Any) -> int:
        self._asked_to_stop = self.progress.step == 6
        return step(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", stopping)
        assert not train(Recipe.of(content), tmp_path / "parts").finished
    assert train(Recipe.of(content), tmp_path / "parts", resume=True).finished
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    assert len(losses(tmp_path / "whole")) == 12 + 3
    same = [(tmp_path / run / "model" / "model.safetensors").read_bytes() for run in ("whole", "parts")]
    assert same[0] == same[1]


def default_recipe(**train: Any) -> Recipe:
    """A ranking recipe that leaves out whatever can be left out."""
    parts = {"encoder": {"kind": "transformer"}, "decoder": {"kind": "poly"}}
    return Recipe.of({"data": {"train": "x"}, **parts, "train": train})


def test_defaults_are_those_of_the_field() -> None:
    made_of = default_recipe()
    task = made_of.tasks[MAIN]
    assert isinstance(task.output, RankingOutput)
    assert (made_of.input.limits(), task.output.candidate.limits()) == ({"max_tokens": 100}, {"max_tokens": 50})
    assert made_of.model_config().input.limits() == {"max_tokens": 100}
    assert task.decoder.codes == 16  # type: ignore[attr-defined]
    settings = made_of.train
    assert (settings.batch_rows, settings.candidates, settings.epochs) == (32, 10, 3)
    assert (settings.learning_rate, settings.warmup, settings.warmup_share) == (5e-5, 2000, 0.1)
    assert settings.best == "mrr"


def test_the_warm_up_takes_2000_steps_or_a_tenth_of_all_whichever_is_less() -> None:
    settings = default_recipe(schedule="constant").train
    for total, steps in ((100_000, 2000), (20_000, 2000), (10_000, 1000), (40, 4), (3, 1)):
        rates = [
            learning_rate(settings, step, 0.0, 1.0, total) for step in (1, steps // 2 or 1, steps, steps + 1, total)
        ]
        assert rates[0] == pytest.approx(5e-5 / steps)
        assert rates[1] == pytest.approx(5e-5 * (steps // 2 or 1) / steps)
        assert rates[2:] == [5e-5] * 3


@pytest.mark.parametrize("rates", [{}, {"decoders.main.codes": 50.0}], ids=["one-rate", "several"])
def test_the_log_tells_the_rate_of_the_schedule(tmp_path: Path, rates: dict[str, float]) -> None:
    content = recipe(
        write_pairs(tmp_path, 64), "poly", train={"epochs": 10, "max_steps": None, "learning_rate_multipliers": rates}
    )
    train(Recipe.of(content), tmp_path / "run")
    logged = [line["learning_rate"] for line in read_log(tmp_path / "run") if "learning_rate" in line]
    assert len(logged) == 40
    cosine = [0.5 * (1 + math.cos(math.pi * step / 40)) for step in range(40)]
    assert logged == pytest.approx([3e-3 * min(1.0, (step + 1) / 4) * cosine[step] for step in range(40)])


def moved(folder: Path, name: str, **settings: Any) -> dict[str, float]:
    """Largest move of each parameter in one step; Adam's first step is the rate, whatever the gradient."""
    content = recipe(
        write_pairs(folder), "poly", train={"max_steps": 1, "learning_rate": 1e-3, "weight_decay": 0.0, **settings}
    )
    made_of = Recipe.of(content)
    train(made_of, folder / name)
    torch.manual_seed(made_of.train.seed)
    before = dict(build_model(made_of, folder / name / "tokenizers").named_parameters())
    after = dict(Ranker.from_pretrained(folder / name).named_parameters())
    return {name: (after[name] - value).abs().max().item() for name, value in before.items()}


def test_rates_multiply_those_of_the_parameters_they_name(tmp_path: Path) -> None:
    plain = moved(tmp_path, "plain")
    assert plain["decoders.main.codes"] == pytest.approx(1e-3, rel=1e-2)
    changes = moved(
        tmp_path,
        "learning_rate_multipliers",
        learning_rate_multipliers={"decoders": 20.0, "decoders.main.codes": 50.0, "encoder": 0.0},
    )
    assert changes["decoders.main.codes"] == pytest.approx(50e-3, rel=1e-2)
    assert changes["decoders.main.vector.log_scale"] == pytest.approx(20e-3, rel=1e-2)
    assert {value for name, value in changes.items() if name.startswith("encoder.")} == {0.0}
    with pytest.raises(TwofoldError, match=r"no parameter's name begins with 'decoder.codes'"):
        moved(tmp_path, "none", learning_rate_multipliers={"decoder.codes": 2.0})


def test_some_rows_may_be_drawn_and_none_of_them_is_judged_by(tmp_path: Path) -> None:
    content = recipe(write_pairs(tmp_path), data={"held_out": 20, "rows": 30})
    train(Recipe.of(content), tmp_path / "run")
    assert read_log(tmp_path / "run")[0] | {"rows": 30, "validation_rows": 20} == read_log(tmp_path / "run")[0]
    made_of = Recipe.of(content)
    model = build_model(made_of, tmp_path / "run" / "tokenizers")
    split = split_rows(made_of, cache_rows(made_of, model), model)
    lines = [Row("", json.loads(line)).values for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert len(split.rows) == 30
    assert not [row for row in split.validation if row.values in [lines[number] for number in split.rows]]


@pytest.mark.parametrize("path", sorted(recipe_folder().glob("rank_*.yaml")), ids=lambda path: path.stem)
def test_every_ranking_recipe_that_comes_along_is_read_without_a_network(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_now(name: str) -> dict[str, Any]:
        raise TwofoldError(f"{name}: read only when a model is built")

    monkeypatch.setenv("TWOFOLD_DATA", str(tmp_path))
    monkeypatch.setattr(pretrained, "_architecture", not_now)
    loaded = Recipe.load(path)
    assert Recipe.of(loaded.plain()) == loaded
    assert str(loaded.data.train).startswith(str(tmp_path))
    fields = {field.name for field in dataclasses.fields(loaded)}
    assert fields >= {"data", "input", "encoder", "tasks", "train", "start", "mine", "teacher"}


def refusal(folder: Path, content: dict[str, Any]) -> str:
    """The one line with which a training ends before its first step."""
    (folder / "recipe.yaml").write_text(to_yaml(content), encoding="utf-8")
    result = CliRunner().invoke(main, ["train", str(folder / "recipe.yaml"), "--out", str(folder / "run")])
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    log = folder / "run" / "log.jsonl"
    assert not log.exists() or '"loss"' not in log.read_text()
    return line.removeprefix("error: ")


@pytest.mark.parametrize("kind", ["bi", "cross"])
@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"context": "w1"}, "no 'response' here"),
        ({"context": "", "response": "r1"}, "'context' is empty"),
        ({"context": "w1", "response": ["r1", ""]}, "'response' "),
        ({"context": "w1", "response": "r1", "negatives": "r2"}, "'negatives' is not a list of texts"),
        ({"context": "w1", "response": "r1", "negatives": [2]}, "'negatives' is not a list of texts"),
        ({"context": "w1", "response": "r1", "negatives": ["\ud83d"]}, "'negatives' holds half a character"),
        ({"context": "w1", "candidates": ["\ud83d", "r1"], "label": 1}, "'candidates' holds half a character"),
        ({"context": "w1", "response": "r1", "negatives": ["r2"], "scores": [1]}, "'scores' must be 2 numbers"),
        ({"context": "w1", "response": "r1", "negatives": ["r2"], "scores": [1, "2"]}, "'scores' must be 2 numbers"),
    ],
)
def test_a_row_that_is_wrong_is_named_with_its_line(tmp_path: Path, kind: str, row: dict[str, Any], said: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in [*pairs(20, 1), row]))
    assert refusal(tmp_path, recipe(path, kind)).startswith(f"{path}:21: {said}")


@pytest.mark.parametrize(
    "content", [b'{"context": "w1"}\n', b"", b"not JSON\n", b'{"context": "w1", "candidates": 1}\n']
)
def test_a_file_to_judge_by_that_is_wrong_is_named_before_the_first_step(tmp_path: Path, content: bytes) -> None:
    dev = tmp_path / "dev.jsonl"
    dev.write_bytes(content)
    assert refusal(tmp_path, recipe(write_pairs(tmp_path), data={"dev": str(dev)})).startswith(str(dev))


def test_too_few_rows_to_judge_by_are_named_before_the_first_step(tmp_path: Path) -> None:
    said = refusal(tmp_path, recipe(write_pairs(tmp_path), data={"held_out": 4}))
    assert "10 candidates need as many different responses, not 4" in said


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("bi", {"best": "r@5", "candidates": 5}),
        ("bi", {"best": "milliseconds"}),
        ("cross", {"best": "cosine"}),
        ("bi", {"best": "bleu"}),
    ],
)
def test_a_metric_that_will_not_be_there_is_named_before_the_first_step(
    tmp_path: Path, kind: str, settings: dict[str, Any]
) -> None:
    said = refusal(tmp_path, recipe(write_pairs(tmp_path), kind, data={"held_out": 20}, train=settings))
    assert said.startswith(f"train.best: no metric '{settings['best']}'")


def test_any_metric_that_is_measured_may_choose_the_best_model(tmp_path: Path) -> None:
    dev = pairs(40, seed=2)
    asked = questions(RankingReader(), [Row("", one) for one in dev], 20)
    rows = [{"context": one.context, "candidates": one.candidates, "label": one.right} for one in asked]
    changes = {"data": {"dev": write_jsonl(tmp_path / "dev.jsonl", rows)}, "train": {"best": "r@10", "max_steps": 2}}
    outcome = train(Recipe.of(recipe(write_pairs(tmp_path), **changes)), tmp_path / "run")
    assert outcome.best == read_log(tmp_path / "run")[-1]["dev_r@10"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"teacher": {"model": "x"}},
            "recipe.teacher: no loss uses its scores; add losses: [..., {kind: kl}], or margin_mse",
        ),
        ({"decoder": {"kind": "cross"}, "losses": [{"kind": "kl"}]}, "read both sides apart, bi and poly"),
        ({"train": {"batch_rows": 1}}, "batch_rows must be at least 2"),
        ({"mine": {"model": "x", "count": 5, "depth": 4}}, "depth at least count"),
        ({"teacher": {"model": "x", "negatives": 0}, "losses": [{"kind": "kl"}]}, "negatives must be at least 1"),
        ({"input": {"max_tokens": 2}}, "input.max_tokens must be at least 3, not 2"),
        ({"output": {"candidate": {"max_tokens": 2}}}, "candidate.max_tokens must be at least 3, not 2"),
        ({"mine": {"model": "/none"}}, "/none: no such model"),
        ({"start": "/none"}, "/none: no such model"),
        ({"decoder": {"kind": "cross"}, "two_towers": True}, "two_towers: the decoder 'cross' reads both sides as one"),
    ],
)
def test_a_setting_that_cannot_be_is_named(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    assert said in refusal(tmp_path, recipe(write_pairs(tmp_path), **changes))
