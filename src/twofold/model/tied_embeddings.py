"""One table of token vectors for the encoder and every decoder that writes texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.inputs import INPUT


def tie_embeddings(encoder: nn.Module, decoders: nn.ModuleDict, tokenizers: Mapping[str, TextTokenizer]) -> None:
    """Let every decoder that writes texts use the encoder's table of token vectors."""
    shared: Any = getattr(encoder, "embedding", None)
    source = tokenizers.get(INPUT, next(iter(tokenizers.values())))
    part: Any
    for name, part in decoders.items():
        if name not in tokenizers:  # it writes no text
            continue
        table: Any = getattr(part, "embedding", None)
        same = tokenizers[name].fingerprint() == source.fingerprint()
        if shared is None or table is None or table.weight.shape != shared.weight.shape or not same:
            raise TwofoldError(
                f"tie_embeddings: the encoder and the decoder '{name}' must both have token vectors of the same "
                "width over one vocabulary (output.tokenizer=null)"
            )
        tied = part.output.weight is table.weight
        part.embedding = shared
        if tied:
            part.output.weight = shared.weight
