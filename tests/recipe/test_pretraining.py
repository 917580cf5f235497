"""Words of a text are guessed, strangers are told and noise is undone, all learned from raw text alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import twofold
from tests.recipe.tasks import read_log
from tests.texts import recipe, repeated, write
from twofold.data.batches import Moment
from twofold.errors import TwofoldError
from twofold.inputs.text import Tokens
from twofold.recipe import Recipe, train
from twofold.recipe.build import Split, build_model, cache_rows, training_rows

pytestmark = pytest.mark.usefixtures("one_thread")


def test_hidden_words_are_guessed_from_those_around_them(tmp_path: Path) -> None:
    rows, dev = write(tmp_path, repeated), write(tmp_path, repeated, 40, 2, "dev")
    data = {"source": "text", "dev": dev}
    train(Recipe.of(recipe(rows, data, {"kind": "tokens"}, max_steps=80, evaluate_every=20)), tmp_path / "run")
    assert twofold.evaluate(tmp_path / "run", dev).metrics["perplexity"] < 2  # of ten words, and more pieces


def test_the_next_word_is_guessed_from_those_before_it(tmp_path: Path) -> None:
    rows, dev = write(tmp_path, repeated), write(tmp_path, repeated, 40, 2, "dev")
    content = recipe(rows, {"source": "text"}, {"kind": "tokens"}, max_steps=60)
    content["encoder"]["causal"] = True
    train(Recipe.of(content), tmp_path / "run")
    assert 1.2 < twofold.evaluate(tmp_path / "run", dev).metrics["perplexity"] < 2  # the first word is anybody's guess


def test_a_reply_of_another_is_told_while_words_are_guessed(tmp_path: Path) -> None:
    rows, dev = write(tmp_path, repeated, 300), write(tmp_path, repeated, 100, 2, "dev")
    writes = {"guess": {"kind": "tokens"}, "tell": {"kind": "label", "output": {"kind": "next_utterance"}}}
    train(Recipe.of(recipe(rows, {"source": ["text", "reply"]}, writes, max_steps=150)), tmp_path / "run")
    report = twofold.evaluate(tmp_path / "run", dev)
    assert report.metrics["tell.accuracy"] > 0.8
    assert report.metrics["tell.matthews"] > 0.6
    assert report.metrics["guess.perplexity"] < 3
    model = twofold.load(tmp_path / "run", "cpu")
    predictions = model.predict([("boat boat boat", "boat boat"), ("boat boat boat", "noon noon noon")], decoder="tell")
    assert [one.output for one in predictions] == ["no", "yes"]


def test_several_files_are_learned_from_as_one(tmp_path: Path) -> None:
    file = write(tmp_path, repeated, 80)
    lines = Path(file).read_text().splitlines(keepends=True)
    halves = [tmp_path / "first.jsonl", tmp_path / "second.jsonl"]
    for half, part in zip(halves, (lines[:50], lines[50:]), strict=True):
        half.write_text("".join(part))
    data = {"source": ["text", "reply"], "held_out": 20}
    writes = {"guess": {"kind": "tokens"}, "tell": {"kind": "label", "output": {"kind": "next_utterance"}}}
    for name, files in {"whole": file, "halves": [str(half) for half in halves]}.items():
        content = recipe(file, data, writes, max_steps=4, evaluate_every=2)
        content["data"]["train"] = files
        train(Recipe.of(content), tmp_path / name)
    assert [line.get("loss") for line in read_log(tmp_path / "halves")] == [
        line.get("loss") for line in read_log(tmp_path / "whole")
    ]
    with pytest.raises(TwofoldError, match=r"recipe\.data: train names no file"):
        Recipe.of({**content, "data": {"train": []}})


def test_a_text_is_mended_after_noise(tmp_path: Path) -> None:
    rows = write(tmp_path, repeated)
    writes = {"kind": "transformer", "width": 32, "layers": 1, "heads": 2, "feed_forward": 64, "dropout": 0.0}
    data: dict[str, Any] = {"source": "text", "target": "text"}
    data |= {"output": {"max_tokens": 24, "noise": {"mask": 0.4, "delete": 0.2}}}
    made = Recipe.of(recipe(rows, data, writes, max_steps=80))
    model = build_model(made, tmp_path / "tokenizers")
    rows_read = training_rows(made, cache_rows(made, model), Split(np.arange(200), []), model)
    learned = rows_read.batch(np.arange(50), Moment())
    assert learned is not None
    noisy = learned.read(Tokens)
    assert len({int(length) for length in noisy.mask.sum(1)}) > 1  # some lost more than others
    assert (noisy.tokens == model.tokenizers["input"].mask).any()
    assert len(set(learned.targets["main"].mask.sum(1).tolist())) == 1  # what is written is whole
    train(made, tmp_path / "run")
    predictions = twofold.load(tmp_path / "run", "cpu").predict(["noon noon", "boat boat boat boat"])
    assert [one.output for one in predictions] == [" ".join(["noon"] * 6), " ".join(["boat"] * 6)]
