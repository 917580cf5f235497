"""Rows, inputs and settings of labels, pairs, tags and trees that are wrong: one line that names the place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.text_models import CONLLU, MODELS, train_models, write_recipe
from tests.commands import refusal
from tests.conftest import write_jsonl
from tests.texts import rows_of


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_models(tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize(
    ("model", "row", "said"),
    [
        ("tags", {"words": "the red boat", "tags": "low color"}, "2 tags in 'tags', but 3 words"),
        ("tags", {"words": "", "tags": ""}, "'words' is empty; fill it or remove the"),
        ("tags", {"words": [], "tags": []}, "'words' is empty; fill it or remove the"),
        (
            "tree",
            {"words": "a b c", "heads": [0, 3, 2], "relations": "root x x"},
            "the tree has a cycle through word 2",
        ),
        ("tree", {"words": "a b", "heads": [0, 0], "relations": "root x"}, "the tree has two roots (words 1 and 2)"),
        ("tree", {"words": "a b", "heads": [0], "relations": "root x"}, "1 heads and 2 relations, but 2 words"),
        ("pair", {"one": "a", "other": "b", "score": "high"}, "'score' is 'high' and not a number"),
        ("pair", {"one": "a", "score": 1}, "no 'other' here; this row has one, score"),
        ("pair", {"one": "a", "other": "b", "score": "1e39"}, "'score' is '1e39' and not a number up to 1e+30"),
        ("pair", {"one": "a", "other": "b", "score": "1_0"}, "'score' is '1_0' and not a number"),
        ("label", {"text": "a"}, "no 'label' here; this row has text"),
        ("label", {"text": "a", "label": ""}, "'label' must hold one label"),
    ],
)
def test_a_row_that_is_wrong_is_named_with_its_line(
    models: Path, tmp_path: Path, model: str, row: dict[str, Any], said: str
) -> None:
    make, data, writes = MODELS[model]
    path = write_jsonl(tmp_path / "rows.jsonl", [*rows_of(make, 10, 1), row])
    line = refusal("train", write_recipe(tmp_path, path, data, writes), "--out", tmp_path / "out")
    assert line.startswith(f"{path}:11: {said}")
    assert refusal("evaluate", models / model, path).startswith(f"{path}:11: {said}")
    judged = {**data, "dev": path}
    made = write_recipe(tmp_path, models / f"{model}.jsonl", judged, writes)
    assert refusal("train", made, "--out", tmp_path / "other").startswith(f"{path}:11: {said}")


@pytest.mark.parametrize(("heads", "said"), [((2, 1), "has no root"), ((0, 0), "has two roots (words 1 and 2)")])
def test_a_sentence_of_conllu_that_is_no_tree_is_named_with_its_line(
    tmp_path: Path, heads: tuple[int, int], said: str
) -> None:
    path = tmp_path / "bad.conllu"
    words = [f"{n}\tw\t_\t_\t_\t_\t{head}\tdep\t_\t_\n" for n, head in enumerate(heads, start=1)]
    path.write_text(CONLLU + "# sent_id = 3\n" + "".join(words) + "\n", encoding="utf-8")
    _, data, writes = MODELS["tree"]
    line = refusal("train", write_recipe(tmp_path, path, data, writes), "--out", tmp_path / "out")
    assert line == f"{path}:16: the tree {said}; mend it or remove the sentence"


@pytest.mark.parametrize(
    ("model", "arguments", "said"),
    [
        (
            "words",
            ["the boat"],
            "a language model for pre-training has no answers; name its folder as the `encoder` of a recipe",
        ),
        ("pair", ["the old boat"], "input 1: give one and other, two texts with a tab between them"),
        ("pair", ["a\tb", "a\tb\tc"], "input 2: give one and other, two texts with a tab between them"),
        ("pair", ["a\t "], "input 1: 'other' is empty"),
        ("tags", ["the boat", "  "], "input 2: 'words' is empty"),
        ("label", ["the boat", "--stream"], "the decoder 'main' does not write text"),
        ("label", ["the boat", "--decoder", "mian"], "the model has no decoder 'mian'; did you mean 'main'?"),
    ],
)
def test_what_cannot_be_answered_is_one_line(models: Path, model: str, arguments: list[str], said: str) -> None:
    assert refusal("predict", models / model, *arguments).startswith(said)


@pytest.mark.filterwarnings("ignore:.* was not seen in training:UserWarning")
def test_rows_of_which_no_label_was_seen_are_not_trained_by(models: Path, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "rows.jsonl", [{"text": "the boat", "label": "violet"}])
    _, data, writes = MODELS["label"]
    made = write_recipe(tmp_path, models / "label.jsonl", {**data, "dev": path}, writes)
    assert refusal("train", made, "--out", tmp_path / "out").startswith(
        "train.best=loss: the validation rows give no value"
    )


def test_a_line_without_a_tab_is_named(models: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("a\tb\nthe old boat\n")
    said = refusal("predict", models / "pair", "--file", tmp_path / "lines.txt")
    assert said == f"{tmp_path / 'lines.txt'}:2: give one and other, two texts with a tab between them"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["decoder.kind=tree"], "column ['label']: a tree has two columns: [heads, relations]"),
        (["target=[a, b]"], "recipe.target: ['a', 'b'] is not a text; give one, not a list"),
        (["source=[text, label, more]"], "give one column, or two that are read as a pair"),
        (["target=null", "output.kind=next_utterance"], "recipe.input: column ['text']: a pair has two columns"),
        (
            ["target=null", "source=[text, label]", "decoder={kind: tokens}", "output.kind=next_utterance"],
            "the decoder 'tokens' writes token scores, but the output 'next_utterance' takes scores",
        ),
        (["output.noise={mask: 0.3}"], "recipe.output has no 'noise'"),
        (
            ["decoder={kind: rnn}", "output.noise={mask: 3}"],
            "recipe.output.noise: mask and delete must be at least 0 and below 1",
        ),
        (
            ["target=null", "source=[text, label]", "output={kind: next_utterance, random: 0}"],
            "recipe.output: random must be above 0 and below 1",
        ),
        (["input.max_tokens=1"], "input.max_tokens=1 leaves no room beside the 1 symbols around a text; at least 2"),
        (["output.kind=some"], "recipe.output: there is no output 'some'; known are"),
        (["decoder=null", "decoders={x: {kind: label}}"], "recipe.target: with `decoders`, each has its own"),
        (["train.best=f1", "data.held_out=3"], "train.best: no metric 'f1'"),
        (
            ["source=[text, label]", "input.read=apart"],
            "input.read: apart: the two texts would look alike to the decoder",
        ),
        (
            ["decoder=null", "target=null", "decoders={x: {kind: label, target: label, weight: -1}}"],
            "recipe.decoders.x: weight -1.0: must be above 0",
        ),
        (["train.patience=2"], "train.patience needs validation rows: give data.dev or data.held_out"),
        (
            ["train.learning_rate_multipliers={encoder: 0, decoders: 0}"],
            "multipliers: all are 0, and nothing is trained",
        ),
        (["train.freeze=some"], "recipe.train.freeze: 'some' is not known"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(models: Path, tmp_path: Path, changes: list[str], said: str) -> None:
    _, data, writes = MODELS["label"]
    made = write_recipe(tmp_path, models / "label.jsonl", data, writes)
    assert said in refusal("train", made, *changes, "--out", tmp_path / "out")
