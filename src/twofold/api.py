"""The short names: what the command line does, from Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from twofold.data.candidates import Texts
from twofold.data.files import Row, Where
from twofold.data.label_columns import warn_of_unread_columns
from twofold.errors import TwofoldError, as_list, kind_of_value
from twofold.generate.search import GenerateOptions
from twofold.metrics import Report
from twofold.metrics import evaluate as evaluate_rows
from twofold.model import Model, Ranker
from twofold.model.load import load as load_model
from twofold.model.load import load_ranker as ranker_named
from twofold.model.model import make_device
from twofold.progress import Report as Progress
from twofold.types import Example

if TYPE_CHECKING:  # its kernels take a while to import
    from twofold.index import Index


def load(model: str | Path, device: str = "auto", allow_code: bool = False) -> Model:
    """The model in a training folder or in its `model/`, ready to use: a `Model`, or a `Ranker`.

    `default`, `default-multilingual`, and the folder or hub id of a backbone are rankers that need no training.
    """
    return load_model(model, allow_code).to(make_device(device))


def load_ranker(model: str | Path, device: str = "auto", allow_code: bool = False) -> Ranker:
    """The same, where only a ranker will do."""
    return ranker_named(model, allow_code).to(make_device(device))


def evaluate(
    model: Model | str | Path,
    data: Where | Path | Sequence[Example | str | Path],
    options: GenerateOptions | None = None,
    decoder: str | None = None,
    progress: Progress | None = None,
    images: str | None = None,
    **ranking: int,
) -> Report:
    """Judge a model by a file or several, or by examples that map column names to texts.

    images: the folder or zip archive of the images or sounds that a table names; the table's own folder unless given
    For a ranker, `candidates` is how many a pair is judged among, `timed` how many contexts are ranked one at a time.
    """
    judged: Model = load(model) if isinstance(model, (str, Path)) else model

    def read(where: Where | Path) -> Iterator[Row]:
        where = str(where) if isinstance(where, Path) else where
        return judged.read(where, images)

    if isinstance(data, (str, Path, Mapping)):
        rows = list(read(data))
    else:
        rows = []
        for number, source in enumerate(as_list(data, "data"), start=1):
            if not isinstance(source, (str, Path, Mapping)):
                raise TwofoldError(
                    f"example {number}: {kind_of_value(source)}; give a dict of columns, or a file's name"
                )
            rows += read(source) if isinstance(source, (str, Path)) else [Row(f"example {number}", source)]
    if isinstance(judged, Ranker):
        warn_of_unread_columns(rows, judged.reader.columns)
    return evaluate_rows(judged, rows, options, decoder, None, progress, (), **ranking)


def build_index(
    folder: str | Path,
    model: Ranker | str | Path,
    texts: Texts,
    stored: str | None = None,
    device: str = "auto",
    allow_code: bool = False,
    show: bool = False,
    reverse: bool = False,
) -> Index:
    """Read texts, a file or rows at hand, and keep their vectors in a folder to search; `show` draws a bar.

    stored: float32, float16 or int8; unless given float32, or float16 where a candidate has several vectors
    reverse: keep what the model takes for contexts, to be found by candidates, which a `bi` can
    """
    from twofold.index import Index

    ranker = model if isinstance(model, Ranker) else load_ranker(model, device, allow_code)
    ranker = ranker.reversed() if reverse else ranker
    name = "" if isinstance(model, Ranker) else str(Path(model).resolve() if Path(model).exists() else model)
    return Index.build(folder, ranker, texts, stored, name, show)


def open_index(
    folder: str | Path, model: Ranker | str | Path | None = None, device: str = "auto", allow_code: bool = False
) -> Index:
    """An index that was built; it finds its model by itself unless that was moved."""
    from twofold.index import Index

    return Index(folder, model, lambda name: load_ranker(name, device, allow_code))
