"""Interfaces of the model in a search of stored candidates, in numpy: torch computes it, or an engine alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class EncodedContexts(Protocol):
    """Contexts that a model has encoded."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Any: ...


class SearchHead(Protocol):
    """Decoder of a ranker, as a search compares one encoded context with stored candidates."""

    def bounding_vectors(self, context: Any) -> Floats:
        """Vectors that bound the scores, (groups, vectors, width), see `RankingDecoder.ceiling`."""
        ...

    def scores_of_stored(self, context: Any, vectors: Floats) -> Floats:
        """Scores (candidates,) of candidates with one stored vector each, (candidates, width)."""
        ...


class ContextReader(Protocol):
    """Ranker, as a search needs it."""

    @property
    def kind(self) -> str:
        """Kind of the decoder."""
        ...

    @property
    def head(self) -> SearchHead:
        """Decoder that scores candidates."""
        ...

    def fingerprint(self) -> str:
        """Hash of weights, tokenizers and settings."""
        ...

    def check_context(self, context: Any) -> Any:
        """Checks a single context; an empty one is an error."""
        ...

    def embed_contexts(self, contexts: Sequence[Any]) -> EncodedContexts:
        """Encodes contexts."""
        ...
