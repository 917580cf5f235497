"""A whole experiment as one typed object, from its YAML to the trained model."""

from twofold.recipe.base import Recipe
from twofold.recipe.ranking import RankingRecipe
from twofold.recipe.run import train
from twofold.recipe.text import TextRecipe

__all__ = ["RankingRecipe", "Recipe", "TextRecipe", "train"]
