"""Bases of encoders and decoders, the two functions of every model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

import torch
from torch import nn

from twofold.errors import TwofoldError
from twofold.recording import records_attention
from twofold.results import DecoderOutput
from twofold.types import Batch, Hidden, Loss, Target


class Engine(Protocol):
    """Program other than torch that computes an encoder."""

    name: str

    def __call__(self, batch: Batch) -> Hidden | None:
        """Hidden states of a batch; None if torch must compute them."""
        ...


class Encoder(nn.Module):
    """Encoder f : X → H. Reads a batch and fills the fields of `Hidden` that its decoders need."""

    engine: Engine | None = None
    """Engine that computes in place of `forward` when nothing is learned or recorded."""

    def forward(self, batch: Batch) -> Hidden:
        raise NotImplementedError

    def __call__(self, batch: Batch) -> Hidden:
        if self.engine is not None and not (self.training or torch.is_grad_enabled() or records_attention()):
            hidden = self.engine(batch)
            if hidden is not None:
                return hidden
        return cast(Hidden, super().__call__(batch))

    def table(self) -> nn.Parameter | None:
        """Returns the token embedding table, (tokens, width), or None."""
        return cast(nn.Parameter | None, getattr(getattr(self, "embedding", None), "weight", None))

    def levels(self) -> list[list[nn.Parameter]]:
        """Groups the parameters by level, from the embeddings to the top layer."""
        stacks = {f"{name}.": len(stack) for name, stack in self.named_modules() if isinstance(stack, nn.ModuleList)}
        layers = max(stacks.values(), default=0)
        # Two directions are two stacks side by side. Of nested stacks, the outer one comes first.
        highest = [prefix for prefix, length in stacks.items() if length == layers]
        levels: list[list[nn.Parameter]] = [[] for _ in range(layers + 1)]
        reached = 0
        for name, parameter in self.named_parameters():
            prefix = next((start for start in highest if name.startswith(start)), None)
            if prefix is not None:
                reached = int(name.removeprefix(prefix).split(".")[0]) + 1
            elif reached:
                reached = layers
            levels[reached].append(parameter)
        return [level for level in levels if level]


class Decoder(nn.Module):
    """Decoder g : H → Y. Learns from a target; predicts without one."""

    def share(self, table: nn.Parameter | None) -> None:
        """Ties the decoder's token embeddings to the encoder's table, where the decoder supports it."""

    def forward(self, hidden: Hidden, target: Target | None = None, progress: float = 0.0) -> DecoderOutput:
        """Logits of the batch; text decoders read the target for them (teacher forcing)."""
        raise TwofoldError(f"{type(self).__name__} has no forward(hidden, target, progress), which model(batch) calls")

    def count(self, target: Target) -> int:
        """Count that the loss is divided by, known before the forward pass. Weights belong in the sum."""
        raise NotImplementedError

    def loss(self, hidden: Hidden, target: Target, progress: float = 0.0) -> Loss:
        """Loss of the predictions against the target: a sum and the count to divide it by."""
        raise NotImplementedError

    def predict(self, hidden: Hidden, options: Any) -> Sequence[Any]:
        """Predicts one result for each row, of the class that the decoder's settings name in `writes`."""
        raise NotImplementedError
