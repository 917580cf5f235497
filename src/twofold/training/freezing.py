"""Freezing: frozen encoders, gradual unfreezing, and the refusal of models of which nothing learns."""

from __future__ import annotations

from itertools import chain, zip_longest

from torch import nn

from twofold.errors import TwofoldError
from twofold.layers.blocks import BatchNorm
from twofold.model import Model
from twofold.training import processes
from twofold.training.config import TrainConfig


class Freezing:
    """Freezes and unfreezes levels of the encoder; parameters frozen by settings of their own never learn."""

    def __init__(self, model: Model, config: TrainConfig) -> None:
        self.model, self.config = model, config
        self.levels = [
            [parameter for parameter in level if parameter.requires_grad] for level in levels_from_the_top(model)
        ]
        self.unfrozen: int | None = None

    def at(self, progress: float) -> None:
        """Unfreezes the levels that learn once the share `progress` of the training is done."""
        if self.config.freeze == "none":
            return
        unfrozen = 0
        if self.config.freeze == "gradual":
            unfrozen = int(progress / self.config.unfrozen_by * len(self.levels) + 1e-9)  # 0.6 / 0.8 * 4 is not quite 3
        if unfrozen == self.unfrozen:
            return
        self.unfrozen = unfrozen
        for number, level in enumerate(self.levels):
            for parameter in level:
                parameter.requires_grad_(number < unfrozen)
        if self.model.training:
            self.model.train()


def levels_from_the_top(model: Model) -> list[list[nn.Parameter]]:
    """Parameters of the encoder, layer by layer from the top; layers of a second tower belong to those of the first."""
    towers = [tower.levels()[::-1] for tower in model.encoders()]
    return [list(chain.from_iterable(levels)) for levels in zip_longest(*towers, fillvalue=[])]


def refuse_what_cannot_learn(model: nn.Module, config: TrainConfig) -> None:
    """Refuses a model of which nothing learns, and BatchNorm where gradients would not be those of the full batch."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise TwofoldError("train.freeze=encoder: no other parameters are left to train; use gradual or none")
    norms = [module for module in model.modules() if isinstance(module, BatchNorm | nn.BatchNorm2d)]
    if any(norm.weight.requires_grad for norm in norms):
        for what, wrong in (("train.accumulate", config.accumulate > 1), ("several processes", processes.world() > 1)):
            if wrong:
                raise TwofoldError(
                    f"norm: batch does not go with {what}: the gradients would not be those of the full batch; "
                    "use norm: layer, of an image's network norm: group, of a `vit` stem_norm: group"
                )
