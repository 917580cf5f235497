"""Cache of keys and values for generation: preallocated, written in place, shared by the hypotheses of a beam."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

ROOM = 32
"""Positions that a new cache has room for; the room doubles when it is full."""


@dataclass
class Cache:
    """Keys and values of all generated positions, layer by layer.

    All hypotheses of a row write into one store, side by side at each position. `visible` tells which entries are the
    past of each hypothesis, so that a beam is reordered without a copy of keys and values.
    """

    rows: int
    beam: int
    """Number of hypotheses of each row."""
    length: int = 0
    """Number of positions, the current one included."""
    visible: Tensor | None = None
    """Shape (rows, beam, length × beam): true for the past of each hypothesis; None if each row has one."""
    layers: list[Tensor] = field(default_factory=list)
    """Keys and values of each layer, (rows, room × beam, width of both)."""

    def advance(self, device: torch.device) -> Tensor | None:
        """Begins the next position and returns its attention mask (rows, 1, beam, entries), to be added to scores."""
        self.length += 1
        if self.beam == 1:
            return None
        now = torch.eye(self.beam, dtype=torch.bool, device=device).expand(self.rows, -1, -1)
        self.visible = now if self.visible is None else torch.cat([self.visible, now], 2)
        return torch.zeros(self.visible.shape, device=device).masked_fill_(~self.visible, -math.inf)[:, None]

    def write(self, layer: int, entries: Tensor) -> Tensor:
        """Stores the entries of the current position, (rows, beam, width), and returns those of all positions."""
        stop = self.length * self.beam
        if layer == len(self.layers):
            self.layers.append(entries.new_empty(self.rows, ROOM * self.beam, entries.shape[2]))
        store = self.layers[layer]
        if stop > store.shape[1]:
            self.layers[layer] = store = torch.cat([store, torch.empty_like(store)], 1)
        store[:, stop - self.beam : stop] = entries
        return store[:, :stop]

    def select(self, hypotheses: Tensor) -> Cache:
        """Keeps the given hypotheses, counted over all rows: `beam` of each row that stays, rows in order."""
        if self.beam == 1:
            return Cache(len(hypotheses), 1, self.length, None, [store[hypotheses] for store in self.layers])
        rows, parents = hypotheses[:: self.beam] // self.beam, (hypotheses % self.beam).view(-1, self.beam)
        assert self.visible is not None
        visible = self.visible[rows[:, None], parents]
        # Rows never change places: as many as before are the same as before.
        layers = self.layers if len(rows) == self.rows else [store[rows] for store in self.layers]
        return Cache(len(rows), self.beam, self.length, visible, layers)
