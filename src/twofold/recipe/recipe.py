"""A whole experiment as one typed object: what is read and written, the parts, the data, and how to train."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

from twofold.config import structure, unstructure
from twofold.data.corpora import read_corpus
from twofold.data.files import Row, Sources
from twofold.data.ranking import AUTO
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders import RankingDecoderConfig
from twofold.errors import SeveralErrors, TwofoldError
from twofold.inputs import DataFile
from twofold.metrics import family
from twofold.model.config import DEFAULT_LOSSES, ModelConfig
from twofold.model.saved import CONFIG, read
from twofold.recipe.data import OWN_SHARE, DataConfig
from twofold.recipe.file import fill_environment, find_recipe, override, read_yaml, recipe_folder
from twofold.recipe.hard_negatives import Mining, Teacher
from twofold.recipe.written import as_written, check_targets, expanded, place_as_written
from twofold.storage import sha256
from twofold.training.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class Recipe(ModelConfig):
    """A model, the data, and how to train; it holds the same objects that the model saves."""

    data: DataConfig
    train: TrainConfig = field(default_factory=TrainConfig)
    start: str | None = None
    """A trained model's folder whose encoder to begin with; `encoder: FOLDER` takes its settings as well."""
    start_anyway: bool = False
    """Whether to begin even where some weights of the encoder do not fit, and leave those as they are."""
    mine: Mining | None = None
    """Rankers: look for wrong candidates that are hard to tell from right ones, before the training."""
    teacher: Teacher | None = None
    """Rankers: let another ranker score the right and the given wrong candidates, before the training."""

    @classmethod
    def load(cls, name: str | Path, changes: Sequence[str] = ()) -> Self:
        """A recipe file, or one that comes along by its name, with `key.path=value` changes."""
        path = find_recipe(str(name))
        content = override(read_yaml(path), changes)
        if path.parent == recipe_folder():
            _limit_held_out(content, changes)
        return cls.of(content)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """A recipe from plain values as they stand in YAML; what they leave out the parts they name bring."""
        whole = expanded(fill_environment(dict(content)))
        try:
            recipe = structure(whole, cls)
        except SeveralErrors as error:
            raise SeveralErrors(place_as_written(line, dict(content)) for line in error.lines) from None
        check_targets(dict(content), recipe.tasks)
        recipe.check()
        return recipe

    def plain(self) -> dict[str, Any]:
        """Plain values, every setting spelled out, from which `of` gives the recipe again."""
        return as_written(unstructure(self))

    def model_config(self) -> ModelConfig:
        """What the model is built from."""
        return ModelConfig(**{one.name: getattr(self, one.name) for one in dataclasses.fields(ModelConfig)})

    def check(self) -> None:
        """Refuse parts and settings that do not fit."""
        super().check()
        if not self.ranks:
            for name in ("mine", "teacher", "two_towers", "candidate_encoder"):
                if getattr(self, name):
                    raise TwofoldError(f"recipe.{name} is for decoders that rank candidates")
            if self.losses != DEFAULT_LOSSES:
                raise TwofoldError("recipe.losses is for decoders that rank candidates")
        if not self.losses:
            raise TwofoldError("recipe.losses: names none; leave it out, or name some: [{kind: in_batch}]")
        teaches = any(loss.needs_teacher for loss in self.losses)
        if self.teacher and not teaches:
            raise TwofoldError("recipe.teacher: no loss follows it; add losses: [..., {kind: kl}], or margin_mse")
        if self.train.hard_negatives and not self._compares():
            raise TwofoldError(
                "recipe.train: train.hard_negatives goes by the comparison of a cross-encoder: set decoder.compare"
            )
        if self.tie_embeddings and any(task.output.tokenizer_settings() for task in self.tasks.values()):
            raise TwofoldError("recipe: tie_embeddings needs one tokenizer for all: output.tokenizer=null")
        self._check_metrics()
        try:
            self.input.check_batch_rows(self.train.batch_rows)
            for task in self.tasks.values():
                task.output.check_batch_rows(self.train.batch_rows)
        except ValueError as error:
            raise TwofoldError(f"recipe.train: {error}") from None

    def _check_metrics(self) -> None:
        """Refuse metric families that are none."""
        for name, task in self.tasks.items():
            place = "recipe.output" if len(self.tasks) == 1 else f"recipe.decoders.{name}.output"
            for kind in task.output.metrics:
                try:
                    family(kind)
                except TwofoldError as error:
                    raise TwofoldError(f"{place}.metrics: {error}") from None

    def _compares(self) -> bool:
        """Whether it is a cross-encoder that also reads both sides alone."""
        decoder = next(iter(self.tasks.values())).decoder
        return isinstance(decoder, RankingDecoderConfig) and decoder.joined and decoder.reads_alone()

    def read(self, where: Sources) -> Iterator[Row]:
        """Every row of a file of this recipe's data."""
        if self.data.form == AUTO:
            return self.input.rows(where)
        paths = [where] if isinstance(where, str) else where
        return (row for path in paths for row in read_corpus(self.data.form, path))

    def own_tokenizer(self) -> TextTokenizer | None:
        """The tokenizer that belongs to the weights it starts from, if there are any."""
        theirs = read(Path(self.start), allow_code=False).reads if self.start else None
        if theirs is not None and not self.start_anyway:
            return theirs
        # Weights that need not fit may belong to other tokens than those of a backbone.
        return self.encoder.own_tokenizer() or theirs

    def files(self) -> dict[str, DataFile]:
        """The files whose content decides what is learned, by the settings that name them."""
        files: dict[str, DataFile] = {}
        for setting, where in {"data.train": self.data.train, "data.dev": self.data.dev}.items():
            if where:
                files |= self.input.files(where, setting)
        if self.start:  # its `config.json` holds the checksums of weights and tokenizers
            folder = read(Path(self.start), allow_code=False).path
            files["start"] = DataFile(self.start, partial(sha256, folder / CONFIG))
        return files


def _limit_held_out(content: dict[str, Any], changes: Sequence[str]) -> None:
    """Of a user's own data a recipe that comes along holds out a tenth at most: its number is for a larger file."""
    changed = {change.partition("=")[0] for change in changes}
    data = content.get("data")
    own = any(key.split(".")[:2] == ["data", "train"] for key in changed)
    told = changed & {"data.held_out", "data.held_out_share"}
    if isinstance(data, dict) and data.get("held_out") and own and not told:
        data["held_out_share"] = OWN_SHARE


def as_recipe(recipe: Recipe | Mapping[str, Any] | str | Path, changes: Sequence[str] = ()) -> Recipe:
    """A recipe from whatever names one, with `key.path=value` changes."""
    if isinstance(recipe, str | Path):
        return Recipe.load(recipe, changes)
    content = recipe.plain() if isinstance(recipe, Recipe) else recipe
    return Recipe.of(override(dict(content), changes)) if changes or not isinstance(recipe, Recipe) else recipe
