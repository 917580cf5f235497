"""A whole experiment as one typed object, from its YAML to the trained model."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from twofold import storage
from twofold.config import DecoderPart, EncoderPart, structure, unstructure
from twofold.data.batches import hold_out
from twofold.data.cache import Cache
from twofold.data.fields import TextField, TooLong
from twofold.data.files import Row, Where, read_rows
from twofold.data.tokenizer import TextTokenizer, TokenizerConfig
from twofold.data.training import TrainingRows
from twofold.errors import TwofoldError, did_you_mean
from twofold.evaluation import evaluate, metric_names
from twofold.generate.options import GenerateOptions
from twofold.model import DecoderSlot, Model, ModelConfig
from twofold.model.config import MAIN, SOURCE
from twofold.progress import bar
from twofold.recipe_file import fill_environment, find_recipe, override, read_yaml, to_yaml
from twofold.training import processes
from twofold.training.config import TrainConfig
from twofold.training.loop import Outcome, Trainer

MAY_CHANGE = {f"train.{name}" for name in ("epochs", "max_steps", "patience", "save_every", "save_minutes")}
"""What may differ when a training is resumed."""


@dataclass(frozen=True)
class DataConfig:
    """What to learn from."""

    train: str | dict[str, str]
    """A jsonl, tsv, csv or text file, each also .gz, a `datasets` folder, or columns to plain text files."""
    source: str = "source"
    """The column or key to read."""
    target: str = "target"
    """The column or key to write."""
    dev: str | dict[str, str] | None = None
    """Rows to judge by while training."""
    held_out: int = 0
    """Instead of `dev`: how many training rows are drawn by seed, not learned from, and judged by."""
    max_source: int = 128
    """The most tokens of a source."""
    max_target: int = 128
    """The most tokens of a target."""
    too_long: TooLong = "cut"
    """What happens to longer ones: cut loses their tail and counts them in the log, refuse ends with the line."""

    def __post_init__(self) -> None:
        if self.dev and self.held_out:
            raise ValueError("give dev or held_out, not both")
        if self.held_out < 0 or self.max_source < 1 or self.max_target < 1:
            raise ValueError("held_out must be at least 0, max_source and max_target at least 1")


@dataclass(frozen=True)
class Recipe:
    """Data, the two parts, and how they are trained."""

    data: DataConfig
    encoder: EncoderPart
    decoder: DecoderPart | None = None
    """The part that writes `data.target`."""
    decoders: dict[str, DecoderSlot] | None = None
    """Instead: several parts over one encoder, by name, each with its `target` column and `weight`."""
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    tie_embeddings: bool = False
    """Whether encoder and decoders share one table of token vectors; needs a shared vocabulary."""
    train: TrainConfig = field(default_factory=TrainConfig)
    generate: GenerateOptions = field(default_factory=GenerateOptions)
    """How the trained model writes unless told otherwise; evaluation while training is greedy."""

    def __post_init__(self) -> None:
        if (self.decoder is None) == (not self.decoders):
            raise ValueError("give either `decoder` or `decoders`")
        if self.tie_embeddings and not self.tokenizer.shared:
            raise ValueError("tie_embeddings needs tokenizer.shared=true")

    @classmethod
    def load(cls, name: str | Path, changes: Sequence[str] = ()) -> Recipe:
        """A recipe file, or one that comes along by its name, with `key.path=value` changes."""
        return cls.of(override(read_yaml(find_recipe(str(name))), changes))

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Recipe:
        """A recipe from plain values as they stand in YAML."""
        recipe = structure(_with_slots(fill_environment(dict(content))), cls)
        recipe.model_config().check()
        return recipe

    def plain(self) -> dict[str, Any]:
        """Plain values, every setting spelled out, from which `of` gives the recipe again."""
        content: dict[str, Any] = unstructure(self)
        for slot in (content["decoders"] or {}).values():
            slot.update(slot.pop("part"))
        return {key: value for key, value in content.items() if value is not None}

    def model_config(self) -> ModelConfig:
        data = self.data
        slots = self.decoders or {MAIN: DecoderSlot(self.decoder or DecoderPart(), data.target)}
        return ModelConfig(
            encoder=self.encoder,
            decoders=slots,
            source=data.source,
            max_source=data.max_source,
            max_target=data.max_target,
            too_long=data.too_long,
            tie_embeddings=self.tie_embeddings,
            generate=self.generate,
        )


def train(recipe: Recipe | str | Path, out: str | Path, changes: Sequence[str] = (), resume: bool = False) -> Outcome:
    """Train what the recipe says into the folder `out`, or go on with what was begun there."""
    if not isinstance(recipe, Recipe):
        recipe = Recipe.load(recipe, changes)
    elif changes:
        recipe = Recipe.of(override(recipe.plain(), changes))
    folder = Path(out)
    with processes.joined():
        with processes.first_goes_ahead():
            if processes.rank() == 0:
                _claim(folder, recipe, resume)
            tokenizers = _tokenizers(recipe, folder / "tokenizers")
            # Built before the data is read in full: what does not fit is said at once.
            torch.manual_seed(recipe.train.seed)
            model = Model(recipe.model_config(), tokenizers)
            _check_best(recipe, model)
            cache = _cache(recipe, model)
        rows, validation = _split(recipe, cache, model)
        data = TrainingRows(
            cache,
            rows,
            model.source,
            model.targets,
            recipe.train.batch_tokens,
            recipe.train.batch_rows,
            recipe.train.seed,
        )
        trainer = Trainer(model, data, _validator(recipe, validation), recipe.train, folder)
        if resume:
            trainer.resume()
        return trainer.run({"rows": len(rows), "validation_rows": len(validation), "cut": dict(cache.cut)})


def _with_slots(content: dict[str, Any]) -> dict[str, Any]:
    """Put the settings of each of several decoders apart from its target and weight."""
    slots = content.get("decoders")
    if not isinstance(slots, dict):
        return content
    apart = {}
    for name, slot in slots.items():
        if not isinstance(slot, dict):
            raise TwofoldError(f"recipe.decoders.{name}: needs `kind` and `target`")
        own = {key: slot[key] for key in ("target", "weight") if key in slot}
        apart[name] = {"part": {key: value for key, value in slot.items() if key not in own}, **own}
    return {**content, "decoders": apart}


def _claim(folder: Path, recipe: Recipe, resume: bool) -> None:
    """Make the folder this recipe's own; never take one that holds another training."""
    path = folder / "recipe.yaml"
    begun = any((folder / name).exists() for name in ("log.jsonl", "model", "checkpoints"))
    if begun and not (resume and path.exists()):
        raise TwofoldError(f"{folder}: holds a training already; go on with --resume or choose another folder")
    if not begun:
        # A start that failed, perhaps over the data, may have left tokenizers of another recipe.
        shutil.rmtree(folder / "tokenizers", ignore_errors=True)
    else:
        old, new = _flat(read_yaml(path)), _flat(recipe.plain())
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key) and key not in MAY_CHANGE:
                raise TwofoldError(
                    f"{folder}: was begun with {key}={old.get(key)}, not {new.get(key)}; "
                    "resume with the same recipe or choose another folder"
                )
    storage.recover(folder / "model")
    storage.write_bytes(path, to_yaml(recipe.plain()).encode())


def _flat(content: Any, place: str = "") -> dict[str, Any]:
    if not isinstance(content, dict):
        return {place: content}
    return {
        key: value
        for name, inner in content.items()
        for key, value in _flat(inner, f"{place}.{name}".lstrip(".")).items()
    }


def _tokenizers(recipe: Recipe, folder: Path) -> dict[str, TextTokenizer]:
    """One for the source and one for each decoder, trained on the recipe's own data unless they are there already."""
    config = recipe.model_config()
    columns = {SOURCE: config.source, **{name: slot.target for name, slot in config.decoders.items()}}
    groups = [list(dict.fromkeys(columns.values()))] if recipe.tokenizer.shared else [[one] for one in columns.values()]
    found: dict[str, TextTokenizer] = {}
    for group in groups:
        if group[0] in found:
            continue
        path = folder / f"{groups.index(group)}.json"
        if path.exists():
            tokenizer = TextTokenizer.load(path)
        else:
            with bar("reading for the tokenizer", None) as report:
                tokenizer = TextTokenizer.train(_texts(recipe.data.train, group, report), recipe.tokenizer)
            tokenizer.save(path)
        found.update(dict.fromkeys(group, tokenizer))
    return {name: found[column] for name, column in columns.items()}


def _texts(where: Where, columns: Sequence[str], report: Any) -> Iterator[str]:
    for number, row in enumerate(read_rows(where), start=1):
        for column in columns:
            text = row.text(column)
            yield from [text] if isinstance(text, str) else text
        report(number)


def _cache(recipe: Recipe, model: Model) -> Cache:
    fields: dict[str, TextField] = {SOURCE: model.source, **model.targets}
    with bar("tokenising", None) as report:
        cache = Cache.of(recipe.data.train, fields, report)
    for name, cut in cache.cut.items():
        if cut:
            limit = "max_source" if name == SOURCE else "max_target"
            warnings.warn(
                f"{cut:,} of {cache.rows:,} rows: '{fields[name].column}' is longer than data.{limit} and was cut",
                stacklevel=2,
            )
    return cache


def _split(recipe: Recipe, cache: Cache, model: Model) -> tuple[NDArray[np.int64], list[Row]]:
    """The numbers of the rows to learn from, and the rows to judge by."""
    data = recipe.data
    if data.dev:
        dev = list(read_rows(data.dev))
        for one in (model.source, *model.targets.values()):
            one.encode(dev)  # what is wrong with it is said now, not after the first epoch
        return np.arange(cache.rows), dev
    if not data.held_out:
        return np.arange(cache.rows), []
    if data.held_out >= cache.rows:
        raise TwofoldError(f"data.held_out={data.held_out}: the training file has only {cache.rows} rows")
    rows, held = hold_out(cache.rows, data.held_out, recipe.train.seed)
    wanted = set(held.tolist())
    return rows, [row for number, row in enumerate(read_rows(data.train)) if number in wanted]


def _check_best(recipe: Recipe, model: Model) -> None:
    best, known = recipe.train.best, metric_names(model)
    if best not in known:
        raise TwofoldError(f"train.best: no metric '{best}'; {did_you_mean(best, known)}")
    if best != "loss" and not (recipe.data.dev or recipe.data.held_out):
        raise TwofoldError(f"train.best={best} needs rows to judge by: give data.dev or data.held_out")


def _validator(recipe: Recipe, rows: list[Row]) -> Any:
    """Judges by the loss alone unless the recipe picks the best model by what it writes."""
    if not rows:
        return None
    families = ["likelihood"] if recipe.train.best in ("loss", "perplexity") else None
    options = replace(recipe.generate, beam=1, n_best=1, sample=False)
    return lambda model: evaluate(model, rows, options, families=families).metrics
