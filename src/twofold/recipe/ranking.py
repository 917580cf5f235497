"""Ranking as a recipe: contexts with their responses, one or two towers, and a ranking decoder."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from twofold.config import DecoderPart
from twofold.data.batches import hold_out
from twofold.data.cache import Cache
from twofold.data.corpora import corpus_names
from twofold.data.fields import SOURCE
from twofold.data.files import Row
from twofold.data.ranking import AUTO, RankingReader, warn_of_unread_rows
from twofold.data.ranking_batches import RankingRows
from twofold.data.ranking_columns import UNREAD
from twofold.data.relevance import kind_of_row, warn_of_unread
from twofold.errors import TwofoldError, did_you_mean
from twofold.metrics import evaluate
from twofold.metrics.ranking import questions
from twofold.model import Ranker, RankerConfig, RankingLoss
from twofold.model.limits import ranker_within_positions
from twofold.model.sentence_folder import say_left_out
from twofold.progress import bar
from twofold.recipe.base import PREPARED, Recipe, Split, check_columns, check_lengths, held_out_rows
from twofold.recipe.prepare import Mining, Teacher, prepare_rows
from twofold.recipe.text import make_tokenizers, split_rows
from twofold.training.config import RankingTrainConfig


@dataclass(frozen=True)
class RankingData:
    """What to learn from: pairs, pairs with given negatives, or rows of candidates."""

    train: str | tuple[str, ...]
    """A jsonl, tsv, csv file, each also .gz, or a `datasets` folder; or several, which are read as one."""
    dev: str | tuple[str, ...] | None = None
    """Rows to judge by while training."""
    held_out: int = 0
    """Instead of `dev`: how many training rows are drawn by seed, not learned from, and judged by."""
    held_out_share: float | None = None
    """The largest share of the rows that `held_out` may take, if there is such a limit; at least one row is."""
    rows: int | None = None
    """Learn from this many rows drawn by seed instead of all."""
    skip: int = 0
    """Leave out the first so many rows drawn: those that another model learned from, to whose score this one adds."""
    form: str = AUTO
    """auto, or a corpus in the form it was published in: ubuntu_v2 (csv), convai2 (ParlAI's text)."""
    context: str = "context"
    """The column or key of the context: a text, or the turns of a dialogue."""
    response: str = "response"
    """The column or key of the right response, or of a list of right ones."""
    preface: str | None = None
    """A column whose texts stand before the turns of the context, such as persona."""
    max_context: int = 100
    """The most tokens of a context; the newest turns stay."""
    max_candidate: int = 50
    """The most tokens of a candidate; its beginning stays."""
    separator: str | None = None
    """What stands between turns: a text, or the tokenizer's own separator."""
    query_prefix: str = ""
    """What a backbone wants before every context, its blanks included."""
    candidate_prefix: str = ""
    """What a backbone wants before every candidate, its blanks included."""

    def __post_init__(self) -> None:
        if not self.train:
            raise ValueError("train names no file")
        if self.dev and self.held_out:
            raise ValueError("give dev or held_out, not both; data.held_out=0 or data.dev=null leaves one out")
        if self.form != AUTO and self.form not in corpus_names():
            raise ValueError(f"form: {self.form!r} is not known; {did_you_mean(self.form, [AUTO, *corpus_names()])}")
        check_lengths(self, "max_context", "max_candidate")
        if self.held_out_share is not None and not 0 < self.held_out_share <= 1:
            raise ValueError("held_out_share must be above 0 and at most 1")
        if self.max_context < 3 or self.max_candidate < 3:
            raise ValueError("max_context and max_candidate must be at least 3")
        if self.held_out < 0 or self.skip < 0 or (self.rows is not None and self.rows < 2):
            raise ValueError("held_out and skip must be at least 0, rows at least 2")


@dataclass(frozen=True)
class RankingRecipe(Recipe):
    """A recipe whose decoder ranks."""

    data: RankingData
    decoder: DecoderPart = field(kw_only=True)
    separate: bool = False
    """Whether candidates are read by a tower of their own, which starts from the same weights; of a cross-encoder that
    compares, whether what is read alone is."""
    mine: Mining | None = None
    """Look for wrong candidates that are hard to tell from right ones, before the training."""
    teacher: Teacher | None = None
    """Let another ranker score the right and the given wrong candidates, before the training."""
    loss: RankingLoss = field(default_factory=RankingLoss)
    train: RankingTrainConfig = field(default_factory=RankingTrainConfig)

    def __post_init__(self) -> None:
        if self.teacher and self.loss.teacher == "none":
            raise ValueError("a teacher needs loss.teacher: margin_mse or kl")
        if self.loss.teacher != "none" and getattr(self.decoder, "joined", False):
            raise ValueError("a teacher's scores are for decoders that read both sides apart, bi and poly")
        if self.train.hard_negatives and not getattr(self.decoder, "compare", False):
            raise ValueError("train.hard_negatives goes by the comparison of a cross-encoder: set decoder.compare")

    def check(self) -> None:
        self.model_config().check()

    def prepare(self, folder: Path) -> Self:
        if not (self.mine or self.teacher):
            return self
        path = folder / PREPARED
        if not path.exists():
            prepare_rows(self.reader, self.data.train, self.mine, self.teacher, self.train.seed, path, self._learned)
        return dataclasses.replace(self, data=dataclasses.replace(self.data, train=str(path), form=AUTO))

    def model_config(self) -> RankerConfig:
        """What the model is built from."""
        data = self.data
        same = ("max_context", "max_candidate", "context", "response", "preface", "separator", "query_prefix")
        given = {name: getattr(data, name) for name in (*same, "candidate_prefix")}
        return RankerConfig(self.encoder, self.decoder, self.separate, **given, loss=self.loss)

    def model(self, folder: Path) -> Ranker:
        given = next(self.reader.read_as_given(self.data.train))
        response = {} if given.values.get("candidates") is not None else {"data.response": self.data.response}
        check_columns(iter([given]), {"data.context": self.data.context, **response})
        tokenizer = self.own_tokenizer()
        if tokenizer is None:
            columns = {SOURCE: "texts"}
            tokenizer = make_tokenizers(self.tokenizer, columns, folder, self._texts)[SOURCE]
        config = dataclasses.replace(self.model_config(), encoder=self.encoder.settled())
        model = Ranker(ranker_within_positions(config, tokenizer.frame), tokenizer)
        if not self.start or self.start_anyway:  # otherwise every weight of the encoder comes from there
            say_left_out(self.encoder, (config.query_prefix, config.candidate_prefix))
            model.start_from(self.start_anyway)
        if self.start:
            model.take_weights(self.start, self.start_anyway)
        model.chunk_tokens, model.memory_tokens = self.train.chunk_tokens, self.train.memory_tokens
        model.hard_negatives = self.train.hard_negatives
        return model

    def cache(self, model: Ranker) -> Cache:
        with bar("tokenizing", None) as report:
            cache = Cache.of(self.data.train, model.columns(self.reader), report, self.reader.read)
        unread = np.flatnonzero(cache.columns["unread"].lengths)
        if len(unread):
            first = next(islice(self.reader.read_as_given(self.data.train), int(unread[0]), None))
            names = [UNREAD[number] for number in dict.fromkeys(cache.columns["unread"].ids.tolist())]
            warn_of_unread(first.place, names, kind_of_row(first), len(unread))
        return cache

    def split(self, cache: Cache, model: Ranker) -> Split:
        split = split_rows(self.data, cache, self.train.seed, self.reader.read_as_given)
        if self.data.dev:  # of rows held out it was said with the rest of their file
            warn_of_unread_rows(self.reader, split.judged)
        return dataclasses.replace(split, rows=self._learned(cache.rows))

    def _learned(self, count: int) -> NDArray[np.int64]:
        """The numbers of the rows that are learned from, of a file of so many."""
        rows, _ = hold_out(count, held_out_rows(self.data, count), self.train.seed)
        skip, most = self.data.skip, self.data.rows
        if not skip and (most is None or most >= len(rows)):
            return rows
        drawn = np.random.default_rng([self.train.seed, len(rows)]).permutation(rows)
        if skip + 2 > len(rows):
            raise TwofoldError(
                f"data.skip={skip}: leaves out the rows that the model it adds to has learned from, but there are "
                f"only {len(rows):,}; data.skip=0 learns from all of them"
            )
        return np.sort(drawn[skip:][:most])

    def rows(self, cache: Cache, rows: NDArray[np.int64], model: Ranker) -> RankingRows:
        if self.loss.teacher != "none" and not len(cache.columns["scores"].ids):
            raise TwofoldError(
                f"loss.teacher={self.loss.teacher}: the training rows have no 'scores'; name a `teacher`"
            )
        drawn = self.train.negatives if model.joined else None
        assert self.train.batch_rows
        return RankingRows(cache, rows, self.train.batch_rows, self.train.seed, drawn)

    def metrics(self, model: Ranker, rows: list[Row]) -> list[str]:
        known = [name for name in super().metrics(model, rows) if name != "milliseconds"]
        if model.joined:
            known.remove("cosine")
        asked = questions(self.reader, rows, self.train.candidates)  # what is wrong is said before the first epoch
        fewest = min((len(one.candidates) for one in asked), default=math.inf)
        return [name for name in known if not name.startswith("r@") or int(name[2:]) < fewest]

    def validator(self, rows: list[Row]) -> Callable[[Any], dict[str, float]] | None:
        if not rows:
            return None
        return lambda model: evaluate(model, rows, candidates=self.train.candidates, timed=0).metrics

    @property
    def reader(self) -> RankingReader:
        data = self.data
        return RankingReader(data.context, data.response, data.preface, data.form)

    def _texts(self, columns: Sequence[str], report: Any) -> Iterator[str]:
        for number, row in enumerate(self.reader.read(self.data.train), start=1):
            yield from row.values["context"]
            yield row.values["response"]
            yield from row.values.get("others", ())
            report(number)
