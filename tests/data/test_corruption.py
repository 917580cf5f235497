"""What is done to texts so that they teach themselves: how often, where never, and always the same for one row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.conftest import write_jsonl
from twofold.data.batches import Moment
from twofold.data.cache import Cache
from twofold.data.corruption import Corruption, Draw, Noise, next_tokens
from twofold.data.fields import TextField
from twofold.data.pairs import PairField
from twofold.data.tokenizer import TextTokenizer
from twofold.data.training import TrainingRows
from twofold.types import Batch

LIMIT = 300


def draws(rows: int, epoch: int = 0) -> list[Draw]:
    return [np.random.default_rng([1, epoch, row]) for row in range(rows)]


def nothing(draw: Draw) -> None:
    raise AssertionError("no other row is asked for")


def source(tokenizer: TextTokenizer) -> TextField:
    return TextField("source", tokenizer, LIMIT, frame=tokenizer.frame)


def texts(tokenizer: TextTokenizer, lengths: list[int], seed: int = 0) -> list[list[int]]:
    """Ordinary tokens in a frame."""
    ordinary = [one for one in range(len(tokenizer)) if one not in (*tokenizer.structure, tokenizer.mask)]
    draw = np.random.default_rng(seed)
    frame = tokenizer.frame
    return [[*frame.before, *draw.choice(ordinary, length).tolist(), *frame.after] for length in lengths]


def masked(tokenizer: TextTokenizer, items: list[list[int]], share: float = 0.15, epoch: int = 0) -> Batch:
    corruption = Corruption(tokenizer, {"main": share})
    return corruption.batch(source(tokenizer), items, draws(len(items), epoch), nothing)


def test_about_the_asked_share_is_to_be_guessed_and_most_of_it_is_masked(tokenizer: TextTokenizer) -> None:
    items = texts(tokenizer, [250] * 120)
    batch = masked(tokenizer, items)
    right, chosen = batch.targets["main"].tokens, batch.targets["main"].mask
    assert int(chosen.sum()) / (250 * 120) == pytest.approx(0.15, abs=0.01)
    hidden = (batch.tokens == tokenizer.mask) & chosen
    kept = (batch.tokens == right) & chosen
    others = chosen & ~hidden & ~kept
    for found, share in ((hidden, 0.8), (kept, 0.1), (others, 0.1)):
        assert int(found.sum()) / int(chosen.sum()) == pytest.approx(share, abs=0.02)
    assert len(set(batch.tokens[others].tolist())) > 30  # any other token
    assert torch.equal(batch.tokens[~chosen], right[~chosen])


def test_what_is_to_be_guessed_is_what_stood_there(tokenizer: TextTokenizer) -> None:
    items = texts(tokenizer, [5, 40, 1])
    batch = masked(tokenizer, items, 0.5)
    for row, item in enumerate(items):
        assert batch.targets["main"].tokens[row, : len(item)].tolist() == item


@pytest.mark.parametrize("share", [0.01, 0.15, 0.99])
def test_neither_frame_nor_padding_is_guessed_and_one_token_of_every_text_is(
    tokenizer: TextTokenizer, share: float
) -> None:
    items = texts(tokenizer, [1, 2, 3, 30, 200])
    batch = masked(tokenizer, items, share)
    chosen = batch.targets["main"].mask
    assert not (chosen & ~batch.mask).any()
    assert not chosen[:, 0].any()
    assert chosen.any(1).all()
    ends = masked(tokenizer, [[*item[:2], tokenizer.separator, item[1]] for item in items], share)
    assert not ends.targets["main"].mask[:, 2].any()
    assert (ends.tokens[:, 2] == tokenizer.separator).all()


def test_a_tokenizer_of_bert_masks_with_its_own_symbol(tmp_path: Path) -> None:
    from tests.encoders.tiny_backbones import save
    from twofold.encoders.pretrained import Config

    bert = Config(name=str(save("bert", tmp_path / "bert"))).own_tokenizer()
    assert bert.pieces([bert.mask]) == [" [MASK]"]
    items = texts(bert, [60] * 20)
    batch = masked(bert, items)
    chosen = batch.targets["main"].mask
    assert not chosen[:, [0, 61]].any()  # [CLS] and [SEP]
    assert int((batch.tokens == bert.mask).sum()) / int(chosen.sum()) == pytest.approx(0.8, abs=0.08)


def test_two_decoders_that_guess_both_guess_the_text_itself(tokenizer: TextTokenizer) -> None:
    items = texts(tokenizer, [100] * 5)
    batch = Corruption(tokenizer, {"a": 0.3, "b": 0.3}).batch(source(tokenizer), items, draws(5), nothing)
    assert torch.equal(batch.targets["a"].tokens, batch.targets["b"].tokens)
    assert batch.targets["b"].tokens.tolist() == items
    assert not torch.equal(batch.targets["a"].mask, batch.targets["b"].mask)


def test_the_masks_of_a_row_follow_from_seed_epoch_and_row_alone(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    field = source(tokenizer)
    rows = [{"source": text} for text in ("one hundred and two", "seven hundred and forty", "a b c d e f g h i")]
    cache = Cache.of(write_jsonl(tmp_path / "rows.jsonl", rows), field.columns())
    data = TrainingRows(cache, np.arange(3), field, {}, 100, None, 1, Corruption(tokenizer, {"main": 0.3}))

    def of_row_two(data: TrainingRows, among: list[int], moment: Moment) -> list[list[int]]:
        batch = data.batch(np.array(among), moment)
        assert batch is not None
        place = among[moment.rank :: moment.world].index(2)
        length = int(batch.mask[place].sum())
        return [one[place, :length].tolist() for one in (batch.tokens, batch.targets["main"].mask)]

    first = of_row_two(data, [2], Moment())
    assert of_row_two(data, [0, 2, 1], Moment(progress=0.7)) == first
    assert of_row_two(data, [0, 1, 2], Moment(rank=0, world=2)) == first
    assert of_row_two(data, [2], Moment(epoch=1)) != first
    assert of_row_two(replace(data, seed=2), [2], Moment()) != first


def test_over_a_causal_encoder_every_next_token_is_guessed() -> None:
    tokens = torch.tensor([[2, 7, 8, 9], [2, 5, 0, 0], [2, 0, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]).bool()
    target = next_tokens(Batch(tokens, mask))
    assert target.mask.tolist() == [[True, True, True, False], [True, False, False, False], [False] * 4]
    assert target.tokens[target.mask].tolist() == [7, 8, 9, 5]


def test_a_share_of_nothing_guesses_what_comes_next_and_hides_nothing(tokenizer: TextTokenizer) -> None:
    items = texts(tokenizer, [6, 3])
    batch = masked(tokenizer, items, 0.0)
    assert batch.tokens[0].tolist() == items[0]
    assert batch.targets["main"].tokens[0, :-1].tolist() == items[0][1:]
    assert int(batch.targets["main"].mask.sum()) == 6 + 3


def pairs(tokenizer: TextTokenizer) -> PairField:
    return PairField(TextField("a", tokenizer, 40), TextField("b", tokenizer, 40), tokenizer.frame)


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_strangers_come_as_often_as_asked_and_are_told(tokenizer: TextTokenizer, share: float) -> None:
    items = [([10, 11], [20 + number % 60, 21 + number // 60]) for number in range(1000)]
    corruption = Corruption(tokenizer, telling=["main"], strangers=share)
    batch = corruption.batch(pairs(tokenizer), items, draws(1000), lambda draw: items[draw.integers(1000)])
    strange = batch.targets["main"].tokens[:, 0].bool()
    assert batch.targets["main"].mask.all()
    assert float(strange.float().mean()) == pytest.approx(share, abs=0.05)
    assert batch.segments is not None
    for row, (first, second) in enumerate(items):
        assert batch.tokens[row, 1:3].tolist() == first
        assert (batch.tokens[row][batch.segments[row].bool()].tolist() != second) == bool(strange[row])


def test_a_text_that_comes_twice_is_no_stranger_to_itself(tokenizer: TextTokenizer) -> None:
    items = [([10], [20]), ([11], [20])]
    corruption = Corruption(tokenizer, telling=["main"], strangers=0.9)
    batch = corruption.batch(pairs(tokenizer), items, draws(2), lambda draw: items[draw.integers(2)])
    assert batch.targets["main"].tokens.tolist() == [[0], [0]]


MASK = 1
TEXT = list(range(100, 140))
EACH_NOISE = [
    Noise(mask=0.3),
    Noise(mask=0.15, span=1.0),
    Noise(delete=0.4),
    Noise(swap=3),
    Noise(mask=0.9, delete=0.9, span=8.0, swap=2),
]


@pytest.mark.parametrize("noise", EACH_NOISE, ids=str)
@pytest.mark.parametrize("length", [1, 2, 40])
def test_noise_keeps_something_of_every_text(noise: Noise, length: int) -> None:
    changed = 0
    for draw in draws(300):
        found = noise.of(TEXT[:length], MASK, draw)
        kept = [token for token in found if token != MASK]
        assert kept
        assert set(kept) <= set(TEXT[:length])
        assert len(kept) == len(set(kept))
        changed += found != TEXT[:length]
    assert changed or length == 1


@pytest.mark.parametrize(("share", "span"), [(0.15, 1.0), (0.3, 3.0), (0.5, 2.0)])
def test_noise_masks_about_the_asked_share_in_spans_of_the_asked_length(share: float, span: float) -> None:
    noise, hidden, holes = Noise(mask=share, span=span), 0, 0
    for draw in draws(600):
        found = noise.of(TEXT, MASK, draw)
        assert [token for token in found if token != MASK] == [token for token in TEXT if token in found]
        hidden += len(TEXT) - sum(token != MASK for token in found)
        holes += found.count(MASK)
    assert hidden / (600 * len(TEXT)) == pytest.approx(share, abs=0.02)
    assert hidden / holes == pytest.approx(span, rel=0.08)


def test_noise_leaves_out_about_the_asked_share_and_keeps_the_order() -> None:
    kept = [Noise(delete=0.4).of(TEXT, MASK, draw) for draw in draws(300)]
    assert all(found == sorted(found) for found in kept)
    assert sum(map(len, kept)) / (300 * len(TEXT)) == pytest.approx(0.6, abs=0.02)


def test_noise_moves_no_token_farther_than_asked() -> None:
    moved = 0
    for draw in draws(200):
        found = Noise(swap=3).of(TEXT, MASK, draw)
        assert sorted(found) == TEXT
        distance = max(abs(TEXT.index(token) - place) for place, token in enumerate(found))
        assert distance <= 3
        moved = max(moved, distance)
    assert moved == 3


def test_noise_is_the_same_for_the_same_draw_and_nothing_where_none_is_asked() -> None:
    noise = EACH_NOISE[-1]
    assert [noise.of(TEXT, MASK, one) for one in draws(5)] == [noise.of(TEXT, MASK, one) for one in draws(5)]
    assert noise.of(TEXT, MASK, draws(1)[0]) != noise.of(TEXT, MASK, draws(1, epoch=1)[0])
    assert Noise().of(TEXT, MASK, draws(1)[0]) == TEXT


@pytest.mark.parametrize("wrong", [{"mask": 1.0}, {"delete": -0.1}, {"span": 0.5}, {"swap": -1}])
def test_noise_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="mask and delete must be at least 0 and below 1"):
        Noise(**wrong)  # type: ignore[arg-type]
