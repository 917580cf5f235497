"""The tokenizers of a recipe: brought by the encoder, or trained on the texts of the training rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from twofold.data.files import Row
from twofold.data.tokenizer import TextTokenizer, TokenizerConfig
from twofold.errors import TwofoldError
from twofold.inputs import INPUT
from twofold.model.config import ModelConfig
from twofold.progress import Report, bar

Texts = Callable[[Row], Iterable[str]]


def make_tokenizers(
    config: ModelConfig, brought: TextTokenizer | None, rows: Callable[[], Iterator[Row]], folder: Path
) -> dict[str, TextTokenizer]:
    """Each tokenizer that a model needs, by its name; those that were trained before are in `folder`.

    brought: the tokenizer that belongs to the weights the encoder starts from
    """
    reads = config.input.tokenizer_settings()
    writing = [name for name, task in config.tasks.items() if task.output.writes_text]
    shared = [name for name in writing if not _own(config, name)]
    groups = [(reads or TokenizerConfig(), [INPUT, *shared] if reads else shared)]
    groups += [(settings, [name]) for name in config.tasks if (settings := _own(config, name))]
    tokenizers: dict[str, TextTokenizer] = {}
    if brought is not None:
        # Of images the encoder reads how a text begins, in the tokens that are written.
        tokenizers = {INPUT: brought} if reads else dict.fromkeys(writing, brought)
    for settings, group in groups:
        names = [name for name in group if name not in tokenizers]
        if names:
            path = folder / f"{names[0]}.json"
            tokenizer = TextTokenizer.load(path) if path.exists() else None
            if tokenizer is None:
                with bar("reading for the tokenizer", None) as report:
                    tokenizer = TextTokenizer.train(_texts(config, names, rows(), report), settings)
                tokenizer.save(path)
            tokenizers |= dict.fromkeys(names, tokenizer)
    return tokenizers


def _own(config: ModelConfig, name: str) -> TokenizerConfig | None:
    return config.tasks[name].output.tokenizer_settings()


def _texts(config: ModelConfig, names: list[str], rows: Iterator[Row], report: Report) -> Iterator[str]:
    """The texts of all rows, row by row; a column that is read and written counts once."""
    read = config.input.columns() if INPUT in names else ()
    tasks = {name: config.tasks[name].output for name in names if name != INPUT}
    sources: list[Texts] = [config.input.row_texts] if INPUT in names else []
    sources += [output.row_texts for output in tasks.values() if not set(output.columns()) <= set(read)]
    for number, row in enumerate(rows, start=1):
        for texts in sources:
            try:
                yield from texts(row)
            except TwofoldError:
                if not config.input.skips():
                    raise
        report(number)
