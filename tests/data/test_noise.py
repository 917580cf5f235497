"""Noise that a denoiser must undo: how much of it, that something is always left, and the same for the same draw."""

from __future__ import annotations

import numpy as np
import pytest

from twofold.data.batches import Draw
from twofold.data.columns import Noise


def draws(rows: int, epoch: int = 0) -> list[Draw]:
    return [np.random.default_rng([1, epoch, row]) for row in range(rows)]


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
        noisy = noise.of(TEXT[:length], MASK, draw)
        kept = [token for token in noisy if token != MASK]
        assert kept
        assert set(kept) <= set(TEXT[:length])
        assert len(kept) == len(set(kept))
        changed += noisy != TEXT[:length]
    assert changed or length == 1


@pytest.mark.parametrize(("share", "span"), [(0.15, 1.0), (0.3, 3.0), (0.5, 2.0)])
def test_noise_masks_about_the_asked_share_in_spans_of_the_asked_length(share: float, span: float) -> None:
    noise, hidden, holes = Noise(mask=share, span=span), 0, 0
    for draw in draws(600):
        noisy = noise.of(TEXT, MASK, draw)
        assert [token for token in noisy if token != MASK] == [token for token in TEXT if token in noisy]
        hidden += len(TEXT) - sum(token != MASK for token in noisy)
        holes += noisy.count(MASK)
    assert hidden / (600 * len(TEXT)) == pytest.approx(share, abs=0.02)
    assert hidden / holes == pytest.approx(span, rel=0.08)


def test_noise_leaves_out_about_the_asked_share_and_keeps_the_order() -> None:
    kept = [Noise(delete=0.4).of(TEXT, MASK, draw) for draw in draws(300)]
    assert all(found == sorted(found) for found in kept)
    assert sum(map(len, kept)) / (300 * len(TEXT)) == pytest.approx(0.6, abs=0.02)


def test_noise_moves_no_token_farther_than_asked() -> None:
    moved = 0
    for draw in draws(200):
        noisy = Noise(swap=3).of(TEXT, MASK, draw)
        assert sorted(noisy) == TEXT
        distance = max(abs(TEXT.index(token) - place) for place, token in enumerate(noisy))
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
