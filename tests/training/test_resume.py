"""A training that is killed at any moment goes on as if nothing had happened."""

from __future__ import annotations

import fcntl
import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest

from tests import made
from tests.conftest import small_recipe, write_jsonl
from twofold.recipe import Recipe, train
from twofold.recipe.file import to_yaml
from twofold.training import checkpoint


def logged_losses(folder: Path) -> list[str]:
    """Step and loss of every line of the log, as they stand there."""
    lines = (folder / "log.jsonl").read_text().splitlines()
    return [found[0] for line in lines if (found := re.match(r'\{"step": \d+, "(dev_)?loss": [^,}]+', line))]


@pytest.fixture
def recipe(tmp_path: Path) -> dict[str, Any]:
    """Dropout, accumulation, a running mean and evaluations: all that could go out of step."""
    rows = write_jsonl(tmp_path / "numbers.jsonl", made.numbers(300, seed=1))
    settings = {"max_steps": 40, "accumulate": 2, "ema": 0.9, "evaluate_every": 7, "batch_tokens": 150}
    return small_recipe(rows, data={"held_out": 20, "train": rows}, train=settings)


def stop_at(folder: Path, recipe: dict[str, Any], step: int) -> None:
    """Train until just after the checkpoint of that step, and lose everything after it."""
    kept = {**recipe, "train": {**recipe["train"], "save_every": step}}
    train(Recipe.of({**kept, "train": {**kept["train"], "max_steps": step}}), folder)


@pytest.mark.parametrize("schedule", ["constant", "plateau", "inverse_sqrt"])
@pytest.mark.parametrize("step", [1, 13])
def test_a_resumed_training_logs_the_same_losses(
    tmp_path: Path, recipe: dict[str, Any], step: int, schedule: str
) -> None:
    recipe["train"]["schedule"] = schedule
    train(Recipe.of(recipe), tmp_path / "whole")
    stop_at(tmp_path / "parts", recipe, step)
    train(Recipe.of(recipe), tmp_path / "parts", resume=True)
    # The shorter training ends with an evaluation of its own, which the whole one does not have.
    extra = {line for line in logged_losses(tmp_path / "parts") if f'"step": {step}, "dev' in line and step % 7}
    assert [one for one in logged_losses(tmp_path / "parts") if one not in extra] == logged_losses(tmp_path / "whole")
    steps = [json.loads(line)["step"] for line in (tmp_path / "parts" / "log.jsonl").read_text().splitlines()]
    assert steps == sorted(steps)


def test_a_finished_training_stays_as_it_is_when_resumed(tmp_path: Path, recipe: dict[str, Any]) -> None:
    train(Recipe.of(recipe), tmp_path / "run")
    before = (tmp_path / "run" / "log.jsonl").read_bytes()
    assert train(Recipe.of(recipe), tmp_path / "run", resume=True).steps == 40
    assert (tmp_path / "run" / "log.jsonl").read_bytes() == before


def test_early_stopping_holds_after_a_resume(tmp_path: Path, recipe: dict[str, Any]) -> None:
    recipe["train"] |= {"patience": 1, "learning_rate": 1e-12, "weight_decay": 0.0, "ema": 0.0, "max_steps": 400}
    first = train(Recipe.of(recipe), tmp_path / "run")
    assert first.steps == 14
    assert train(Recipe.of(recipe), tmp_path / "run", resume=True).steps == 14


def test_ctrl_c_saves_a_checkpoint_to_go_on_from(tmp_path: Path, recipe: dict[str, Any]) -> None:
    recipe["train"] |= {"max_steps": 100_000}
    process = start(tmp_path, recipe, "run")
    wait_for_steps(tmp_path / "run", 5)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 1  # not done: what comes after it in a script must not go on
    assert checkpoint.latest(tmp_path / "run" / "checkpoints") is not None


def test_no_model_is_claimed_that_is_not_there(tmp_path: Path, recipe: dict[str, Any]) -> None:
    recipe["train"] |= {"max_steps": 100_000, "evaluate_every": 100_000}
    with start(tmp_path, recipe, "run", subprocess.PIPE) as process:
        wait_for_steps(tmp_path / "run", 2)
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1].decode().splitlines()
    assert not (tmp_path / "run" / "model").exists()
    assert re.fullmatch(r"stopped after \d+ steps; no model was saved yet; continue with --resume", said[-1])


def wait_for_a_reader(pipe: int, process: subprocess.Popen[str]) -> None:
    """Until the command has taken what was written into a pipe."""
    while struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]:
        if process.poll() is not None:
            raise AssertionError(process.communicate()[1])
        time.sleep(0.02)


@pytest.mark.parametrize("command", ["train", "rank"])
def test_ctrl_c_before_the_work_begins_is_one_line(tmp_path: Path, recipe: dict[str, Any], command: str) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"one\n")
    pipe = f"/dev/fd/{reader}"
    path = tmp_path / "recipe.yaml"
    path.write_text(to_yaml({**recipe, "data": {"train": recipe["data"]["train"], "dev": pipe}}), encoding="utf-8")
    arguments = ["train", str(path), "--out", str(tmp_path / "run")]
    if command == "rank":
        arguments = ["rank", "default", "--candidates", pipe, "how much is it?"]
    started = [sys.executable, "-m", "twofold", *arguments]
    with subprocess.Popen(started, stderr=subprocess.PIPE, text=True, pass_fds=[reader]) as process:
        wait_for_a_reader(reader, process)
        process.send_signal(signal.SIGINT)
        try:
            said = process.communicate(timeout=20)[1]
        finally:
            process.kill()
            os.close(writer)
            os.close(reader)
    assert (process.returncode, said) == (1, "stopped by Ctrl-C\n")


@pytest.mark.parametrize(
    "kills", [pytest.param(10, id="10-kills"), pytest.param(100, id="100-kills", marks=pytest.mark.bench)]
)
def test_kills_at_random_moments_change_no_loss_and_lose_no_checkpoint(
    tmp_path: Path, recipe: dict[str, Any], kills: int
) -> None:
    recipe["train"] |= {"max_steps": 40 * kills, "evaluate_every": 50}
    assert start(tmp_path, recipe, "whole").wait() == 0
    whole = logged_losses(tmp_path / "whole")
    recipe["train"]["save_every"] = 1  # so that many kills fall into the writing of a checkpoint
    draw, done, survived = random.Random(kills), 0, 0
    while survived < kills:
        process = start(tmp_path, recipe, "killed")
        wait_for_steps(tmp_path / "killed", done + 1)
        time.sleep(draw.uniform(0.0, 0.5))
        process.kill()
        if process.wait() == 0:
            break
        survived += 1
        saved = sorted((tmp_path / "killed" / "checkpoints").glob("step-*"))
        assert saved, "a checkpoint was there before the kill"
        # Writing and removing both rename whole folders: whatever bears a step's name is whole.
        progress = [checkpoint.load(path)[0].step for path in saved]
        assert max(progress) >= done
        done = max(progress)
    assert survived == kills, "the training ended before the last kill; give it more steps"
    assert start(tmp_path, recipe, "killed").wait() == 0
    assert logged_losses(tmp_path / "killed") == whole


def start(folder: Path, recipe: dict[str, Any], out: str, stderr: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    path = folder / "recipe.yaml"
    path.write_text(to_yaml(recipe), encoding="utf-8")
    command = [sys.executable, "-m", "twofold", "train", str(path), "--out", str(folder / out), "--resume"]
    return subprocess.Popen(command, stderr=stderr)


def wait_for_steps(folder: Path, step: int) -> None:
    """Until the log has a line of that step."""
    log = folder / "log.jsonl"
    for _ in range(6000):
        steps = re.findall(r'\{"step": (\d+)', log.read_text() if log.exists() else "")
        if steps and int(steps[-1]) >= step:
            return
        time.sleep(0.01)
    raise TimeoutError(f"no step {step} in {log}")
