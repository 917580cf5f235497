"""Recipe of a whole experiment as one typed object: input, parts, outputs, data and training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, Self

from twofold.config import structure, unstructure
from twofold.data.corpora import corpus_names, read_corpus
from twofold.data.files import DataFile, Row, Sources
from twofold.data.ranking import AUTO
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders import RankingDecoderConfig
from twofold.errors import SeveralErrors, TwofoldError, did_you_mean
from twofold.metrics import family
from twofold.model.config import DEFAULT_LOSSES, ModelConfig
from twofold.model.describing import config_parts
from twofold.model.load import read_start
from twofold.recipe.file import fill_environment, find_recipe, override, read_yaml, recipe_folder
from twofold.recipe.written import as_written, check_targets, expanded, place_as_written
from twofold.results.shown import changes, cut, screen
from twofold.storage import sha256
from twofold.training.config import TrainConfig

SHOWN = 160
"""Maximum number of characters of a section in a repr."""
OWN_SHARE = 0.1
"""Largest share of a user's own data that a packaged recipe holds out."""


@dataclass(frozen=True)
class DataConfig:
    """Settings of the training and validation data."""

    train: str | dict[str, str] | tuple[str, ...]
    """Training data: a jsonl, tsv, csv, conll, conllu or text file (each also .gz), a `datasets` folder, a mapping of
    columns to plain text files, or a list of files, read as one. For images and audio: a table that names the files,
    a folder, or a folder inside a zip archive."""
    dev: str | dict[str, str] | tuple[str, ...] | None = None
    """Validation data, in the same forms."""
    held_out: int = 0
    """Number of rows that are drawn by seed from the training data for the validation split, instead of `dev`."""
    held_out_share: float | None = None
    """Maximum fraction of the rows that `held_out` may take, at least one row; null sets no limit."""
    rows: int | None = None
    """Number of training rows, drawn by seed; null trains on all rows."""
    skip: int = 0
    """Skips the first N sampled rows, such as those that the ranker in `decoder.compare` was trained on."""
    form: str = AUTO
    """File format: `auto` follows the suffix; `ubuntu_v2` (csv) and `convai2` (ParlAI text) read corpora as they were
    published."""

    def __post_init__(self) -> None:
        if not self.train:
            raise ValueError("train names no file")
        if self.dev and self.held_out:
            raise ValueError("give dev or held_out, not both; data.held_out=0 or data.dev=null leaves one out")
        if self.held_out_share is not None and not 0 < self.held_out_share <= 1:
            raise ValueError("held_out_share must be above 0 and at most 1")
        if self.held_out < 0 or self.skip < 0 or (self.rows is not None and self.rows < 2):
            raise ValueError("held_out and skip must be at least 0, rows at least 2")
        if self.form not in (AUTO, *corpus_names()):
            raise ValueError(f"form: {self.form!r} is not known; {did_you_mean(self.form, [AUTO, *corpus_names()])}")
        if self.form != AUTO and isinstance(self.train, dict):
            raise ValueError(f"form: {self.form}: name files, not columns")


@dataclass(frozen=True)
class Mining:
    """Settings of hard-negative mining: negatives are candidates that a ranker scores high."""

    model: str
    """Ranker that mines: a model folder, a hub id, or `default`."""
    count: int = 4
    """Number of hard negatives for each context."""
    depth: int = 50
    """Number of top-ranked candidates from which the negatives are drawn by seed."""
    skip: int = 0
    """Number of top-ranked candidates that are skipped, because they may be right (false negatives)."""
    similar: float = 0.95
    """Maximum cosine with the right response; more similar texts are skipped as near-duplicates."""
    corpus: str | None = None
    """File of texts to search for negatives; null searches the responses of the training data."""

    def __post_init__(self) -> None:
        if self.count < 1 or self.depth < self.count or self.skip < 0 or not 0 < self.similar <= 1:
            raise ValueError("count must be at least 1, depth at least count, skip at least 0, similar in (0, 1]")


@dataclass(frozen=True)
class Teacher:
    """Settings of distillation: a teacher scores the right and the given wrong candidates."""

    model: str
    """Folder of the teacher, usually a cross-encoder."""
    negatives: int = 4
    """Number of negatives, drawn by seed from the responses of other rows, for rows without negatives of their own."""

    def __post_init__(self) -> None:
        if self.negatives < 1:
            raise ValueError(f"negatives must be at least 1, not {self.negatives}")


@dataclass(frozen=True, kw_only=True)
class Recipe(ModelConfig):
    """A whole experiment: a model, its data and its training."""

    data: DataConfig
    """Training and validation data."""
    train: TrainConfig = field(default_factory=TrainConfig)
    """Training: length, batches, optimizer, evaluation, checkpoints."""
    start: str | None = None
    """Folder of a trained model, or named model, whose encoder weights are loaded before training; `encoder: FOLDER`
    also takes the settings of that encoder."""
    start_anyway: bool = False
    """Starts even if some encoder weights do not fit; those keep their initial values."""
    mine: Mining | None = None
    """Rankers: mines hard negatives before training."""
    teacher: Teacher | None = None
    """Rankers: scores the candidates with a teacher before training, for distillation."""

    @classmethod
    def load(
        cls,
        name: str | Path,
        changes: Sequence[str] = (),
        data: Mapping[str, Any] | None = None,
        needs_data: bool = True,
    ) -> Self:
        """Reads a recipe file, or a packaged recipe by its name.

        changes: changed settings, each as `key.path=value`
        data: settings of `data` that take the place of those in the file
        needs_data: an environment variable in it that is not set is an error
        """
        path = find_recipe(str(name))
        content = override(_with_data(read_yaml(path), data), changes)
        if path.parent == recipe_folder():
            _suit(content, {*(change.partition("=")[0] for change in changes), *(f"data.{key}" for key in data or ())})
        return cls.of(content, needs_data)

    @classmethod
    def of(cls, content: Mapping[str, Any], needs_data: bool = True) -> Self:
        """Returns a recipe from plain values as they stand in YAML; the named parts bring the other defaults."""
        content = dict(content)
        if not content.get("data"):
            raise TwofoldError("recipe: 'data' is missing; write data: {train: FILE}, or give data= in Python")
        try:
            recipe = structure(expanded(fill_environment(content, required=needs_data)), cls)
        except SeveralErrors as error:
            raise SeveralErrors(place_as_written(line, content) for line in error.lines) from None
        check_targets(content, recipe.tasks)
        recipe.check()
        return recipe

    def plain(self) -> dict[str, Any]:
        """Returns plain values, every setting spelled out, from which `of` makes the recipe again."""
        return as_written(unstructure(self))

    def model_config(self) -> ModelConfig:
        """Settings that the model is built from."""
        return ModelConfig(**{setting.name: getattr(self, setting.name) for setting in fields(ModelConfig)})

    def check(self) -> None:
        """Refuses parts and settings that do not fit."""
        super().check()
        others = {"mine": None, "teacher": None, "two_towers": False, "candidate_encoder": None}
        for name, default in {**others, "losses": DEFAULT_LOSSES}.items():
            if not self.ranks and getattr(self, name) != default:
                raise TwofoldError(f"recipe.{name} is for decoders that rank candidates")
        output = next(iter(self.tasks.values())).output
        if (self.mine or self.teacher) and output.reads_files(self.input):
            raise TwofoldError("recipe: mine and teacher are for rankers of which both sides are texts")
        if not self.losses:
            raise TwofoldError("recipe.losses: names none; leave it out, or name some: [{kind: in_batch}]")
        if self.teacher and not any(loss.needs_teacher for loss in self.losses):
            raise TwofoldError("recipe.teacher: no loss uses its scores; add losses: [..., {kind: kl}], or margin_mse")
        decoder = next(iter(self.tasks.values())).decoder
        compares = isinstance(decoder, RankingDecoderConfig) and decoder.joined and decoder.reads_alone()
        if self.train.hard_negatives and not compares:
            raise TwofoldError("recipe.train: train.hard_negatives needs the scores of decoder.compare: set it")
        if self.tie_embeddings and any(task.output.tokenizer_settings() for task in self.tasks.values()):
            raise TwofoldError("recipe: tie_embeddings needs one tokenizer for all: output.tokenizer=null")
        for name, task in self.tasks.items():
            place = "recipe.output" if len(self.tasks) == 1 else f"recipe.decoders.{name}.output"
            try:
                for kind in task.output.metrics:
                    family(kind)
            except TwofoldError as error:
                raise TwofoldError(f"{place}.metrics: {error}") from None
        try:
            self.input.check_batch_rows(self.train.batch_rows)
            for task in self.tasks.values():
                task.output.check_batch_rows(self.train.batch_rows)
        except ValueError as error:
            raise TwofoldError(f"recipe.train: {error}") from None

    def __repr__(self) -> str:
        parts = [("data", changes(self.data)), *config_parts(self), ("train", changes(self.train))]
        return screen("Recipe", [(name, cut(text, SHOWN)) for name, text in parts])

    def rows(self) -> Iterator[Row]:
        """Reads every row of the training data."""
        return self.read(self.data.train)

    def read(self, where: Sources) -> Iterator[Row]:
        """Reads every row of a file of this recipe's data."""
        if self.data.form == AUTO:
            rows = self.input.rows(where)
            for task in self.tasks.values():
                rows = task.output.name_files(rows, where)
            return rows
        paths = [where] if isinstance(where, str) else where
        return (row for path in paths for row in read_corpus(self.data.form, path))

    def own_tokenizer(self) -> TextTokenizer | None:
        """Returns the tokenizer that belongs to the weights the training starts from, if there are any."""
        theirs = read_start(self.start).tokenizer() if self.start else None
        if theirs is not None and not self.start_anyway:
            return theirs
        # Weights that need not fit may belong to other tokens than those of a backbone.
        reads = (
            self.encoder if self.input.tokenizer_settings() or not self.candidate_encoder else self.candidate_encoder
        )
        return reads.own_tokenizer() or theirs

    def files(self) -> dict[str, DataFile]:
        """Files whose content decides what is learned, by the settings that name them."""
        files: dict[str, DataFile] = {}
        for setting, where in {"data.train": self.data.train, "data.dev": self.data.dev}.items():
            if where:
                files |= self.input.files(where, setting)
                for task in self.tasks.values():
                    files |= task.output.files(where, setting)
        if self.start:
            files["start"] = DataFile(self.start, partial(sha256, read_start(self.start).record))
        return files


def _suit(content: dict[str, Any], changed: AbstractSet[str]) -> None:
    """Suits a packaged recipe to the changed settings: at most a tenth of a user's own data is held out, and `epochs`
    from the command line holds without the recipe's floor in steps."""
    data, train = content.get("data"), content.get("train")
    other_data = any(key.split(".")[:2] == ["data", "train"] for key in changed)
    told = changed & {"data.held_out", "data.held_out_share"}
    if isinstance(data, dict) and data.get("held_out") and other_data and not told:
        data["held_out_share"] = OWN_SHARE
    if isinstance(train, dict) and "train.epochs" in changed and "train.min_steps" not in changed:
        train.pop("min_steps", None)


def as_recipe(
    recipe: Recipe | Mapping[str, Any] | str | Path,
    changes: Sequence[str] = (),
    data: Mapping[str, Any] | None = None,
    needs_data: bool = True,
) -> Recipe:
    """Returns a recipe from a file, a name, plain values or a recipe; the rest as in `Recipe.load`."""
    if isinstance(recipe, str | Path):
        return Recipe.load(recipe, changes, data, needs_data)
    if isinstance(recipe, Recipe):
        return as_recipe(recipe.plain(), changes, data, needs_data) if changes or data else recipe
    return Recipe.of(override(_with_data(dict(recipe), data), changes), needs_data)


def _with_data(content: dict[str, Any], data: Mapping[str, Any] | None) -> dict[str, Any]:
    """Puts settings of `data` in the place of those in the content of a recipe."""
    before = content.get("data") or {}
    return {**content, "data": {**before, **data}} if data and isinstance(before, dict) else content
