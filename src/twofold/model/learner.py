"""What the training loop asks of any model: counts known beforehand, gradients, and a folder to be saved in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from twofold.types import Encoder, Loss


class Learner(nn.Module):
    """A model that can be trained; its losses have names, one for each decoder."""

    precision: torch.dtype | None = None
    """What to compute in where that is quicker; without it in the numbers of the weights."""

    encoder: Encoder

    def towers(self) -> list[Encoder]:
        """All that reads."""
        return [self.encoder]

    def train(self, mode: bool = True) -> Self:
        """Go over to training; of what reads, each layer that does not learn stays as it is when it answers."""
        super().train(mode)
        for layer in (layer for tower in self.towers() for layer in tower.modules()):
            parameters = list(layer.parameters())
            if parameters and not any(one.requires_grad for one in parameters):
                layer.eval()
        return self

    @property
    def weights(self) -> Mapping[str, float]:
        """What each loss is multiplied by."""
        raise NotImplementedError

    def losses(self, batch: Any) -> dict[str, Loss]:
        """For each decoder a sum and a count."""
        raise NotImplementedError

    def counts(self, batch: Any) -> dict[str, int]:
        """For each decoder what its sum will be divided by, known before anything is computed."""
        raise NotImplementedError

    def tokens(self, batch: Any) -> int:
        """How many real tokens are read and written."""
        raise NotImplementedError

    def save_pretrained(self, folder: str | Path) -> None:
        """Weights, settings and tokenizers in one folder, which takes the place of an older one as a whole."""
        raise NotImplementedError

    def loss(self, batch: Any) -> Tensor:
        """One number to minimize: the weighted mean losses of all decoders."""
        return self._weighed(self.losses(batch), self.counts(batch))

    def backward(self, batch: Any, counts: Mapping[str, int]) -> dict[str, Loss]:
        """Add the gradients of this batch, a part of a whole in which `counts` things count."""
        losses = self.losses(batch)
        self._weighed(losses, counts).backward()  # type: ignore[no-untyped-call]
        return losses

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def autocast(self) -> torch.autocast:
        """Computes in `precision` as long as it lasts."""
        return torch.autocast(self.device.type, self.precision, enabled=self.precision is not None)

    def _weighed(self, losses: Mapping[str, Loss], counts: Mapping[str, int]) -> Tensor:
        # Where nothing counts, such as in images of no known class, the sum is 0 already.
        scales = {name: self.weights[name] / max(counts[name], 1) for name in losses}
        return torch.stack([loss.sum * scales[name] for name, loss in losses.items()]).sum()


class Evaluating:
    """Sets a module to evaluation and back to what it was."""

    def __init__(self, module: nn.Module) -> None:
        self.module, self.was = module, module.training

    def __enter__(self) -> None:
        self.module.eval()

    def __exit__(self, *_: object) -> None:
        self.module.train(self.was)
