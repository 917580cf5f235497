"""Recipes: whole experiments as typed objects, from the YAML to the trained model."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twofold.recipe.comparing import compare
    from twofold.recipe.recipe import Recipe
    from twofold.recipe.summarizing import summary
    from twofold.recipe.training import train

_HOMES = {"Recipe": "recipe", "compare": "comparing", "summary": "summarizing", "train": "training"}
__all__ = ["Recipe", "compare", "summary", "train"]


if not TYPE_CHECKING:  # a type checker would take any name for one of the package

    def __getattr__(name: str) -> Any:
        """Import on first use: the names of recipes are listed without torch."""
        if name not in _HOMES:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
