"""Next-utterance prediction: how often a pair has the second text of another row, and that it is told."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.conftest import decoder, encoder, input_of
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.inputs.pair import TwoTexts
from twofold.inputs.text import Tokens
from twofold.model import Model, ModelConfig, Task
from twofold.model.batches import BatchRows
from twofold.outputs.next_utterance import Config
from twofold.types import Batch, HiddenSpec


def batch_of(tokenizer: TextTokenizer, items: Sequence[TwoTexts], share: float) -> Batch:
    """All items as one batch, learned from."""
    pairs = input_of("pair", column=["a", "b"], max_tokens=40).build(tokenizer)
    output = Config(random=share).build("main", pairs, None, HiddenSpec())
    draws = [np.random.default_rng([1, 0, row]) for row in range(len(items))]
    rows = BatchRows(items, {"main": [False] * len(items)}, draws, lambda draw: items[int(draw.integers(len(items)))])
    return rows.batch(pairs, [output], 0.0, True)


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_other_utterances_come_as_often_as_asked_and_are_told(tokenizer: TextTokenizer, share: float) -> None:
    items = [([10, 11], [20 + number % 60, 21 + number // 60]) for number in range(1000)]
    batch = batch_of(tokenizer, items, share)
    other = batch.targets["main"].tokens[:, 0].bool()
    assert batch.targets["main"].mask.all()
    assert float(other.float().mean()) == pytest.approx(share, abs=0.05)
    read = batch.read(Tokens)
    assert read.segments is not None
    for row, (first, second) in enumerate(items):
        assert read.tokens[row, 1:3].tolist() == first
        assert (read.tokens[row][read.segments[row].bool()].tolist() != second) == bool(other[row])


def test_a_text_that_comes_twice_is_no_other_to_itself(tokenizer: TextTokenizer) -> None:
    items = [([10], [20]), ([11], [20])]
    batch = batch_of(tokenizer, items, 0.9)
    assert batch.targets["main"].tokens.tolist() == [[0], [0]]


def test_two_that_draw_other_texts_are_refused(tokenizer: TextTokenizer) -> None:
    tasks = {name: Task(decoder("label"), Config()) for name in ("first", "second")}
    config = ModelConfig(input_of("pair", column=["a", "b"]), encoder("transformer"), tasks)
    with pytest.raises(TwofoldError, match="next_utterance and next_utterance would each change the input"):
        Model(config, {"input": tokenizer})
