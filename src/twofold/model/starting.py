"""Models whose weights a training starts from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from twofold.data.tokenizer import TextTokenizer
from twofold.decoders import DecoderConfig
from twofold.model import saved


@dataclass(frozen=True)
class Weights:
    """Weights of a model, by name, and the settings of its decoders."""

    tensors: Mapping[str, Tensor]
    decoders: tuple[DecoderConfig, ...]


@dataclass(frozen=True)
class Start:
    """Model to start from; what is large is read when it is asked for."""

    path: Path
    """Folder, for messages."""
    record: Path
    """File that changes when the weights or tokenizers do."""
    tokenizer: Callable[[], TextTokenizer | None]
    """Reads the tokenizer of the texts that the encoder reads."""
    weights: Callable[[], Weights]


def saved_start(folder: str | Path) -> Start:
    """Returns the model in a folder that a training wrote."""
    other = saved.read(Path(folder), allow_code=False)
    decoders = tuple(task.decoder for task in other.config.tasks.values())
    return Start(
        other.path,
        other.path / saved.CONFIG,
        lambda: other.reads,
        lambda: Weights(saved.read_weights(other), decoders),
    )
