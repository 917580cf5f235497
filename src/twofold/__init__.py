"""Every model is two functions: an encoder f : X → H and a decoder g : H → Y."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from twofold.api import build_index, evaluate, export, load, load_ranker, open_index
    from twofold.errors import TwofoldError
    from twofold.generate.search import GenerateOptions
    from twofold.index import Index
    from twofold.model import Candidates, Model, Ranker
    from twofold.recipe import Recipe, compare, summary, train

_NAMES = {
    "twofold.api": ("build_index", "evaluate", "export", "load", "load_ranker", "open_index"),
    "twofold.errors": ("TwofoldError",),
    "twofold.generate.search": ("GenerateOptions",),
    "twofold.index": ("Index",),
    "twofold.model": ("Candidates", "Model", "Ranker"),
    "twofold.recipe": ("Recipe", "compare", "summary", "train"),
}
__all__ = ["Candidates", "GenerateOptions", "Index", "Model", "Ranker", "Recipe", "TwofoldError"]
__all__ += ["build_index", "compare", "evaluate", "export", "load", "load_ranker", "open_index", "summary", "train"]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


if not TYPE_CHECKING:  # a type checker would take any name for one of the package

    def __getattr__(name: str) -> Any:
        """Import on first use: `import twofold` and `twofold --help` must not wait for torch."""
        for module, names in _NAMES.items():
            if name in names:
                return getattr(import_module(module), name)
        raise AttributeError(f"module 'twofold' has no attribute '{name}'")
