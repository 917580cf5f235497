"""From a recipe to what a training needs: the model, the cache of its rows, and which rows are learned from."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from twofold.data.cache import Cache
from twofold.data.files import Row, Sources, read_rows
from twofold.data.ranking import AUTO, warn_of_unread_rows
from twofold.data.ranking_columns import UNREAD
from twofold.data.relevance import kind_of_row, warn_of_unread
from twofold.data.tokenizer import Frame
from twofold.errors import TwofoldError, listed
from twofold.inputs import INPUT, BatchSizes
from twofold.inputs.image import NAME
from twofold.model import Model, Ranker
from twofold.model.limits import within_positions
from twofold.model.rows import TrainingRows
from twofold.model.sentence_folder import say_left_out
from twofold.progress import bar
from twofold.recipe.data import Split, draw_rows
from twofold.recipe.recipe import Recipe
from twofold.recipe.tokenizers import make_tokenizers


def build_model(recipe: Recipe, folder: Path) -> Model:
    """A new model with the weights it starts from, its tokenizers trained or loaded; they are kept in `folder`."""
    _check_columns(recipe)
    config = recipe.model_config()
    tokenizers = make_tokenizers(config, recipe.own_tokenizer(), lambda: recipe.read(recipe.data.train), folder)
    tasks = {
        name: replace(task, output=task.output.learned(lambda: recipe.read(recipe.data.train)))
        for name, task in config.tasks.items()
    }
    other = config.candidate_encoder.settled() if config.candidate_encoder else None
    config = replace(config, encoder=config.encoder.settled(), candidate_encoder=other, tasks=tasks)
    frame = tokenizers[INPUT].frame if INPUT in tokenizers else Frame()
    model = (Ranker if config.ranks else Model)(within_positions(config, frame), tokenizers)
    if not recipe.start or recipe.start_anyway:  # otherwise every weight of the encoder comes from there
        say_left_out(recipe.encoder, _prompts(recipe))
        model.start_from(recipe.start_anyway)
    if recipe.start:
        model.take_weights(recipe.start, recipe.start_anyway)
    return model


def _prompts(recipe: Recipe) -> tuple[str, ...]:
    """What stands before contexts and candidates, where it ranks."""
    outputs = [task.output for task in recipe.tasks.values()]
    candidates = [prompt for output in outputs for prompt in output.prompts()]
    return (*recipe.input.prompts(), *candidates) if recipe.ranks else ()


def _check_columns(recipe: Recipe) -> None:
    """Refuse a file whose first row lacks a column, naming the setting that names it."""
    where = recipe.data.train
    if not recipe.input.check_columns(where):
        return
    row = next(read_rows(where) if recipe.data.form == AUTO else recipe.read(where))
    several = len(recipe.tasks) > 1
    settings = {"source": recipe.input.columns()}
    for name, task in recipe.tasks.items():
        place = f"decoders.{name}." if several else ""
        settings |= {f"{place}{setting}": columns for setting, columns in task.output.required(row).items()}
    for setting, columns in settings.items():
        for column in columns:
            if column not in row.values:
                has = ", ".join(map(str, row.values)) or "none"
                plain = "; a text file has nothing else, a jsonl, tsv or csv file has columns" if has == "text" else ""
                raise TwofoldError(
                    f"{row.place}: no '{column}' here; this row has {has}: name your column with {setting}=...{plain}"
                )


def cache_rows(recipe: Recipe, model: Model) -> Cache:
    """The training file as numbers; what was cut or left out is said."""
    columns, where = model.columns(), recipe.data.train
    outputs = [task.output for task in recipe.tasks.values()]

    def read(where: Sources) -> Iterator[Row]:
        for row in recipe.read(where):
            for output in outputs:
                row = output.row(row, recipe.input)
            yield row

    with bar("tokenizing", None) as report:
        content = f"{recipe.data.form} {recipe.input.content(where)}"
        cache = Cache.of(where, columns, report, read, content)
    if isinstance(model, Ranker):
        _say_unread(recipe, cache)
    else:
        _say_cut(model, cache)
    return cache


def _say_cut(model: Model, cache: Cache) -> None:
    """Say how many rows lost a part of what is read or written."""
    texts = {name: "input" for name in model.input.columns() if model.input.tokenizer is not None}
    texts |= {name: "output" for name, output in model.outputs.items() if output.counted}
    for name, setting in texts.items():
        if cut := cache.cut[name]:
            config = model.config.tasks[name].output if setting == "output" else model.config.input
            columns = " and ".join(config.columns())
            warnings.warn(
                f"{cut:,} of {cache.rows:,} rows: '{columns}' is longer than {setting}.max_tokens and was cut",
                stacklevel=3,
            )


def _say_unread(recipe: Recipe, cache: Cache) -> None:
    """Name columns that look like labels and are not read."""
    unread = np.flatnonzero(cache.columns["unread"].lengths)
    if len(unread):
        first = next(islice(recipe.read(recipe.data.train), int(unread[0]), None))
        names = [UNREAD[number] for number in dict.fromkeys(cache.columns["unread"].ids.tolist())]
        warn_of_unread(first.place, names, kind_of_row(first), len(unread))


def split_rows(recipe: Recipe, cache: Cache, model: Model) -> Split:
    """The rows that can be used and are learned from, and those to judge by."""
    data, seed = recipe.data, recipe.train.seed
    usable = _usable(recipe, cache, model)
    learned, held = draw_rows(data, len(usable), seed)
    if data.dev:
        validation = list(model.usable(recipe.read(data.dev)))
        if not validation:
            raise TwofoldError(f"{data.dev}: no row can be used")
        learned, _ = draw_rows(replace(data, held_out=0), len(usable), seed)
    else:
        wanted = set(usable[held].tolist())
        rows = enumerate(recipe.read(data.train)) if wanted else ()
        validation = [row for number, row in rows if number in wanted]
    _check_rows(recipe, model, validation)
    return Split(usable[learned], validation)


def _check_rows(recipe: Recipe, model: Model, rows: list[Row]) -> None:
    """Say what is wrong with rows to judge by now, not after the first epoch."""
    if isinstance(model, Ranker):
        if recipe.data.dev:  # of rows held out it was said with the rest of their file
            warn_of_unread_rows(model.reader, rows)
    elif rows and model.input.tokenizer is not None:  # images were looked through with their file
        with warnings.catch_warnings(action="ignore"):  # what is cut or read in windows is said when it is judged by
            items = model.input.items(rows)
        for output in model.outputs.values():
            output.accept(rows, items)
        for column in (column for output in model.outputs.values() for column in output.columns().values()):
            column.encode(rows)


def _usable(recipe: Recipe, cache: Cache, model: Model) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The numbers of the rows that can be used; the others are named."""
    if not recipe.input.skips():
        return np.arange(cache.rows)
    usable = np.ones(cache.rows, bool)
    for column in (INPUT, *(name for name, output in model.outputs.items() if output.columns())):
        usable &= cache.columns[column].lengths > 0
    if not usable.any():
        raise TwofoldError(f"{recipe.data.train}: no row can be used")
    left = [cache.columns[NAME].row(row).tobytes().decode(errors="replace") for row in np.flatnonzero(~usable).tolist()]
    if left:
        said = f"{recipe.data.train}: {len(left):,} of {cache.rows:,} rows cannot be used"
        warnings.warn(f"{said}: {listed([name or '(no image)' for name in left])}", stacklevel=3)
    return np.flatnonzero(usable)


def training_rows(recipe: Recipe, cache: Cache, split: Split, model: Model) -> TrainingRows:
    """The rows as batches."""
    train = recipe.train
    negatives = train.negatives if isinstance(model, Ranker) and model.joined else None
    teaches = any(loss.needs_teacher for loss in recipe.losses)
    if teaches and not len(cache.columns["scores"].ids):
        raise TwofoldError("losses: the training rows have no teacher's 'scores'; name a `teacher`")
    sizes = BatchSizes(train.batch_tokens, train.batch_rows, train.seed, negatives)
    return TrainingRows(cache, split.rows, model.input, list(model.outputs.values()), sizes)
