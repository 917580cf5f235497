"""A model whose weights are not numbers answers nothing: one line says so, whatever it is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.conftest import decoder, encoder, small_image_model, small_model, some_image
from tests.rankers import PAIRS, small_ranker
from tests.texts import small_reader
from twofold.data.files import Row
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.metrics import evaluate
from twofold.model import Ranker
from twofold.model.load import load

REASON = r"not numbers; the model's weights are damaged or its training diverged$"
LINE = rf"^the (scores|scores of the answer|scores of the tokens|scores of the tree|vectors) are {REASON}"
TEXTS = ["one two three", "seven"]


def damaged(model: Any, part: str, value: float = torch.nan) -> Any:
    """The model with one damaged number in the last matrix of a part."""
    module: nn.Module = model.get_submodule(part)
    weights = [one for one in module.parameters() if one.dim() > 1] or list(module.parameters())
    with torch.no_grad():
        weights[-1].view(-1)[:] = value
    return model


def refuses(act: Callable[[], Any]) -> None:
    with pytest.raises(TwofoldError, match=LINE):
        act()


@pytest.mark.parametrize("part", ["encoder", "decoders"])
@pytest.mark.parametrize(
    ("writes", "output"),
    [("label", "label"), ("label", "labels"), ("tags", "tags"), ("tree", "tree")],
    ids=["one label", "many labels", "tags", "tree"],
)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_no_label_and_no_tag_comes_of_damaged_weights(
    value: float, writes: str, output: str, part: str, tokenizer: TextTokenizer
) -> None:
    model = small_reader(tokenizer, encoder("transformer"), decoder(writes), {"kind": output})
    assert model.predict(TEXTS)
    refuses(lambda: damaged(model, part, value).predict(TEXTS))


def test_no_number_comes_of_damaged_weights(tokenizer: TextTokenizer) -> None:
    output = {"kind": "number", "mean": 1.0, "deviation": 2.0}
    whole = small_reader(tokenizer, encoder("rnn"), decoder("label"), output)
    assert whole.predict(TEXTS)
    refuses(lambda: damaged(whole, "decoders", -torch.inf).predict(TEXTS))


@pytest.mark.parametrize("part", ["encoder", "decoders"])
@pytest.mark.parametrize("writes", ["rnn", "attention_rnn", "transformer"])
@pytest.mark.parametrize("how", [{}, {"beam": 3}, {"sample": True}], ids=["greedy", "beam", "sampled"])
def test_no_text_comes_of_damaged_weights(
    how: dict[str, Any], writes: str, part: str, tokenizer: TextTokenizer
) -> None:
    model = damaged(small_model(tokenizer, encoder("transformer"), decoder(writes)), part)
    options = replace(model.config.generate, **how)
    refuses(lambda: model.predict(TEXTS, options))
    if "beam" not in how:
        refuses(lambda: list(model.stream(TEXTS[0], options)))


@pytest.mark.parametrize("part", ["encoder", "decoders"])
def test_no_mask_comes_of_damaged_weights(part: str, tokenizer: TextTokenizer) -> None:
    model = small_image_model(tokenizer, encoder("convnet"), decoder("unet"))
    refuses(lambda: damaged(model, part).predict([some_image()]))


@pytest.mark.parametrize("kind", ["bi", "poly", "cross"])
def test_nothing_is_ranked_with_damaged_weights(kind: str, tokenizer: TextTokenizer) -> None:
    ranker: Ranker = damaged(small_ranker(tokenizer, encoder("transformer"), decoder(kind)), "encoder")
    refuses(lambda: ranker.rank("one", TEXTS))
    refuses(lambda: ranker.score_pairs([("one", "two"), ("one", "three")]))
    refuses(lambda: ranker.score(["one"], ranker.prepare(TEXTS)))
    rows = [Row(f"row {number}", pair) for number, pair in enumerate(PAIRS)]
    refuses(lambda: evaluate(ranker, rows, candidates=2, timed=0))
    if kind != "cross":
        refuses(lambda: ranker.prepare(TEXTS))
        refuses(lambda: ranker.embed_candidates(TEXTS))
        refuses(lambda: ranker.embed_contexts(TEXTS))


def test_a_head_that_overflows_ranks_nothing(tokenizer: TextTokenizer) -> None:
    ranker = small_ranker(tokenizer, encoder("transformer"), decoder("cross"))
    refuses(lambda: damaged(ranker, "decoders", torch.inf).rank("one", TEXTS))


def test_a_damaged_model_that_was_saved_loads_and_answers_nothing(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    damaged(small_model(tokenizer, encoder("rnn"), decoder("label")), "decoders").save_pretrained(tmp_path / "model")
    model = load(tmp_path / "model")
    refuses(lambda: model.predict(TEXTS))
