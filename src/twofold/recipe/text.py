"""Text → text as a recipe: columns to read and to write, tokenizers trained on them, one or several decoders."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from twofold.data.batches import hold_out
from twofold.data.cache import Cache
from twofold.data.corruption import Noise
from twofold.data.fields import SOURCE, TooLong
from twofold.data.files import Row, Sources, read_rows
from twofold.data.tokenizer import TextTokenizer, TokenizerConfig
from twofold.data.training import TrainingRows
from twofold.model import Model, ModelConfig
from twofold.progress import bar
from twofold.recipe.base import Split, check_columns, check_lengths, held_out_rows
from twofold.recipe.pair import PairRecipe


@dataclass(frozen=True)
class DataConfig:
    """What to learn from."""

    train: str | dict[str, str] | tuple[str, ...]
    """A jsonl, tsv, csv or text file, each also .gz, a `datasets` folder, or columns to plain text files; or several
    files, which are read as one."""
    source: str | tuple[str, ...] = "source"
    """The column or key to read, or two of them that are read as one text; words for `tags` and `tree`."""
    apart: bool = False
    """Of two texts: whether each is read by itself, as backbones made for single sentences know it, and not as one."""
    target: str | tuple[str, ...] = "target"
    """The column or key to write; for `tree` those of heads and relations."""
    dev: str | dict[str, str] | tuple[str, ...] | None = None
    """Rows to judge by while training."""
    held_out: int = 0
    """Instead of `dev`: how many training rows are drawn by seed, not learned from, and judged by."""
    held_out_share: float | None = None
    """The largest share of the rows that `held_out` may take, if there is such a limit; at least one row is."""
    max_source: int = 128
    """The most tokens of a source."""
    max_target: int = 128
    """The most tokens of a target."""
    too_long: TooLong = "cut"
    """What happens to longer ones: cut loses their tail and counts them in the log, refuse ends with the line."""
    keep: Literal["head", "tail"] = "head"
    """Which end stays of a text that is too long, of a pair that of its first: the newest turns of a dialogue are its
    tail. Of a sentence of words its beginning always does."""
    strangers: float = 0.5
    """How often a pair has the second text of another row, where a decoder's target is `stranger`."""
    noise: Noise | None = None
    """Text → text: what is done to the source, such as {mask: 0.3, delete: 0.1}, when the target is the same text."""

    def __post_init__(self) -> None:
        if not self.train:
            raise ValueError("train names no file")
        if self.dev and self.held_out:
            raise ValueError("give dev or held_out, not both; data.held_out=0 or data.dev=null leaves one out")
        check_lengths(self, "max_source", "max_target")
        if self.held_out_share is not None and not 0 < self.held_out_share <= 1:
            raise ValueError("held_out_share must be above 0 and at most 1")
        if self.held_out < 0 or self.max_source < 1 or self.max_target < 1:
            raise ValueError("held_out must be at least 0, max_source and max_target at least 1")
        if not 0 < self.strangers < 1:
            raise ValueError("strangers must be above 0 and below 1")


@dataclass(frozen=True)
class TextRecipe(PairRecipe):
    """A recipe whose encoder reads texts."""

    data: DataConfig
    tie_embeddings: bool = False
    """Whether encoder and decoders share one table of token vectors; needs a shared vocabulary."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tie_embeddings and not self.tokenizer.shared:
            raise ValueError("tie_embeddings needs tokenizer.shared=true")

    def model_config(self) -> ModelConfig:
        """What the model is built from."""
        data = self.data
        return ModelConfig(
            encoder=self.encoder,
            decoders=self.slots,
            source=data.source,
            max_source=data.max_source,
            max_target=data.max_target,
            too_long=data.too_long,
            tie_embeddings=self.tie_embeddings,
            generate=self.generate,
            # Our own text → text models read bare texts; what is read for its own sake has symbols around it.
            frame=any(slot.part.writes != "text" for slot in self.slots.values()),
            keep=data.keep,
            strangers=data.strangers,
            noise=data.noise,
            apart=data.apart,
        )

    def model(self, folder: Path) -> Model:
        config = self.model_config()
        check_columns(read_rows(self.data.train), {"data.source": self.data.source, **self.targets()})
        written = {name: str(slot.target) for name, slot in config.decoders.items() if slot.part.writes == "text"}
        columns = {SOURCE: config.source if isinstance(config.source, str) else "\t".join(config.source), **written}
        own = self.own_tokenizer()
        if own is not None:  # the weights it starts from belong to its tokens
            del columns[SOURCE]
        tokenizers = make_tokenizers(self.tokenizer, columns, folder, self._texts) if columns else {}
        if own is not None:
            tokenizers[SOURCE] = own
        return self.built(config, tokenizers, read_rows(self.data.train))

    def cache(self, model: Model) -> Cache:
        fields: dict[str, Any] = {**model.source.columns(), **model.targets}
        with bar("tokenizing", None) as report:
            cache = Cache.of(self.data.train, fields, report)
        for name, cut in cache.cut.items():
            if cut:
                limit = "max_target" if name in model.targets else "max_source"
                warnings.warn(
                    f"{cut:,} of {cache.rows:,} rows: '{fields[name].column}' is longer than data.{limit} and was cut",
                    stacklevel=2,
                )
        return cache

    def split(self, cache: Cache, model: Model) -> Split:
        split = split_rows(self.data, cache, self.train.seed, read_rows)
        if split.judged:  # what is wrong with them is said now, not after the first epoch
            model.source.items(split.judged)
            for one in model.targets.values():
                one.encode(split.judged)
        return split

    def rows(self, cache: Cache, rows: NDArray[np.int64], model: Model) -> TrainingRows:
        train = self.train
        sizes = (train.batch_tokens, train.batch_rows, train.seed)
        return TrainingRows(cache, rows, model.source, model.targets, *sizes, model.corruption)

    def _texts(self, columns: Sequence[str], report: Any) -> Iterator[str]:
        for number, row in enumerate(read_rows(self.data.train), start=1):
            for column in (one for joined in columns for one in joined.split("\t")):
                text = row.text(column)
                yield from [text] if isinstance(text, str) else text
            report(number)


def make_tokenizers(
    settings: TokenizerConfig,
    columns: Mapping[str, str],
    folder: Path,
    texts: Callable[[Sequence[str], Any], Iterator[str]],
) -> dict[str, TextTokenizer]:
    """One for each name in `columns`, trained on the texts of its column unless it is in `folder` already."""
    groups = [list(dict.fromkeys(columns.values()))] if settings.shared else [[one] for one in columns.values()]
    found: dict[str, TextTokenizer] = {}
    for group in groups:
        if group[0] in found:
            continue
        path = folder / f"{groups.index(group)}.json"
        if path.exists():
            tokenizer = TextTokenizer.load(path)
        else:
            with bar("reading for the tokenizer", None) as report:
                tokenizer = TextTokenizer.train(texts(group, report), settings)
            tokenizer.save(path)
        found.update(dict.fromkeys(group, tokenizer))
    return {name: found[column] for name, column in columns.items()}


def split_rows(data: Any, cache: Cache, seed: int, read: Callable[[Sources], Iterator[Row]]) -> Split:
    """All rows and those of `data.dev`, or `data.held_out` of them drawn by seed to judge by."""
    if data.dev:
        return Split(np.arange(cache.rows), list(read(data.dev)))
    if not data.held_out:
        return Split(np.arange(cache.rows), [])
    rows, held = hold_out(cache.rows, held_out_rows(data, cache.rows), seed)
    wanted = set(held.tolist())
    return Split(rows, [row for number, row in enumerate(read(data.train)) if number in wanted])
