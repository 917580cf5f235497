"""What a training learns from: files of rows, and which of the rows are held out to judge by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twofold.data.batches import hold_out
from twofold.data.corpora import corpus_names
from twofold.data.files import Row
from twofold.data.ranking import AUTO
from twofold.errors import TwofoldError, did_you_mean

OWN_SHARE = 0.1
"""The largest share that a recipe which comes along holds out of a user's own data."""


@dataclass(frozen=True)
class DataConfig:
    """What to learn from."""

    train: str | dict[str, str] | tuple[str, ...]
    """A jsonl, tsv, csv, conll, conllu or text file, each also .gz, a `datasets` folder, or columns to plain text
    files; of images a table that names them, a folder, or a folder inside a zip archive; or several files, which are
    read as one."""
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
class Split:
    """The numbers of the rows to learn from, and the rows to judge by."""

    rows: NDArray[np.int64]
    validation: list[Row]


def draw_rows(data: DataConfig, count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of so many rows the numbers of those that are learned from, and of those that are held out."""
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
            f"data.skip={data.skip}: leaves out the rows that the model it adds to has learned from, but there are "
            f"only {len(rows):,}; data.skip=0 learns from all of them"
        )
    return np.sort(drawn[data.skip :][: data.rows]), held_out
