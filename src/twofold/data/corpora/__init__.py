"""Published corpora in their original formats: `form: ubuntu_v2` is read by ubuntu_v2.py in this folder."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

from twofold.data.files import Row
from twofold.errors import TwofoldError, did_you_mean


def corpus_names() -> list[str]:
    """Lists the supported corpora."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def read_corpus(name: str, path: str | Path) -> Iterator[Row]:
    """Reads the rows of a corpus file; a file without usable rows is an error."""
    if name not in corpus_names():
        raise TwofoldError(f"there is no corpus '{name}'; {did_you_mean(name, corpus_names())}")
    corpus = importlib.import_module(f"{__name__}.{name}")
    rows = corpus.read(Path(path))
    first = next(rows, None)
    if first is None:
        raise TwofoldError(f"{path}: holds no rows to use; give {corpus.WHAT}")
    yield first
    yield from rows
