"""Summary of what a recipe or a model folder describes: the model is built without memory for its weights."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from twofold.data.named_models import MODELS
from twofold.data.tokenizer import TextTokenizer, TokenizerConfig
from twofold.errors import TwofoldError, did_you_mean
from twofold.model import Model, Ranker, saved
from twofold.model.load import is_backbone_name, load
from twofold.model.summary import Summary
from twofold.recipe.build import named_tokenizers, new_model
from twofold.recipe.file import read_yaml, recipe_names
from twofold.recipe.given import RECIPE
from twofold.recipe.recipe import Recipe, as_recipe
from twofold.training.config import TrainConfig
from twofold.training.freezing import Freezing

YAML = (".yaml", ".yml")


def summary(
    of: Model | Recipe | Mapping[str, Any] | str | Path, changes: Sequence[str] = (), allow_code: bool = False
) -> Summary:
    """Summarizes a recipe, without training and without its data, or a model: parts, shapes, parameters by part.

    of: a recipe, its file or its name; a model, or its folder or name as `load` takes it
    changes: `key.path=value` changes of a recipe
    """
    if isinstance(of, Model) or (isinstance(of, str | Path) and not _is_recipe(of)):
        if changes:
            name = "this" if isinstance(of, Model) else of
            raise TwofoldError(f"{changes[0]}: changes are for recipes, and {name} is a model; leave them out")
        return of.summary() if isinstance(of, Model) else _model_summary(str(of), allow_code)
    return _recipe_summary(as_recipe(of, changes, needs_data=False))


def _is_recipe(name: str | Path) -> bool:
    """Returns True for the name or the file of a recipe."""
    path = Path(name)
    return not path.is_dir() and (path.suffix in YAML or path.is_file() or str(name) in recipe_names())


def _recipe_summary(recipe: Recipe) -> Summary:
    """Summary of a model that is not trained yet."""
    notes, made = [], []
    if recipe.start and recipe.start not in MODELS and not Path(recipe.start).exists():
        notes.append(f"start: {recipe.start} does not exist yet; a model that starts there takes its tokenizers")
        recipe = replace(recipe, start=None)

    def untrained(names: list[str], settings: TokenizerConfig) -> TextTokenizer:
        made.extend(names)
        return TextTokenizer.untrained(settings.size)

    tokenizers = named_tokenizers(recipe, untrained)
    model = without_weights(lambda: new_model(recipe, recipe.tasks, tokenizers))
    if made:
        notes.append("vocabularies have the size that the recipe asks for; little data may give fewer tokens")
    return _with_frozen(model, recipe.train, notes)


def _model_summary(name: str, allow_code: bool) -> Summary:
    """Summary of a model folder, whose weights are not read, or of a backbone."""
    folder = Path(name)
    if is_backbone_name(name):
        return load(name, allow_code).summary()
    if not folder.exists() and len(folder.parts) == 1:
        raise TwofoldError(f"there is no model or recipe '{name}'; {did_you_mean(name, recipe_names())}")
    train = TrainConfig()
    model = saved_without_weights(folder, allow_code)
    if (folder / RECIPE).is_file():
        written = read_yaml(folder / RECIPE).get("train")
        train = replace(train, freeze=written.get("freeze", train.freeze)) if isinstance(written, dict) else train
    return _with_frozen(model, train, [])


def saved_without_weights(folder: Path, allow_code: bool = False) -> Model:
    """Builds the model of a folder without reading its weights."""
    read = saved.read(folder, allow_code)
    return without_weights(lambda: (Ranker if read.config.ranks else Model)(read.config, read.tokenizers))


def without_weights(build: Callable[[], Model]) -> Model:
    """Builds a model on the `meta` device, where tensors have a shape but no values; a part from outside twofold that
    cannot be built there is built with values."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Initializing zero-element tensors")  # classes that are not known yet
        try:
            with torch.device("meta"):
                return build()
        except TwofoldError as error:
            if "meta" not in str(error):
                raise
        except (RuntimeError, NotImplementedError) as error:
            if "meta" not in str(error):
                raise
        return build()


def _with_frozen(model: Model, train: TrainConfig, notes: Sequence[str]) -> Summary:
    """Summary of a model whose encoder is frozen as its training has it."""
    Freezing(model, train).at(1.0)
    if train.freeze == "gradual":
        notes = [*notes, "train.freeze=gradual: the encoder is frozen at first and unfrozen level by level"]
    summary = model.summary()
    return replace(summary, notes=(*summary.notes, *notes))
