"""Communication between the processes of a training; a single process needs none."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


@contextmanager
def joined() -> Iterator[None]:
    """Joins the processes that `torchrun` started, if it did, for as long as the block lasts."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield
        return
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    # The others wait while the first evaluates.
    dist.init_process_group(backend, timeout=timedelta(hours=6))
    try:
        yield
    finally:
        dist.destroy_process_group()


def rank() -> int:
    """Number of this process, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def is_first() -> bool:
    """Returns True in the first process, also before the processes have joined and after they have parted."""
    return os.environ.get("RANK", "0") == "0"


def world() -> int:
    """Number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def add_up(numbers: list[float], device: torch.device) -> list[float]:
    """Sums of numbers over all processes."""
    if world() == 1:
        return numbers
    tensor = torch.tensor(numbers, dtype=torch.float64, device=device)
    dist.all_reduce(tensor)
    return list(tensor.tolist())


def add_up_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Sums the gradients of all processes, in a single message."""
    gradients = []
    for parameter in parameters:
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(parameter.grad)
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    for gradient, total in zip(gradients, torch.split(flat, [gradient.numel() for gradient in gradients]), strict=True):
        gradient.copy_(total.view_as(gradient))


def from_first(value: Any) -> Any:
    """Returns the value of the first process in every process."""
    if world() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, 0)
    return box[0]


@contextmanager
def first_goes_ahead() -> Iterator[None]:
    """Runs the block in the first process, then in the others, which find its work done."""
    if world() > 1 and rank() > 0:
        dist.barrier()
    yield
    if world() > 1 and rank() == 0:
        dist.barrier()


@contextmanager
def asked_to_stop(stop: Callable[[], None]) -> Iterator[None]:
    """Calls `stop` at Ctrl-C and at SIGTERM, so that a training ends after a step, with a checkpoint."""
    try:
        before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread, which alone may do so
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
