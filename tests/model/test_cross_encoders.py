"""Classifiers of pairs with one label load as cross-encoders: their logits are the scores, cut as transformers cuts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

import twofold
from tests.commands import answer, refusal, run
from tests.encoders.tiny_backbones import FAMILIES, POSITIONS, save, tokenizer_of
from twofold.data.candidates import with_ids  # noqa: F401
from twofold.model import Ranker
from twofold.recipe import Recipe, train
from twofold.recipe.build import build_model

PAIRS = [
    ("where do the gulls wait", "the gulls wait on the pier"),
    ("ok", "first come, first served; second come, second served!"),
    ("the ferry leaves at seven", "ok"),
    ("why", "the first gulls wait for the second ferry " * 12),
    ("where do the gulls wait for the second ferry " * 9, "the first gulls wait " * 12),
]
"""The last two have more tokens than a network has positions."""
SEGMENTS = ("bert", "electra")
"""Families that tell the two texts apart."""
ANSWERS = [second for _, second in PAIRS]
ROWS = [{"context": f"first {number}", "response": f"second {number}"} for number in range(12)]


def classifier(family: str, folder: Path, labels: int = 1) -> Any:
    """A classifier of pairs, saved as transformers does it."""
    torch.manual_seed(1)
    config = AutoConfig.for_model(family, **FAMILIES[family], num_labels=labels)
    model: Any = AutoModelForSequenceClassification.from_config(config)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for value in model.parameters():
            value.add_(torch.randn_like(value), alpha=0.2)
    model.save_pretrained(folder)
    tokenizer_of(family).save_pretrained(folder)
    return model.eval()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cross") / "bert"
    classifier("bert", folder)
    return folder


def loaded(folder: Path) -> Ranker:
    model = twofold.load(folder, runtime="torch", precision="float32")
    assert isinstance(model, Ranker)
    return model


@pytest.mark.parametrize("family", ["bert", "distilbert", "electra", "mpnet", "roberta"])
def test_scores_are_the_logits_of_transformers(family: str, tmp_path: Path) -> None:
    theirs = classifier(family, tmp_path / family)
    tokenizer = tokenizer_of(family)
    first, second = map(list, zip(*PAIRS, strict=True))
    cut = {"truncation": "longest_first", "max_length": POSITIONS, "return_token_type_ids": family in SEGMENTS}
    given: Any = tokenizer(first, second, padding=True, return_tensors="pt", **cut)
    assert given["input_ids"].shape[1] == POSITIONS
    with torch.no_grad():
        logits = theirs(**given).logits[:, 0]
    model = loaded(tmp_path / family)
    assert model.kind == "cross"
    torch.testing.assert_close(model.score_pairs(PAIRS), logits, atol=1e-4, rtol=1e-4)
    assert logits.std() > 1e-3
    model.save_pretrained(tmp_path / "saved")
    torch.testing.assert_close(loaded(tmp_path / "saved").score_pairs(PAIRS), logits, atol=1e-4, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:.* reads at most 80 tokens")
def test_a_classifier_of_several_labels_is_no_cross_encoder(tmp_path: Path) -> None:
    classifier("bert", tmp_path / "three", labels=3)
    assert loaded(tmp_path / "three").kind == "bi"


@pytest.mark.filterwarnings("ignore:.* reads at most 80 tokens")
def test_a_cascade_ends_with_logits_and_probabilities_where_asked(saved: Path, tmp_path: Path) -> None:
    save("bert", tmp_path / "first")
    (tmp_path / "answers.txt").write_text("\n".join(ANSWERS) + "\n")
    ranked: list[str | Path] = [
        "rank",
        tmp_path / "first",
        "--candidates",
        tmp_path / "answers.txt",
        "the gulls",
        "-k",
        "3",
    ]
    ranked += ["--runtime", "torch", "--precision", "float32", "--then", f"{saved}:4"]
    plain, asked = answer(*ranked), answer(*ranked, "--probabilities")
    assert [list(hit) for hit in plain["hits"]] == [["text", "score", "id"]] * 3
    assert [list(hit) for hit in asked["hits"]] == [["text", "score", "id", "probability"]] * 3
    for hit, other in zip(asked["hits"], plain["hits"], strict=True):
        assert (hit["text"], hit["id"]) == (other["text"], other["id"])
        assert hit["score"] == pytest.approx(other["score"], abs=1e-6)
        assert hit["probability"] == pytest.approx(1 / (1 + np.exp(-hit["score"])), abs=1e-6)
    shown = run(*ranked, "--probabilities").stdout.splitlines()
    assert [float(line.split()[0]) for line in shown] == pytest.approx(
        [hit["probability"] for hit in asked["hits"]], abs=6e-4
    )
    index = tmp_path / "answers.index"
    built = run("index", "build", index, "--model", tmp_path / "first", "--texts", tmp_path / "answers.txt")
    assert built.exit_code == 0, built.stderr
    searched: list[str | Path] = [
        "search",
        index,
        "the gulls",
        "-k",
        "3",
        "--runtime",
        "torch",
        "--precision",
        "float32",
    ]
    hits = answer(*searched, "--then", f"{saved}:4", "--probabilities")["hits"]
    assert [hit["probability"] for hit in hits] == pytest.approx(
        [hit["probability"] for hit in asked["hits"]], abs=1e-5
    )
    line = refusal(*searched, "--probabilities")
    assert line.startswith("--probabilities: the scores of a 'bi' without a bias have no level that is a probability; ")


@pytest.mark.filterwarnings("ignore:.* reads at most 80 tokens")
def test_scores_without_a_level_have_no_probability(tmp_path: Path) -> None:
    save("bert", tmp_path / "first")
    hits = loaded(tmp_path / "first").rank("the gulls", ANSWERS)
    assert [hit.probability for hit in hits] == [None] * len(ANSWERS)


@pytest.mark.parametrize("how", ["encoder", "start"])
def test_fine_tuning_begins_with_the_scores_of_the_cross_encoder(how: str, saved: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    head = {"pooling": "first", "dense": [{"width": 16}], "bias": True}
    content: dict[str, Any] = {
        "data": {"train": str(tmp_path / "rows.jsonl")},
        "encoder": str(saved) if how == "encoder" else {"kind": "pretrained", "name": str(saved)},
        "decoder": {"kind": "cross", **({} if how == "encoder" else head)},
        "input": {"max_tokens": 30},
        "output": {"candidate": {"max_tokens": 30}},
        "train": {"max_steps": 2, "batch_rows": 4, "negatives": 2, "device": "cpu", "warmup": 1, "learning_rate": 1e-3},
    }
    content |= {"start": str(saved)} if how == "start" else {}
    recipe = Recipe.of(content)
    assert recipe.start == str(saved)
    zero_shot = loaded(saved)
    model = build_model(recipe, tmp_path / "tokenizers").eval()
    assert isinstance(model, Ranker)
    with torch.no_grad():
        torch.testing.assert_close(model.score_pairs(PAIRS[:3]), zero_shot.score_pairs(PAIRS[:3]))
    run = train(recipe, tmp_path / "run")
    assert run.finished
    tuned = loaded(tmp_path / "run")
    assert tuned.has_probabilities
    changed = tuned.score_pairs(PAIRS[:3]) - zero_shot.score_pairs(PAIRS[:3])
    assert changed.abs().max() > 1e-3


def test_other_decoders_take_the_encoder_alone(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    recipe = Recipe.of(
        {"data": {"train": str(tmp_path / "rows.jsonl")}, "encoder": str(saved), "decoder": {"kind": "bi"}}
    )
    assert recipe.start is None


def test_a_score_with_settings_of_its_own_begins_anew(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    decoder = {"kind": "cross", "pooling": "both", "compare": {"kind": "bi"}}
    recipe = Recipe.of({"data": {"train": str(tmp_path / "rows.jsonl")}, "encoder": str(saved), "decoder": decoder})
    assert recipe.start is None
    assert recipe.plain()["decoder"]["dense"] == []
