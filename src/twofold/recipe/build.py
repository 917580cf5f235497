"""Builds what a training needs from its recipe: tokenizers, the model, the cache of its rows, and their split."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twofold.data.batches import hold_out
from twofold.data.cache import Cache
from twofold.data.file_columns import NAME
from twofold.data.files import Row, Sources, read_rows
from twofold.data.label_columns import kind_of_row, warn_of_unread, warn_of_unread_columns
from twofold.data.ranking import AUTO
from twofold.data.ranking_columns import UNREAD
from twofold.data.tokenizer import Frame, TextTokenizer, TokenizerConfig
from twofold.errors import TwofoldError, listed
from twofold.inputs import INPUT, BatchSizes, InputConfig
from twofold.model import Model, Ranker
from twofold.model.batches import TrainingRows
from twofold.model.config import Task, within_positions
from twofold.model.load import read_start
from twofold.model.sentences import say_left_out
from twofold.outputs import OutputConfig
from twofold.progress import Report, bar
from twofold.recipe.recipe import DataConfig, Recipe


@dataclass(frozen=True)
class Split:
    """Numbers of the training rows, and the validation rows."""

    rows: NDArray[np.int64]
    validation: list[Row]


def build_model(recipe: Recipe, folder: Path) -> Model:
    """Builds a new model with the weights it starts from; tokenizers are trained or loaded, and kept in `folder`."""
    _check_columns(recipe)
    tokenizers = make_tokenizers(recipe, folder)
    tasks = {name: replace(task, output=task.output.learned(recipe.rows)) for name, task in recipe.tasks.items()}
    model = new_model(recipe, tasks, tokenizers)
    if not recipe.start or recipe.start_anyway:  # otherwise every weight of the encoder comes from there
        candidates = [prompt for task in recipe.tasks.values() for prompt in task.output.prompts()]
        say_left_out(recipe.encoder, (*recipe.input.prompts(), *candidates) if recipe.ranks else ())
        model.start_from(recipe.start_anyway)
    if recipe.start:
        model.take(read_start(recipe.start), recipe.start_anyway)
    return model


def new_model(recipe: Recipe, tasks: Mapping[str, Task], tokenizers: Mapping[str, TextTokenizer]) -> Model:
    """Builds the model with weights drawn at random."""
    other = recipe.candidate_encoder.settled() if recipe.candidate_encoder else None
    config = replace(recipe.model_config(), encoder=recipe.encoder.settled(), candidate_encoder=other, tasks=tasks)
    frame = tokenizers[INPUT].frame if INPUT in tokenizers else Frame()
    return (Ranker if config.ranks else Model)(within_positions(config, frame), tokenizers)


def _check_columns(recipe: Recipe) -> None:
    """Refuses a file whose first row lacks a column, naming the setting that names it."""
    where = recipe.data.train
    if not recipe.input.check_columns(where):
        return
    row = next(read_rows(where) if recipe.data.form == AUTO else recipe.rows())
    settings = {"source": recipe.input.columns()}
    for name, task in recipe.tasks.items():
        place = f"decoders.{name}." if len(recipe.tasks) > 1 else ""
        settings |= {f"{place}{setting}": columns for setting, columns in task.output.required(row).items()}
    for setting, columns in settings.items():
        for column in columns:
            if column not in row.values:
                has = ", ".join(map(str, row.values)) or "none"
                plain = "; a text file has nothing else, a jsonl, tsv or csv file has columns" if has == "text" else ""
                raise TwofoldError(
                    f"{row.place}: no '{column}' here; this row has {has}: name your column with {setting}=...{plain}"
                )


def make_tokenizers(recipe: Recipe, folder: Path) -> dict[str, TextTokenizer]:
    """Returns the tokenizers that a model needs, by name: the encoder's own, or trained on the texts of the rows.

    Tokenizers that were trained before are read from `folder`.
    """

    def trained(names: list[str], settings: TokenizerConfig) -> TextTokenizer:
        path = folder / f"{names[0]}.json"
        if path.exists():
            return TextTokenizer.load(path)
        with bar("reading for the tokenizer", None) as report:
            tokenizer = TextTokenizer.train(_texts(recipe, names, report), settings)
        tokenizer.save(path)
        return tokenizer

    return named_tokenizers(recipe, trained)


def named_tokenizers(
    recipe: Recipe, make: Callable[[list[str], TokenizerConfig], TextTokenizer]
) -> dict[str, TextTokenizer]:
    """Tokenizers that a model needs, by name; `make` is called for each that the encoder does not bring."""
    reads, brought = recipe.input.tokenizer_settings(), recipe.own_tokenizer()
    writing = [name for name, task in recipe.tasks.items() if task.output.tokenized(recipe.input)]
    separate = {name: settings for name in writing if (settings := recipe.tasks[name].output.tokenizer_settings())}
    shared = [name for name in writing if name not in separate]
    groups = [(reads or TokenizerConfig(), [INPUT, *shared] if reads else shared)]
    groups += [(settings, [name]) for name, settings in separate.items()]
    tokenizers: dict[str, TextTokenizer] = {}
    if brought is not None:
        # An encoder of images reads how a text begins, in the tokens that are written.
        tokenizers = {INPUT: brought} if reads else dict.fromkeys(writing, brought)
    for settings, group in groups:
        names = [name for name in group if name not in tokenizers]
        if names:
            tokenizers |= dict.fromkeys(names, make(names, settings))
    return tokenizers


def _texts(recipe: Recipe, names: list[str], report: Report) -> Iterator[str]:
    """Yields the texts of all rows, row by row; a column that is read and written counts once."""
    read = set(recipe.input.columns()) if INPUT in names else set()
    outputs = [recipe.tasks[name].output for name in names if name != INPUT]
    first = next(iter(recipe.tasks.values())).output
    sources: list[Callable[[Row], Iterable[str]]] = []
    if INPUT in names:
        sources = [lambda row: first.input_texts(row, recipe.input)]
    sources += [output.row_texts for output in outputs if not set(output.columns()) <= read]
    for number, row in enumerate(recipe.rows(), start=1):
        for texts in sources:
            try:
                yield from texts(row)
            except TwofoldError:
                if not recipe.input.skips():
                    raise
        report(number)


def cache_rows(recipe: Recipe, model: Model) -> Cache:
    """Returns the training rows as numbers; warns of those that were cut or left out."""
    where = recipe.data.train

    def read(where: Sources) -> Iterator[Row]:
        for row in recipe.read(where):
            for task in recipe.tasks.values():
                row = task.output.row(row, recipe.input)
            yield row

    with bar("tokenizing", None) as report:
        contents = [recipe.input.content(where), *(task.output.content(where) for task in recipe.tasks.values())]
        content = f"{recipe.data.form} {' '.join(contents)}"
        cache = Cache.of(where, model.columns(), report, read, content)
    if isinstance(model, Ranker):
        _say_unread(recipe, cache)
    else:
        _say_cut(recipe, model, cache)
    return cache


def _say_cut(recipe: Recipe, model: Model, cache: Cache) -> None:
    """Warns of rows whose inputs or outputs were cut."""
    texts: dict[str, tuple[str, InputConfig | OutputConfig]] = {}
    if model.input.tokenizer is not None:
        texts = dict.fromkeys(model.input.columns(), ("input", recipe.input))
    texts |= {name: ("output", recipe.tasks[name].output) for name, output in model.outputs.items() if output.counted}
    for name, (setting, config) in texts.items():
        if cut := cache.cut[name]:
            columns = " and ".join(config.columns())
            said = f"'{columns}' is longer than {setting}.max_tokens and was cut"
            warnings.warn(f"{cut:,} of {cache.rows:,} rows: {said}", stacklevel=3)


def _say_unread(recipe: Recipe, cache: Cache) -> None:
    """Warns of columns that look like labels and are not read."""
    unread = np.flatnonzero(cache.columns["unread"].lengths)
    if len(unread):
        first = next(islice(recipe.rows(), int(unread[0]), None))
        names = [UNREAD[number] for number in dict.fromkeys(cache.columns["unread"].ids.tolist())]
        warn_of_unread(first.place, names, kind_of_row(first), len(unread))


def split_rows(recipe: Recipe, cache: Cache, model: Model) -> Split:
    """Splits the usable rows into training and validation rows."""
    data = recipe.data
    usable = _usable(recipe, cache, model)
    learned, held = draw_rows(data, len(usable), recipe.train.seed)
    if data.dev:
        validation = list(model.usable(recipe.read(data.dev)))
        if not validation:
            raise TwofoldError(f"{data.dev}: no row can be used")
    else:
        wanted = set(usable[held].tolist())
        rows = enumerate(recipe.rows()) if wanted else ()
        validation = [row for number, row in rows if number in wanted]
    _check_rows(recipe, model, validation)
    return Split(usable[learned], validation)


def draw_rows(data: DataConfig, count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draws the numbers of the training rows, and of the rows that are held out, among `count` rows."""
    share = data.held_out_share
    held = min(data.held_out, max(1, int(count * share))) if share else data.held_out
    if held and held >= count:
        raise TwofoldError(f"data.held_out={data.held_out}: there are only {count} rows; lower it")
    rows, held_out = hold_out(count, held, seed)
    if not data.skip and (data.rows is None or data.rows >= len(rows)):
        return rows, held_out
    drawn = np.random.default_rng([seed, len(rows)]).permutation(rows)
    if data.skip + 2 > len(rows):
        raise TwofoldError(
            f"data.skip={data.skip}: skips the rows on which the model of `start` was trained, but there are "
            f"only {len(rows):,}; data.skip=0 trains on all of them"
        )
    return np.sort(drawn[data.skip :][: data.rows]), held_out


def _check_rows(recipe: Recipe, model: Model, rows: list[Row]) -> None:
    """Checks the validation rows before the training, not after the first epoch."""
    if isinstance(model, Ranker):
        if recipe.data.dev:  # of rows held out it was said with the rest of their file
            warn_of_unread_columns(rows, model.reader.columns)
    elif rows and model.input.tokenizer is not None:  # images were looked through with their file
        with warnings.catch_warnings(action="ignore"):  # what is cut or read in windows is said when it is judged by
            items = model.input.items(rows)
        for output in model.outputs.values():
            output.accept(rows, items)
        for column in (column for output in model.outputs.values() for column in output.columns().values()):
            column.encode(rows)


def _usable(recipe: Recipe, cache: Cache, model: Model) -> NDArray[np.int64]:
    """Returns the numbers of the usable rows; names the others in a warning."""
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
        warnings.warn(f"{said}: {listed([name or f'(no {recipe.input.noun})' for name in left])}", stacklevel=3)
    return np.flatnonzero(usable)


def training_rows(recipe: Recipe, cache: Cache, split: Split, model: Model) -> TrainingRows:
    """Returns the training rows, from which batches are made."""
    train = recipe.train
    negatives = train.negatives if isinstance(model, Ranker) and model.joined else None
    if any(loss.needs_teacher for loss in recipe.losses) and not len(cache.columns["scores"].ids):
        raise TwofoldError("losses: the training rows have no teacher's 'scores'; name a `teacher`")
    sizes = BatchSizes(train.batch_tokens, train.batch_rows, train.seed, negatives)
    return TrainingRows(cache, split.rows, model.input, list(model.outputs.values()), sizes)
