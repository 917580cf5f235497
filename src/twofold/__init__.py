"""Every model is two functions: an encoder f : X → H and a decoder g : H → Y."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from twofold.api import build_index, evaluate, load, open_index
    from twofold.errors import TwofoldError
    from twofold.generate.options import GenerateOptions
    from twofold.index import Index
    from twofold.model import Model, Ranker
    from twofold.recipe import Recipe, train

_HOMES = {
    "GenerateOptions": "twofold.generate.options",
    "Index": "twofold.index",
    "Model": "twofold.model",
    "Ranker": "twofold.model",
    "Recipe": "twofold.recipe",
    "TwofoldError": "twofold.errors",
    "build_index": "twofold.api",
    "evaluate": "twofold.api",
    "load": "twofold.api",
    "open_index": "twofold.api",
    "train": "twofold.recipe",
}
__all__ = [
    "GenerateOptions",
    "Index",
    "Model",
    "Ranker",
    "Recipe",
    "TwofoldError",
    "build_index",
    "evaluate",
    "load",
    "open_index",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import on first use: `import twofold` and `twofold --help` must not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'twofold' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
