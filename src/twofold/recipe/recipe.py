"""A whole experiment as one typed object: what is read and written, the parts, the data, and how to train."""

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
from twofold.model.saved import CONFIG, read
from twofold.recipe.file import fill_environment, find_recipe, override, read_yaml, recipe_folder
from twofold.recipe.written import as_written, check_targets, expanded, place_as_written
from twofold.storage import sha256
from twofold.training.config import TrainConfig

OWN_SHARE = 0.1
"""Largest share of a user's own data that a packaged recipe holds out."""


@dataclass(frozen=True)
class DataConfig:
    """What to learn from."""

    train: str | dict[str, str] | tuple[str, ...]
    """A jsonl, tsv, csv, conll, conllu or text file, each also .gz, a `datasets` folder, or columns to plain text
    files; of images and sounds a table that names them, a folder, or a folder inside a zip archive; or several files,
    which are read as one."""
    dev: str | dict[str, str] | tuple[str, ...] | None = None
    """Rows to judge by while training, of the same form."""
    held_out: int = 0
    """Instead of `dev`: how many training rows are drawn by seed, not learned from, and judged by."""
    held_out_share: float | None = None
    """The largest share of the rows that `held_out` may take, if there is such a limit; at least one row is."""
    rows: int | None = None
    """Learns from this many rows drawn by seed instead of all."""
    skip: int = 0
    """Skips the first N rows drawn, such as those that another model learned from, to whose score this one adds."""
    form: str = AUTO
    """auto, or a corpus in the form it was published in: ubuntu_v2 (csv), convai2 (ParlAI's text)."""

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
    """Wrong candidates that a model takes for right ones."""

    model: str
    """A ranker's folder, a hub id, or `default`."""
    count: int = 4
    """How many for each context."""
    depth: int = 50
    """They are drawn by seed from the best so many."""
    skip: int = 0
    """So many of the very best are left out: they may be right."""
    similar: float = 0.95
    """A text whose cosine with the right response is above this is left out as a near-duplicate."""
    corpus: str | None = None
    """A file of texts to look among; the responses of the training file unless given."""

    def __post_init__(self) -> None:
        if self.count < 1 or self.depth < self.count or self.skip < 0 or not 0 < self.similar <= 1:
            raise ValueError("count must be at least 1, depth at least count, skip at least 0, similar in (0, 1]")


@dataclass(frozen=True)
class Teacher:
    """A ranker whose scores another follows."""

    model: str
    """A ranker's folder; most often a cross-encoder's."""
    negatives: int = 4
    """Where a row has no wrong candidates of its own: how many responses of others it gets, drawn by seed."""

    def __post_init__(self) -> None:
        if self.negatives < 1:
            raise ValueError(f"negatives must be at least 1, not {self.negatives}")


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
    def load(cls, name: str | Path, changes: Sequence[str] = (), needs_data: bool = True) -> Self:
        """Loads a recipe file, or a packaged recipe by its name, with `key.path=value` changes.

        needs_data: an environment variable in it that is not set is an error
        """
        path = find_recipe(str(name))
        content = override(read_yaml(path), changes)
        if path.parent == recipe_folder():
            _suit(content, {change.partition("=")[0] for change in changes})
        return cls.of(content, needs_data)

    @classmethod
    def of(cls, content: Mapping[str, Any], needs_data: bool = True) -> Self:
        """A recipe from plain values as they stand in YAML; what they leave out the parts they name bring."""
        content = dict(content)
        try:
            recipe = structure(expanded(fill_environment(content, required=needs_data)), cls)
        except SeveralErrors as error:
            raise SeveralErrors(place_as_written(line, content) for line in error.lines) from None
        check_targets(content, recipe.tasks)
        recipe.check()
        return recipe

    def plain(self) -> dict[str, Any]:
        """Plain values, every setting spelled out, from which `of` gives the recipe again."""
        return as_written(unstructure(self))

    def model_config(self) -> ModelConfig:
        """What the model is built from."""
        return ModelConfig(**{setting.name: getattr(self, setting.name) for setting in fields(ModelConfig)})

    def check(self) -> None:
        """Refuse parts and settings that do not fit."""
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
            raise TwofoldError("recipe.teacher: no loss follows it; add losses: [..., {kind: kl}], or margin_mse")
        decoder = next(iter(self.tasks.values())).decoder
        compares = isinstance(decoder, RankingDecoderConfig) and decoder.joined and decoder.reads_alone()
        if self.train.hard_negatives and not compares:
            raise TwofoldError(
                "recipe.train: train.hard_negatives goes by the comparison of a cross-encoder: set decoder.compare"
            )
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

    def rows(self) -> Iterator[Row]:
        """Every row of the training data."""
        return self.read(self.data.train)

    def read(self, where: Sources) -> Iterator[Row]:
        """Every row of a file of this recipe's data."""
        if self.data.form == AUTO:
            rows = self.input.rows(where)
            for task in self.tasks.values():
                rows = task.output.name_files(rows, where)
            return rows
        paths = [where] if isinstance(where, str) else where
        return (row for path in paths for row in read_corpus(self.data.form, path))

    def own_tokenizer(self) -> TextTokenizer | None:
        """The tokenizer that belongs to the weights it starts from, if there are any."""
        theirs = read(Path(self.start), allow_code=False).reads if self.start else None
        if theirs is not None and not self.start_anyway:
            return theirs
        # Weights that need not fit may belong to other tokens than those of a backbone.
        reads = (
            self.encoder if self.input.tokenizer_settings() or not self.candidate_encoder else self.candidate_encoder
        )
        return reads.own_tokenizer() or theirs

    def files(self) -> dict[str, DataFile]:
        """The files whose content decides what is learned, by the settings that name them."""
        files: dict[str, DataFile] = {}
        for setting, where in {"data.train": self.data.train, "data.dev": self.data.dev}.items():
            if where:
                files |= self.input.files(where, setting)
                for task in self.tasks.values():
                    files |= task.output.files(where, setting)
        if self.start:  # its `config.json` holds the checksums of weights and tokenizers
            folder = read(Path(self.start), allow_code=False).path
            files["start"] = DataFile(self.start, partial(sha256, folder / CONFIG))
        return files


def _suit(content: dict[str, Any], changed: AbstractSet[str]) -> None:
    """Suits a packaged recipe to the changed settings: at most a tenth of a user's own data is held out, and `epochs`
    from the command line holds without the recipe's floor in steps."""
    data, train = content.get("data"), content.get("train")
    own = any(key.split(".")[:2] == ["data", "train"] for key in changed)
    told = changed & {"data.held_out", "data.held_out_share"}
    if isinstance(data, dict) and data.get("held_out") and own and not told:
        data["held_out_share"] = OWN_SHARE
    if isinstance(train, dict) and "train.epochs" in changed and "train.min_steps" not in changed:
        train.pop("min_steps", None)


def as_recipe(
    recipe: Recipe | Mapping[str, Any] | str | Path, changes: Sequence[str] = (), needs_data: bool = True
) -> Recipe:
    """Makes a recipe from a file, a name, plain values or a recipe, with `key.path=value` changes."""
    if isinstance(recipe, str | Path):
        return Recipe.load(recipe, changes, needs_data)
    if isinstance(recipe, Recipe):
        return as_recipe(recipe.plain(), changes, needs_data) if changes else recipe
    return Recipe.of(override(dict(recipe), changes), needs_data)
