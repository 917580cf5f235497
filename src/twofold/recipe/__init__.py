"""A whole experiment as one typed object, from its YAML to the trained model."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twofold.recipe.base import Recipe
    from twofold.recipe.ranking import RankingRecipe
    from twofold.recipe.run import train
    from twofold.recipe.text import TextRecipe

_HOMES = {"RankingRecipe": "ranking", "Recipe": "base", "TextRecipe": "text", "train": "run"}
__all__ = ["RankingRecipe", "Recipe", "TextRecipe", "train"]


def __getattr__(name: str) -> Any:
    """Import on first use: the names of recipes are listed without torch."""
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
