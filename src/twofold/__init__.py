"""Every model is two functions: an encoder f : X → H and a decoder g : H → Y."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from twofold.api import evaluate, load
    from twofold.errors import TwofoldError
    from twofold.generate.options import GenerateOptions
    from twofold.model import Model, Ranker
    from twofold.recipe import Recipe, train

_HOMES = {
    "GenerateOptions": "twofold.generate.options",
    "Model": "twofold.model",
    "Ranker": "twofold.model",
    "Recipe": "twofold.recipe",
    "TwofoldError": "twofold.errors",
    "evaluate": "twofold.api",
    "load": "twofold.api",
    "train": "twofold.recipe",
}
__all__ = ["GenerateOptions", "Model", "Ranker", "Recipe", "TwofoldError", "evaluate", "load", "train"]


def __getattr__(name: str) -> Any:
    """Import on first use: `import twofold` and `twofold --help` must not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'twofold' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
