"""Tokens of a text that are to be predicted: how many, where never, and always the same for a row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.conftest import input_of, write_jsonl
from twofold.data.batches import Draw, Moment
from twofold.data.cache import Cache
from twofold.data.tokenizer import TextTokenizer
from twofold.inputs import BatchSizes, Input
from twofold.inputs.text import Tokens
from twofold.model.batches import BatchRows, TrainingRows
from twofold.outputs.tokens import Config, next_tokens
from twofold.types import Batch, HiddenSpec

LIMIT = 300


def draws(rows: int, epoch: int = 0) -> list[Draw]:
    return [np.random.default_rng([1, epoch, row]) for row in range(rows)]


def nothing(draw: Draw) -> None:
    raise AssertionError("no other row is asked for")


def text_input(tokenizer: TextTokenizer) -> Input[list[int]]:
    return input_of("text", max_tokens=LIMIT, special_tokens=True).build(tokenizer)


def texts(tokenizer: TextTokenizer, lengths: list[int], seed: int = 0) -> list[list[int]]:
    """Ordinary tokens."""
    ordinary = [token for token in range(len(tokenizer)) if token not in (*tokenizer.structure, tokenizer.mask)]
    draw = np.random.default_rng(seed)
    return [draw.choice(ordinary, length).tolist() for length in lengths]


def masked(
    tokenizer: TextTokenizer,
    items: list[list[int]],
    share: float = 0.15,
    epoch: int = 0,
    names: tuple[str, ...] = ("main",),
) -> Batch:
    """A batch to learn from; with a share of 0 over a causal encoder."""
    text = text_input(tokenizer)
    outputs = [Config(masked=share).build(name, text, None, HiddenSpec(causal=not share)) for name in names]
    values = {name: [None] * len(items) for name in names}
    return BatchRows(items, values, draws(len(items), epoch), nothing).batch(text, outputs, 0.0, True)


def test_about_the_asked_share_is_to_be_guessed_and_most_of_it_is_masked(tokenizer: TextTokenizer) -> None:
    items = texts(tokenizer, [250] * 120)
    batch = masked(tokenizer, items)
    read, right, chosen = batch.read(Tokens).tokens, batch.targets["main"].tokens, batch.targets["main"].mask
    assert int(chosen.sum()) / (250 * 120) == pytest.approx(0.15, abs=0.01)
    hidden = (read == tokenizer.mask) & chosen
    kept = (read == right) & chosen
    others = chosen & ~hidden & ~kept
    for count, share in ((hidden, 0.8), (kept, 0.1), (others, 0.1)):
        assert int(count.sum()) / int(chosen.sum()) == pytest.approx(share, abs=0.02)
    assert len(set(read[others].tolist())) > 30  # any other token
    assert torch.equal(read[~chosen], right[~chosen])


def test_what_is_to_be_guessed_is_what_stood_there(tokenizer: TextTokenizer) -> None:
    items = texts(tokenizer, [5, 40, 1])
    batch = masked(tokenizer, items, 0.5)
    for row, item in enumerate(items):
        framed = tokenizer.frame.around(item).tolist()
        assert batch.targets["main"].tokens[row, : len(framed)].tolist() == framed


@pytest.mark.parametrize("share", [0.01, 0.15, 0.99])
def test_neither_frame_nor_padding_is_guessed_and_one_token_of_every_text_is(
    tokenizer: TextTokenizer, share: float
) -> None:
    items = texts(tokenizer, [1, 2, 3, 30, 200])
    batch = masked(tokenizer, items, share)
    chosen = batch.targets["main"].mask
    assert not (chosen & ~batch.read(Tokens).mask).any()
    assert not chosen[:, 0].any()
    assert chosen.any(1).all()
    ends = masked(tokenizer, [[item[0], tokenizer.separator, item[0]] for item in items], share)
    assert not ends.targets["main"].mask[:, 2].any()
    assert (ends.read(Tokens).tokens[:, 2] == tokenizer.separator).all()


def test_a_tokenizer_of_bert_masks_with_its_own_symbol(tmp_path: Path) -> None:
    from tests.encoders.tiny_backbones import save
    from twofold.encoders.pretrained import Config

    bert = Config(name=str(save("bert", tmp_path / "bert"))).own_tokenizer()
    assert bert.pieces([bert.mask]) == [" [MASK]"]
    items = texts(bert, [60] * 20)
    batch = masked(bert, items)
    chosen = batch.targets["main"].mask
    assert not chosen[:, [0, 61]].any()  # [CLS] and [SEP]
    assert int((batch.read(Tokens).tokens == bert.mask).sum()) / int(chosen.sum()) == pytest.approx(0.8, abs=0.08)


def test_two_decoders_that_guess_both_guess_the_text_itself(tokenizer: TextTokenizer) -> None:
    items = texts(tokenizer, [100] * 5)
    batch = masked(tokenizer, items, 0.3, names=("a", "b"))
    assert torch.equal(batch.targets["a"].tokens, batch.targets["b"].tokens)
    assert batch.targets["b"].tokens.tolist() == [tokenizer.frame.around(item).tolist() for item in items]
    assert not torch.equal(batch.targets["a"].mask, batch.targets["b"].mask)


def test_the_masks_of_a_row_follow_from_seed_epoch_and_row_alone(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    text = text_input(tokenizer)
    rows = [{"source": given} for given in ("one hundred and two", "seven hundred and forty", "a b c d e f g h i")]
    cache = Cache.of(write_jsonl(tmp_path / "rows.jsonl", rows), text.columns())
    output = Config(masked=0.3).build("main", text, None, HiddenSpec())
    data = TrainingRows(cache, np.arange(3), text, [output], BatchSizes(100, None, 1))

    def of_row_two(data: TrainingRows, among: list[int], moment: Moment) -> list[list[int]]:
        batch = data.batch(np.array(among), moment)
        assert batch is not None
        place = among[moment.rank :: moment.world].index(2)
        read = batch.read(Tokens)
        length = int(read.mask[place].sum())
        return [values[place, :length].tolist() for values in (read.tokens, batch.targets["main"].mask)]

    first = of_row_two(data, [2], Moment())
    assert of_row_two(data, [0, 2, 1], Moment(progress=0.7)) == first
    assert of_row_two(data, [0, 1, 2], Moment(rank=0, world=2)) == first
    assert of_row_two(data, [2], Moment(epoch=1)) != first
    assert of_row_two(replace(data, sizes=replace(data.sizes, seed=2)), [2], Moment()) != first


def test_over_a_causal_encoder_every_next_token_is_guessed() -> None:
    tokens = torch.tensor([[2, 7, 8, 9], [2, 5, 0, 0], [2, 0, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]).bool()
    target = next_tokens(Tokens(tokens, mask))
    assert target.mask.tolist() == [[True, True, True, False], [True, False, False, False], [False] * 4]
    assert target.tokens[target.mask].tolist() == [7, 8, 9, 5]


def test_a_share_of_nothing_guesses_what_comes_next_and_hides_nothing(tokenizer: TextTokenizer) -> None:
    items = texts(tokenizer, [6, 3])
    batch = masked(tokenizer, items, 0.0)
    assert batch.read(Tokens).tokens[0].tolist() == tokenizer.frame.around(items[0]).tolist()
    assert batch.targets["main"].tokens[0, :-1].tolist() == items[0]
    assert int(batch.targets["main"].mask.sum()) == 6 + 3
