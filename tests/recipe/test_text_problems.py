"""Labels, tags, trees and similarities are learned by a small Transformer of our own, end to end."""

from __future__ import annotations

import random
import signal
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import twofold
from tests import texts
from tests.conftest import write_jsonl
from tests.recipe.tasks import read_log
from tests.texts import (
    COLORS,
    FILL,
    KINDS,
    chained,
    colored,
    colorful,
    overlapping,
    recipe,
    repeated,
    rows_of,
    tagged,
    write,
)
from twofold.data.batches import Moment, Plan
from twofold.data.files import read_rows
from twofold.errors import TwofoldError
from twofold.model.batches import TrainingRows
from twofold.recipe import Recipe, train
from twofold.recipe.build import build_model, cache_rows, split_rows, training_rows
from twofold.training.loop import Trainer
from twofold.types import Classes

TREE = {"kind": "tree", "width": 16, "relation_width": 8, "dropout": 0.0}
TASKS: dict[str, tuple[texts.Make, dict[str, Any], dict[str, Any], int]] = {
    "one": (colored, {"source": "text", "target": "label"}, {"kind": "label"}, 60),
    "many": (colorful, {"source": "text", "target": "label", "output": {"kind": "labels"}}, {"kind": "label"}, 60),
    "number": (
        overlapping,
        {"source": ["one", "other"], "target": "score", "output": {"kind": "number"}},
        {"kind": "label", "dropout": 0.0},
        120,
    ),
    "apart": (
        overlapping,
        {"source": ["one", "other"], "input": {"read": "apart"}, "target": "score", "output": {"kind": "number"}},
        {"kind": "label", "compare": "features", "dropout": 0.0},
        120,
    ),
    "cosine": (
        overlapping,
        {"source": ["one", "other"], "input": {"read": "apart"}, "target": "score", "output": {"kind": "number"}},
        {"kind": "label", "compare": "cosine"},
        120,
    ),
    "tags": (tagged, {"source": "words", "target": "tags"}, {"kind": "tags"}, 50),
    "tree": (chained, {"source": "words", "target": ["heads", "relations"]}, TREE, 80),
}
"""Output, column, decoder and number of steps of each problem."""
GUESS_AND_TELL = {"guess": {"kind": "tokens"}, "tell": {"kind": "label", "output": {"kind": "next_utterance"}}}


pytestmark = pytest.mark.usefixtures("one_thread")


def trained(task: str, folder: Path, **settings: Any) -> tuple[Path, str]:
    """The folder of a training, and rows that it has not seen."""
    make, data, writes, steps = TASKS[task]
    rows = write(folder, make)
    train(Recipe.of(recipe(rows, data, writes, **{"max_steps": steps, **settings})), folder / "run")
    return folder / "run", write(folder, make, 60, 2, "dev")


def answers_again(folder: Path, given: list[Any]) -> list[Any]:
    """Answers of a model, which are the same once it is saved and loaded."""
    model = twofold.load(folder, "cpu")
    predictions = model.predict(given)
    model.save_pretrained(folder / "again")
    assert twofold.load(folder / "again", "cpu").predict(given) == predictions
    alone = model.predict(given[:1])[0].output
    number = isinstance(alone, float)  # which follows the order in which a batch is summed up
    assert alone == (pytest.approx(predictions[0].output, abs=1e-5) if number else predictions[0].output)
    return [one.output for one in predictions]


def test_a_label_is_learned_from_a_single_word(tmp_path: Path) -> None:
    run, dev = trained("one", tmp_path)
    report = twofold.evaluate(run, dev)
    assert report.metrics["accuracy"] == report.metrics["macro_f1"] == report.metrics["matthews"] == 1.0
    assert [line["label"] for line in report.tables["labels"]] == sorted(COLORS)
    assert sum(line["rows"] for line in report.tables["labels"]) == report.examples == 60
    assert answers_again(run, ["the old red boat", "blue people", "green"]) == ["red", "blue", "green"]


def test_any_number_of_labels_is_learned(tmp_path: Path) -> None:
    run, dev = trained("many", tmp_path)
    report = twofold.evaluate(run, dev)
    assert report.metrics["accuracy"] > 0.9
    assert report.metrics["micro_f1"] > 0.95
    predictions = answers_again(run, ["the old boat was seen", "the red boat was blue", "red green blue people"])
    assert [sorted(labels) for labels in predictions] == [[], ["blue", "red"], ["blue", "green", "red"]]


@pytest.mark.parametrize("task", ["number", "apart", "cosine"])
def test_how_many_words_two_texts_share_is_learned(tmp_path: Path, task: str) -> None:
    run, dev = trained(task, tmp_path)
    metrics = twofold.evaluate(run, dev).metrics
    assert metrics["pearson"] > 0.8  # a word by itself tells nothing
    assert metrics["spearman"] > 0.8
    none, both = answers_again(run, [("the old", "boat was"), "the old\told the"])
    assert none < 1 < both


def test_the_kind_of_each_word_is_learned(tmp_path: Path) -> None:
    run, dev = trained("tags", tmp_path)
    assert twofold.evaluate(run, dev).metrics["accuracy"] > 0.98
    (prediction,) = answers_again(run, ["people seen at red noon"])
    assert prediction.tags == tuple(KINDS[word] for word in prediction.words)


def test_names_are_judged_as_a_whole(tmp_path: Path) -> None:
    def named(draw: random.Random) -> dict[str, Any]:
        words = [draw.choice(FILL) for _ in range(draw.randint(1, 4))]
        place = draw.randint(0, len(words))
        words[place:place] = ["red", draw.choice(["green", "blue"])]
        tags = ["O"] * len(words)
        tags[place : place + 2] = ["B-boat", "I-boat"]
        return {"words": words, "tags": tags}

    _, data, writes, _ = TASKS["tags"]
    train(Recipe.of(recipe(write(tmp_path, named), data, writes, max_steps=60)), tmp_path / "run")
    report = twofold.evaluate(tmp_path / "run", write(tmp_path, named, 40, 2, "dev"))
    assert report.metrics["f1"] == report.metrics["precision"] == report.metrics["recall"] == 1.0
    assert report.tables["types"] == [{"type": "boat", "precision": 1.0, "recall": 1.0, "f1": 1.0, "names": 40}]


def test_spans_without_names_are_judged_as_a_whole(tmp_path: Path) -> None:
    def spans(draw: random.Random) -> dict[str, Any]:
        words = [draw.choice(FILL), "red", "green", draw.choice(FILL)]
        return {"words": words, "tags": ["O", "B", "I", "O"]}

    _, data, writes, _ = TASKS["tags"]
    train(Recipe.of(recipe(write(tmp_path, spans), data, writes, max_steps=60)), tmp_path / "run")
    assert twofold.evaluate(tmp_path / "run", write(tmp_path, spans, 40, 2, "dev")).metrics["f1"] == 1.0


@pytest.mark.parametrize(
    ("task", "value"), [("one", {"label": "red"}), ("apart", {"score": 3.0}), ("tags", {"words": "a b", "tags": "O O"})]
)
def test_a_column_of_one_value_is_named(tmp_path: Path, task: str, value: dict[str, Any]) -> None:
    make, data, writes, _ = TASKS[task]
    made = Recipe.of(recipe(write(tmp_path, lambda draw: {**make(draw), **value}), data, writes))
    with pytest.warns(UserWarning, match="and nothing else: nothing to learn"):
        build_model(made, tmp_path / "tokenizers")


def test_a_tree_whose_words_hang_from_the_one_before_is_learned(tmp_path: Path) -> None:
    run, dev = trained("tree", tmp_path)
    metrics = twofold.evaluate(run, dev).metrics
    assert metrics["uas"] > 0.95
    assert metrics["las"] > 0.95
    assert metrics["whole_trees"] > 0.8
    (prediction,) = answers_again(run, [["the", "red", "boat"]])
    assert (prediction.heads, prediction.relations) == ((0, 1, 2), ("root", "color", "low"))


def both(draw: random.Random) -> dict[str, Any]:
    row = tagged(draw)
    return {**row, "label": next(word for word in row["words"] if word in COLORS)}


SEVERAL = {
    "color": {"kind": "label", "target": "label"},
    "kinds": {"kind": "tags", "target": "tags", "weight": 0.5},
}


def test_two_decoders_learn_over_one_encoder(tmp_path: Path) -> None:
    rows, dev = write(tmp_path, both), write(tmp_path, both, 40, 2, "dev")
    settings = {"max_steps": 60, "best": "kinds.loss", "evaluate_every": 20}
    train(Recipe.of(recipe(rows, {"source": "words", "dev": dev}, SEVERAL, **settings)), tmp_path / "run")
    lines = read_log(tmp_path / "run")
    assert lines[-2].keys() >= {"loss", "loss_color", "loss_kinds"}
    assert lines[-2]["loss"] == pytest.approx(lines[-2]["loss_color"] + 0.5 * lines[-2]["loss_kinds"])
    losses = [line["dev_kinds.loss"] for line in lines if "dev_kinds.loss" in line]
    metrics = twofold.evaluate(tmp_path / "run", dev).metrics
    assert metrics["kinds.loss"] == pytest.approx(min(losses), rel=1e-4)  # the best one is the lowest
    assert losses[0] > 2 * min(losses)
    assert metrics["loss"] == pytest.approx(metrics["color.loss"] + 0.5 * metrics["kinds.loss"])
    assert metrics["color.accuracy"] > 0.95
    assert metrics["kinds.accuracy"] > 0.95
    assert twofold.evaluate(tmp_path / "run", dev, decoder="color").metrics["accuracy"] == metrics["color.accuracy"]
    alone = write_jsonl(tmp_path / "alone.jsonl", [{"words": "the red boat", "label": "red"}])
    assert twofold.evaluate(tmp_path / "run", alone, decoder="color").metrics["accuracy"] == 1.0
    model = twofold.load(tmp_path / "run", "cpu")
    assert model.predict(["the red boat"])[0].output == "red"
    assert model.predict(["the red boat"], decoder="kinds")[0].output.tags == ("low", "color", "low")


class Interrupted:
    """Rows that ask the training to stop, as Ctrl-C does, when so many batches were read."""

    def __init__(self, rows: TrainingRows, after: int) -> None:
        self.rows, self.left = rows, after

    def plan(self, epoch: int) -> Plan:
        return self.rows.plan(epoch)

    def batch(self, rows: NDArray[np.int64], moment: Moment) -> Any:
        self.left -= 1
        if not self.left:
            signal.raise_signal(signal.SIGINT)
        return self.rows.batch(rows, moment)


def weights_after(made: Recipe, folder: Path, stop: int | None) -> dict[str, torch.Tensor]:
    """All weights at the end of a training, which may have been stopped in the middle."""
    for after in (1000,) if stop is None else (stop, 1000):
        torch.manual_seed(made.train.seed)
        model = build_model(made, folder / "tokenizers")
        cache = cache_rows(made, model)
        rows = training_rows(made, cache, split_rows(made, cache, model), model)
        trainer = Trainer(model, cast(TrainingRows, Interrupted(rows, after)), None, made.train, folder)
        trainer.resume()
        assert trainer.run().finished == (after == 1000)
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("kind", ["tags", "tree", "pretraining", "denoising"])
def test_a_training_that_was_stopped_ends_with_the_same_weights(tmp_path: Path, kind: str) -> None:
    settings: dict[str, Any] = {"max_steps": 8, "batch_rows": 4, "ema": 0.5, "freeze": "gradual", "unfrozen_by": 0.8}
    if kind in TASKS:
        make, data, writes, _ = TASKS[kind]
    elif kind == "pretraining":
        make, data = repeated, {"source": ["text", "reply"]}
        writes = GUESS_AND_TELL
    else:
        make, data = repeated, {"source": "text", "target": "text", "output": {"noise": {"mask": 0.3, "swap": 2}}}
        writes = {"kind": "rnn", "embedding": 8, "width": 8}
    content = recipe(write(tmp_path, make, 20), data, writes, **settings)
    content["encoder"]["dropout"] = 0.1
    made = Recipe.of(content)
    whole = weights_after(made, tmp_path / "whole", None)
    parts = weights_after(made, tmp_path / "parts", 5)
    assert all(torch.equal(parts[name], value) for name, value in whole.items())
    assert [line["loss"] for line in read_log(tmp_path / "parts") if "loss" in line] == [
        line["loss"] for line in read_log(tmp_path / "whole") if "loss" in line
    ]


def test_a_recipe_is_the_same_when_it_is_read_again() -> None:
    pair = {"source": ["one", "other"], "target": "score"}
    for data, writes in (
        ({**pair, "input": {"keep": "tail"}, "output": {"kind": "number"}}, {"kind": "label"}),
        ({**pair, "input": {"read": "apart"}}, {"kind": "label", "compare": "features"}),
        ({"source": "words"}, SEVERAL),
        (
            {"source": ["a", "b"]},
            GUESS_AND_TELL,
        ),
        ({"source": "words", "target": ["heads", "relations"]}, TREE),
    ):
        made = Recipe.of(recipe("none", data, writes))
        assert Recipe.of(made.plain()) == made


@pytest.mark.parametrize(
    ("data", "writes", "said"),
    [
        (
            {"source": "one", "target": "score"},
            {"kind": "label"},
            r"recipe\.input has no 'read'; .*; it is a setting of kind: pair$",
        ),
        (
            {"source": ["one", "other"]},
            {"kind": "tokens"},
            r"input\.read: apart: .* to the decoder 'tokens'; take decoder: \{kind: label, compare: cosine\}",
        ),
    ],
)
def test_only_the_labels_of_two_texts_are_read_apart(data: dict[str, Any], writes: dict[str, Any], said: str) -> None:
    with pytest.raises(TwofoldError, match=said):
        Recipe.of(recipe("none", {**data, "input": {"read": "apart"}}, writes))


def test_two_texts_that_are_read_apart_have_no_first_token() -> None:
    _, data, writes, _ = TASKS["apart"]
    said = r"^input\.read: apart: two texts .* no first token in common; pooling: mean"
    with pytest.raises(TwofoldError, match=said):
        Recipe.of(recipe("none", data, {**writes, "pooling": "first"}))


def test_a_long_sentence_that_is_held_out_is_judged_in_windows(tmp_path: Path) -> None:
    make, data, writes, _ = TASKS["tags"]
    rows = rows_of(make, 20, 1)
    long = "".join(random.Random(1).choices("abcdegnrst", k=200))
    rows[7] = {"words": [*rows[7]["words"] * 9, long], "tags": [*rows[7]["tags"] * 9, "low"]}
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    with (
        pytest.warns(UserWarning, match="1 of 20 rows: 'words' is longer than input.max_tokens and was cut"),
        pytest.warns(UserWarning, match="19 validation rows, but only 1"),
        pytest.warns(
            UserWarning, match="1 of 19 sentences is longer than 24 tokens and is read in .*; 1 word is longer"
        ),
    ):
        train(Recipe.of(recipe(path, {**data, "held_out": 19}, writes, max_steps=2)), tmp_path / "run")


def test_a_sentence_that_cannot_be_judged_is_named_before_the_first_step(tmp_path: Path) -> None:
    _, data, writes, _ = TASKS["tree"]
    long = {"words": ["old"] * 4000, "heads": list(range(4000)), "relations": ["root", *["low"] * 3999]}
    rows = rows_of(chained, 20, 1)
    path = write_jsonl(tmp_path / "rows.jsonl", [*rows[:7], long, *rows[8:]])
    with (
        pytest.warns(UserWarning, match="1 of 20 rows: 'words' is longer than input.max_tokens and was cut"),
        pytest.raises(TwofoldError, match=rf"^{path}:8: 4,000 words; a tree takes memory for every pair of words"),
    ):
        train(Recipe.of(recipe(path, {**data, "held_out": 19}, writes, max_steps=2)), tmp_path / "run")
    assert not (tmp_path / "run" / "log.jsonl").exists()


def test_names_that_begin_with_an_i_are_learned_as_beginning_with_a_b(tmp_path: Path) -> None:
    rows = [{"words": "in New York and Rome", "tags": tags} for tags in ("O I-P I-P O I-P", "O B-P I-Q O B-P")]
    data = {"source": "words", "target": "tags"}
    given = Recipe.of(recipe(write_jsonl(tmp_path / "rows.jsonl", rows), data, {"kind": "tags"}))
    with pytest.warns(
        UserWarning, match=r"^'tags': in 2 sentences a name begins with I- \(the form IOB1\); it is learned"
    ):
        model = build_model(given, tmp_path / "tokenizers")
    names = ("B-P", "B-Q", "I-P", "I-Q", "O")
    assert model.outputs["main"].spec == Classes(names)
    learned = [[names[one] for one in tags] for tags in model.outputs["main"].values(list(read_rows(given.data.train)))]
    assert learned == [["O", "B-P", "I-P", "O", "B-P"], ["O", "B-P", "B-Q", "O", "B-P"]]
