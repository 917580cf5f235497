"""Embedding lookups of a training loop, whose gradients touch the rows that were read and no others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

UNUSUAL = ("max_norm", "scale_grad_by_freq", "sparse")
"""Options of `F.embedding` with which torch computes the gradient itself."""


class RowGradients(TorchFunctionMode):
    """Adds the gradients of embedding lookups to `table.grad` row by row, for any backbone on a CPU.

    For each lookup torch fills a table of zeros, with 30,000 tokens a tenth of the time of a chunk. The gradient is
    written when the backward pass reaches the lookup, past the hooks of the table, so this is for our own loop only.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.embedding:
            return _embedding(*args, **kwargs)
        return func(*args, **kwargs)


def _embedding(tokens: Tensor, table: Tensor, padding_idx: int | None = None, **options: Any) -> Tensor:
    plain = not any(map(options.get, UNUSUAL)) and (padding_idx is None or padding_idx >= 0)
    if plain and table.is_leaf and table.requires_grad and table.device.type == "cpu" and torch.is_grad_enabled():
        return _Lookup.apply(tokens, table, padding_idx)  # type: ignore[no-any-return, no-untyped-call]
    return F.embedding(tokens, table, padding_idx, **options)


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: Tensor, table: Tensor, padding: int | None) -> Tensor:
        ctx.tokens, ctx.table, ctx.padding = tokens, table, padding
        return table[tokens]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        tokens, table = ctx.tokens.flatten(), ctx.table
        rows = gradients[0].reshape(len(tokens), -1).to(table.dtype)
        if ctx.padding is not None:
            rows = rows.masked_fill((tokens == ctx.padding)[:, None], 0.0)
        if table.grad is None:
            table.grad = torch.zeros_like(table)
        table.grad.index_add_(0, tokens, rows)
        return None, None, None
