"""A module set to evaluation for a while."""

from __future__ import annotations

from torch import nn


class Evaluating:
    """Sets a module to evaluation and back to what it was."""

    def __init__(self, module: nn.Module) -> None:
        self.module, self.was = module, module.training

    def __enter__(self) -> None:
        self.module.eval()

    def __exit__(self, *_: object) -> None:
        self.module.train(self.was)
