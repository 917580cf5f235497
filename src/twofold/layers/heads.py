"""A small network from states to scores."""

from __future__ import annotations

from torch import Tensor, nn

from twofold.layers.dropout import dropout


class Head(nn.Module):
    """Dropout, perhaps a hidden layer, then one score for each class."""

    def __init__(self, width: int, outputs: int, hidden: int | None, share: float) -> None:
        super().__init__()
        self.share = share
        self.between = nn.Sequential(nn.Linear(width, hidden), nn.GELU()) if hidden else None
        self.output = nn.Linear(hidden or width, outputs)

    def forward(self, states: Tensor) -> Tensor:
        """(..., outputs)"""
        states = dropout(states, self.share, self.training)
        if self.between is not None:
            states = dropout(self.between(states), self.share, self.training)
        scores: Tensor = self.output(states)
        return scores
