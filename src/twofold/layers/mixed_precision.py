"""Mixed precision: large products in bfloat16; attention in training, norms, scores and losses in float32."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode


def autocast(device: str, dtype: torch.dtype | None, training: bool) -> AbstractContextManager[object]:
    """Context in which layers compute in `dtype`, or in the type of their weights if it is None."""
    if dtype is not None and device == "cpu" and training:
        return _in_training(dtype)
    return torch.autocast(device, dtype, enabled=dtype is not None)


def float32(device: str) -> AbstractContextManager[object]:
    """Switches autocast off, under which scores, and sums over many positions, lose their digits."""
    switched_on = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return torch.autocast(device, enabled=False) if switched_on else nullcontext()


def widened(values: Tensor) -> Tensor:
    """Values in float32, if they are of half precision."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


@contextmanager
def _in_training(dtype: torch.dtype) -> Iterator[None]:
    with torch.autocast("cpu", dtype), _Float32Attention():
        yield


class _Float32Attention(TorchFunctionMode):
    """Computes attention in float32, for any backbone: on CPUs the backward pass of torch's fused attention takes four
    to eight times as long in bfloat16."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is not F.scaled_dot_product_attention:
            return func(*args, **kwargs)
        with float32("cpu"):
            values = func(*map(_float, args), **{name: _float(value) for name, value in kwargs.items()})
        return values.to(args[0].dtype if args else kwargs["query"].dtype)


def _float(value: Any) -> Any:
    return widened(value) if isinstance(value, Tensor) else value
