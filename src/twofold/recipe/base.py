"""What every recipe has: the encoder and how to train, read strictly from YAML, and what `train` asks of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from twofold.config import DecoderPart, EncoderPart, Part, RankingPart, Role, part_config, structure, unstructure
from twofold.data.cache import Cache
from twofold.data.files import Row, fingerprint
from twofold.data.tokenizer import TextTokenizer, TokenizerConfig
from twofold.errors import TwofoldError
from twofold.metrics import metric_names
from twofold.model import Learner
from twofold.model.saved import CONFIG, is_backbone, read
from twofold.recipe.file import fill_environment, find_recipe, override, read_yaml, recipe_folder
from twofold.storage import sha256
from twofold.training.config import TrainConfig
from twofold.training.loop import Rows

ROLES: tuple[Role, Role] = ("encoders", "decoders")
LONGEST = 1_000_000
"""The most tokens of one text."""
OWN_SHARE = 0.1
"""The largest share that a recipe which comes along holds out of a user's own data."""
PREPARED = "prepared.jsonl"
"""The file of a training's folder that holds what was made before it."""


@dataclass(frozen=True)
class Split:
    """The numbers of the rows to learn from, and the rows to judge by."""

    rows: NDArray[np.int64]
    judged: list[Row]


def check_lengths(data: Any, *names: str) -> None:
    """Refuse limits of tokens that no memory could hold."""
    for name in names:
        if getattr(data, name) > LONGEST:
            raise ValueError(f"{name} must be at most {LONGEST:,}, not {getattr(data, name)}")


def check_columns(rows: Iterator[Row], columns: Mapping[str, Any]) -> None:
    """Refuse a file whose first row lacks a column, naming the setting that names it."""
    row = next(rows)
    for setting, named in columns.items():
        for column in [named] if isinstance(named, str) else named:
            if column not in row.values:
                has = ", ".join(map(str, row.values)) or "none"
                plain = "; a text file has nothing else, a jsonl, tsv or csv file has columns" if has == "text" else ""
                raise TwofoldError(
                    f"{row.place}: no '{column}' here; this row has {has}: name your column with {setting}=...{plain}"
                )


def held_out_rows(data: Any, count: int) -> int:
    """How many of so many rows `data.held_out` takes; some must be left to learn from."""
    share = data.held_out_share
    held: int = min(data.held_out, max(1, int(count * share))) if share else data.held_out
    if held and held >= count:
        raise TwofoldError(f"data.held_out={data.held_out}: there are only {count} rows; lower it")
    return held


@dataclass(frozen=True)
class Input:
    """Files that a training depends on."""

    path: str
    sum: Callable[[], str]
    """The checksum of their content."""
    stamp: str = ""
    """Their sizes and times, where it takes long to read them all: the same stamp stands for the same content."""


@dataclass(frozen=True)
class Recipe:
    """Data, the two parts, and how they are trained."""

    data: Any
    encoder: EncoderPart
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    start: str | None = None
    """A trained model's folder whose encoder to begin with; `encoder: FOLDER` takes its settings as well."""
    start_anyway: bool = False
    """Whether to begin even where some weights of the encoder do not fit, and leave those as they are."""

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
        """A recipe from plain values as they stand in YAML, of the kind that its decoder asks for."""
        plain = _with_encoder(fill_environment(dict(content)))
        recipe = structure(_kind(plain).prepared(plain), _kind(plain))
        if not isinstance(recipe, cls):
            raise TwofoldError(f"recipe.decoder: not one for a {cls.__name__}")
        recipe.check()
        return recipe

    @classmethod
    def prepared(cls, content: dict[str, Any]) -> dict[str, Any]:
        """Plain values as the dataclass has them."""
        return content

    def plain(self) -> dict[str, Any]:
        """Plain values, every setting spelled out, from which `of` gives the recipe again."""
        return {key: value for key, value in unstructure(self).items() if value is not None}

    def own_tokenizer(self) -> TextTokenizer | None:
        """The tokenizer that belongs to the weights it starts from, if there are any."""
        theirs = read(Path(self.start), allow_code=False).reads if self.start else None
        if theirs is not None and not self.start_anyway:
            return theirs
        # Weights that need not fit may belong to other tokens than those of a backbone.
        own: TextTokenizer | None = self.encoder.own_tokenizer()
        return own or theirs

    # --- what `train` asks, in this order ---

    def check(self) -> None:
        """Refuse parts that do not fit."""
        raise NotImplementedError

    def inputs(self) -> dict[str, Input]:
        """The files whose content decides what is learned, by the settings that name them."""
        files = _named("data.train", self.data.train) | _named("data.dev", self.data.dev)
        return {name: Input(path, partial(fingerprint, path)) for name, path in files.items()} | self.start_inputs()

    def start_inputs(self) -> dict[str, Input]:
        """The saved model whose weights and tokenizer it starts from; its `config.json` holds their checksums."""
        if not self.start:
            return {}
        return {"start": Input(self.start, partial(sha256, read(Path(self.start), allow_code=False).path / CONFIG))}

    def prepare(self, folder: Path) -> Self:
        """The recipe with what must be made before the training, in the training's folder."""
        return self

    def model(self, folder: Path) -> Learner:
        """A new model, its tokenizers trained or loaded; they are kept in `folder`."""
        raise NotImplementedError

    def cache(self, model: Any) -> Cache:
        """The training file as numbers."""
        raise NotImplementedError

    def split(self, cache: Cache, model: Any) -> Split:
        """What to learn from and what to judge by."""
        raise NotImplementedError

    def rows(self, cache: Cache, rows: NDArray[np.int64], model: Any) -> Rows:
        """The rows as batches."""
        raise NotImplementedError

    def metrics(self, model: Any, rows: list[Row]) -> list[str]:
        """The metrics by which these rows will judge the model."""
        return metric_names(model)

    def validator(self, rows: list[Row]) -> Callable[[Any], dict[str, float]] | None:
        """How a model is judged while it trains."""
        raise NotImplementedError


def _limit_held_out(content: dict[str, Any], changes: Sequence[str]) -> None:
    """Of a user's own data a recipe that comes along holds out a tenth at most: its number is for a larger file."""
    changed = {change.partition("=")[0] for change in changes}
    data = content.get("data")
    own = any(key.split(".")[:2] == ["data", "train"] for key in changed)
    told = changed & {"data.held_out", "data.held_out_share"}
    if isinstance(data, dict) and data.get("held_out") and own and not told:
        data["held_out_share"] = OWN_SHARE


def _named(setting: str, where: Any) -> dict[str, str]:
    """Each file that a setting names, by its place there."""
    if isinstance(where, Mapping):
        return {f"{setting}.{column}": path for column, path in where.items()}
    if isinstance(where, tuple):
        return {f"{setting}[{number}]": path for number, path in enumerate(where)}
    return {setting: where} if where else {}


def _with_encoder(content: dict[str, Any]) -> dict[str, Any]:
    """A folder in the place of the encoder stands for its settings and the weights to start from."""
    folder = content.get("encoder")
    if not isinstance(folder, str) or not Path(folder).is_dir():
        return content
    if content.get("start") not in (None, folder):
        raise TwofoldError(f"recipe.start: {content['start']}, but the encoder is {folder}; give one of the two")
    if is_backbone(Path(folder)):
        return {**content, "encoder": {"kind": "pretrained", "name": folder}}
    settings = unstructure(read(Path(folder), allow_code=False).config.encoder)
    several = content.get("decoders")
    written = [content.get("decoder"), *(several.values() if isinstance(several, dict) else ())]
    if settings.get("prefix") and not any(_writes_text(one) for one in written):
        settings["prefix"] = False  # there is no text that could be begun
    return {**content, "encoder": settings, "start": folder}


def _writes_text(content: Any) -> bool:
    part = _part("decoders", content)
    return isinstance(part, type) and issubclass(part, DecoderPart) and part.writes == "text"


def _kind(content: Mapping[str, Any]) -> type[Recipe]:
    """What is read and what is written make the kind of a recipe."""
    from twofold.recipe.images import ImageRecipe
    from twofold.recipe.ranking import RankingRecipe
    from twofold.recipe.text import TextRecipe

    encoder, decoder = (_part(role, content.get(role[:-1])) for role in ROLES)
    if isinstance(decoder, type) and issubclass(decoder, RankingPart):
        return RankingRecipe
    if isinstance(encoder, type) and issubclass(encoder, EncoderPart) and encoder.reads == "image":
        return ImageRecipe
    return TextRecipe


def _part(role: Role, content: Any) -> type[Part] | None:
    """The settings class of a part that a recipe names; what is wrong with it is said when the recipe is read."""
    name = content.get("kind") if isinstance(content, dict) else None
    try:
        return part_config(role, name) if isinstance(name, str) else None
    except TwofoldError:
        return None
