"""Rows of all processes in one tensor, gradients included, however many rows each process has."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def gather_rows(rows: Tensor, sizes: list[int]) -> Tensor:
    """The rows of all processes, in their order; `sizes` says how many each of them has."""
    if len(sizes) == 1:
        return rows
    gathered: Tensor = _Gather.apply(rows, sizes)  # type: ignore[no-untyped-call]
    return gathered


class _Gather(torch.autograd.Function):
    """Every process pads to the longest; going back, each gets the sum of all gradients of its own rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: list[int]) -> Tensor:
        ctx.sizes, ctx.rank = sizes, dist.get_rank()
        longest = max(sizes)
        padded = rows.new_zeros(longest, *rows.shape[1:])
        padded[: len(rows)] = rows
        found = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(found, padded)
        return torch.cat([one[:size] for one, size in zip(found, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        whole = gradients[0].contiguous().clone()
        dist.all_reduce(whole)
        start = sum(ctx.sizes[: ctx.rank])
        return whole[start : start + ctx.sizes[ctx.rank]], None
