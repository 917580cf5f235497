"""Windows of a long sentence: whole words within the limit, and each token read where it sees most."""

from __future__ import annotations

import random
from itertools import accumulate, pairwise

import pytest
import torch

from twofold.data.batches import make_windows, window_spans


def some_sizes(seed: int, room: int) -> list[int]:
    draw = random.Random(seed)
    most = draw.choice([1, max(1, room // 2), room])
    return [draw.randint(1, most) for _ in range(draw.randint(1, 60))]


@pytest.mark.parametrize("room", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("seed", range(8))
def test_windows_hold_whole_words_within_the_room_and_leave_none_out(seed: int, room: int) -> None:
    sizes = some_sizes(seed, room)
    spans, edges = window_spans(sizes, room), {0, *accumulate(sizes)}
    assert spans[0][0] == 0
    assert spans[-1][1] == sum(sizes)
    assert all(start in edges and stop in edges and 0 < stop - start <= room for start, stop in spans)
    for (start, stop), (following, reached) in pairwise(spans):
        assert start < following <= stop < reached


def test_neighbouring_windows_share_half_of_the_room() -> None:
    assert window_spans([1] * 20, 8) == [(0, 8), (4, 12), (8, 16), (12, 20)]
    assert window_spans([1] * 8, 8) == [(0, 8)]


def test_a_word_that_fills_a_window_stands_alone() -> None:
    assert window_spans([1, 1, 8, 1], 8) == [(0, 2), (2, 10), (10, 11)]


@pytest.mark.parametrize("room", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("frame", [(0, 0), (1, 1), (2, 0)])
def test_windows_read_every_token_and_say_where(room: int, frame: tuple[int, int]) -> None:
    before, after = frame
    sentences = [some_sizes(seed, room) for seed in range(5)]
    rows = [(sum(sizes) + before + after, window_spans(sizes, room)) for sizes in sentences]
    windows = make_windows(rows, before, after)
    assert windows.places.shape[1] <= room + before + after
    for row, (length, _) in enumerate(rows):
        window, position = windows.window[row, :length], windows.position[row, :length]
        assert bool((windows.rows[window] == row).all())
        assert bool(windows.mask[window, position].all())
        # What stands there is the token itself, the frame of the first and the last window included.
        assert torch.equal(windows.places[window, position], torch.arange(length))


def test_a_token_is_read_in_the_window_in_which_it_stands_furthest_from_a_cut() -> None:
    windows = make_windows([(16, [(0, 8), (4, 12), (8, 16)])], 0, 0)
    assert windows.window[0].tolist() == [0] * 6 + [1] * 4 + [2] * 6
    # The end of a sentence is no cut: the last window knows what follows its last token, which is nothing.
    assert make_windows([(9, [(0, 8), (4, 9)])], 0, 0).window[0].tolist() == [0] * 6 + [1] * 3
