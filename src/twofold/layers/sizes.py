"""Checks the sizes in settings against the shapes of the weights before any memory is allocated."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from textwrap import shorten
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)

from twofold.errors import TwofoldError

Shapes = Mapping[str, tuple[int, ...]]
"""Shape of every tensor of a file, by name."""
MORE = 4
"""Factor by which a built model may exceed its saved tensors and values, because some parts are built but unused."""
MOST_LABELS = 10_000
"""Maximum number of labels of an unused head; transformers creates a name for each."""
FREE_TENSORS, FREE_VALUES = 1000, 1 << 26
"""Additional tensors and values that may be built: tables that are not saved."""


def built_without_memory(
    build: Callable[[], nn.Module], settings: Any, shapes: Shapes, place: object, remedy: str
) -> nn.Module | None:
    """Builds a module from `settings` on the `meta` device, where tensors have a shape but no values.

    Returns None if a part cannot be built there: one from outside twofold may need values at once.

    Refuses, in bounded time and memory, settings at `place` that ask for far more than `shapes` hold.
    """
    refuse_counts(settings, shapes, place, remedy)
    too_large = f"{place}: its settings ask for more than the {len(shapes)} tensors that its weights hold; {remedy}"
    try:
        with _counting(MORE * len(shapes) + FREE_TENSORS, too_large), torch.device("meta"):
            model = build()
    except TwofoldError:
        raise
    except Exception as error:  # impossible sizes raise various exceptions
        if "meta" in str(error):
            return None
        reason = shorten(str(error).partition("\n")[0] or type(error).__name__, 120, placeholder=" ...")
        raise TwofoldError(f"{place}: its settings cannot be built ({reason}); {remedy}") from error
    held = sum(math.prod(shape) for shape in shapes.values())
    asked = sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))
    if asked > MORE * held + FREE_VALUES:
        raise TwofoldError(f"{place}: its settings ask for {asked:,} numbers, its weights hold {held:,}; {remedy}")
    return model


def refuse_counts(settings: Any, shapes: Shapes, place: object, remedy: str) -> None:
    """Refuses settings with more layers than tensors, because even a list of layers could fill the memory."""
    for name, count in _nested(settings):
        is_count = type(count) is int and re.search("layer|block|convolution|depth", name)
        if is_count and count > max(len(shapes), FREE_TENSORS):
            raise TwofoldError(f"{place}: {name} is {count:,}, its weights hold {len(shapes)} tensors; {remedy}")


def refuse_labels(settings: Any, place: object) -> None:
    """Refuses a number of labels for which transformers would create too many names."""
    for name, labels in _nested(settings):
        if name == "num_labels" and isinstance(labels, int | float) and labels > MOST_LABELS:
            remedy = "take num_labels out"
            raise TwofoldError(f"{place}: its config.json has {labels:,} labels, over {MOST_LABELS:,}; {remedy}")


def _nested(settings: Any) -> Iterator[tuple[str, Any]]:
    """Yields every setting with its name, at any depth."""
    if isinstance(settings, Mapping):
        for name, value in settings.items():
            yield str(name), value
            yield from _nested(value)


@contextmanager
def _counting(most: int, message: str) -> Iterator[None]:
    """Raises an error once this thread registers more than `most` parameters, buffers and modules, to stop endless
    loops."""
    thread, count = threading.get_ident(), 0

    def counted(*_: Any) -> None:
        nonlocal count
        if threading.get_ident() == thread:
            count += 1
            if count > most:
                raise TwofoldError(message)

    with register_module_parameter_registration_hook(counted), register_module_buffer_registration_hook(counted):
        yield
