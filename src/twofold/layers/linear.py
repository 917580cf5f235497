"""Linear map that computes with packed weights where nothing is learned: oneDNN's kernels, and no cast at each call."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

TYPES = (torch.float32, torch.bfloat16)
"""Types of the inputs that packed weights are made for."""
AVAILABLE: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
SMALL = 1 << 17
"""Number of multiplications below which a product in float32 takes less time than finding its kernel."""


class Packed:
    """Weights of a linear map in the layout of oneDNN's kernels, for one type; the copy of a map makes its own."""

    def __init__(self, weight: Tensor, bias: Tensor | None, kind: torch.dtype) -> None:
        self.made_from = _version(weight, bias, kind)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().to(kind).contiguous(), None)
        self.bias = None if bias is None else bias.detach().to(kind)

    def __call__(self, states: Tensor) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(states, self.weight, self.bias, "none", [], "")
        return product

    def __deepcopy__(self, memo: Any) -> None:
        return None

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


class Linear(nn.Linear):
    """Linear map; on a CPU and without gradients it computes with packed weights, kept until the weights change.

    The kernels of packed weights take half the time of `nn.Linear` or less, and a weight in bfloat16 is cast once.
    """

    packed: Packed | None = None

    def train(self, mode: bool = True) -> Linear:
        if mode:
            self.packed = None
        return super().train(mode)

    def forward(self, states: Tensor) -> Tensor:
        if self.training or torch.is_grad_enabled() or states.device.type != "cpu" or torch.compiler.is_compiling():
            return super().forward(states)
        kind = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else states.dtype
        small = kind == torch.float32 and states.numel() * self.out_features < SMALL
        if small or kind not in TYPES or self.weight.dtype != torch.float32 or not AVAILABLE:
            return super().forward(states)
        packed = self.packed
        if packed is None or packed.made_from != _version(self.weight, self.bias, kind):
            packed = self.packed = Packed(self.weight, self.bias, kind)
        return packed(states.to(kind))


def make_output(width: int, size: int, tied: nn.Embedding | None) -> Linear:
    """Creates the output layer; if tied, it shares the embedding table."""
    output = Linear(width, size, bias=tied is None)
    if tied is not None:
        output.weight = tied.weight
    return output


def _version(weight: Tensor, bias: Tensor | None, kind: torch.dtype) -> tuple[object, ...]:
    """Returns a value that changes when the weights are changed in place or replaced, or another type is asked for."""
    changed = () if bias is None else (bias._version, bias.data_ptr())
    return (weight._version, weight.data_ptr(), *changed, kind)
