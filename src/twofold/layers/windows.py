"""Reads long rows window by window, and puts the states together as if each row had been read at once."""

from __future__ import annotations

import torch
from torch import Tensor

from twofold.types import Batch, Encoder, Hidden, Windows


def read_windows(encoder: Encoder, batch: Batch, windows: Windows, tokens: int) -> Hidden:
    """The states of all rows, each token's from its window; a summary is the mean of the windows' summaries.

    tokens: how many, padding included, the encoder reads at once
    """
    step = max(1, tokens // windows.places.shape[1])
    parts = []
    for start in range(0, len(windows.rows), step):
        some = slice(start, start + step)
        read = batch.tokens[windows.rows[some, None], windows.places[some]]
        parts.append(encoder(Batch(read, windows.mask[some], progress=batch.progress)))
    states = summary = None
    if parts[0].states is not None:
        whole = torch.cat([part.need("states") for part in parts])  # (windows, positions, width)
        states = whole[windows.window, windows.position]
    if parts[0].summary is not None:
        summary = _mean(torch.cat([part.need("summary") for part in parts]), batch.mask, windows)
    return Hidden(batch.mask, states, summary, parts[0].finish)


def _mean(summaries: Tensor, mask: Tensor, windows: Windows) -> Tensor:
    """(rows, width): the mean of each row's windows, weighted by how many tokens take their state from a window."""
    taken = torch.bincount(windows.window[mask], minlength=len(summaries))
    weights = (taken / mask.sum(1)[windows.rows])[:, None].to(summaries)
    return summaries.new_zeros(len(mask), summaries.shape[1]).index_add(0, windows.rows, summaries * weights)
