"""Late interaction, as in ColBERT: the sum of each query token's largest similarity to a candidate token."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twofold.decoders import RankingDecoder, RankingDecoderConfig, Vectors
from twofold.layers.pooling import BLOCK
from twofold.results.explanation import Matches, ScoreParts
from twofold.types import Hidden, HiddenSpec, OutputSpec, Vocabulary


@dataclass(frozen=True)
class Config(RankingDecoderConfig):
    """Settings of late interaction (Khattab and Zaharia, 2020)."""

    projection: int | None = 128
    """Width of the token vectors after a linear projection; null keeps the encoder's states."""
    normalize: bool = True
    """L2-normalizes the token vectors (cosine similarity)."""
    skip_punctuation: bool = False
    """Skips tokens of pure punctuation in candidates."""
    max_vectors: int | None = None
    """Maximum number of vectors stored for a candidate; the most similar vectors are averaged (token pooling, Clavié et
    al., 2024). Training uses all vectors."""
    output_scale: float = 1.0
    """Factor of the scores in the loss only; it does not change the ranking scores."""

    def __post_init__(self) -> None:
        if self.output_scale <= 0:
            raise ValueError("output_scale must be above 0")

    def build(self, spec: HiddenSpec, output: OutputSpec) -> LateInteraction:
        return LateInteraction(self, spec, output)


class LateInteraction(RankingDecoder):
    """Late interaction: score = Σ_t max_j q_t·c_j over the token vectors of a context and a candidate."""

    several: ClassVar[bool] = True
    softmax_scale = 1.0  # each group is one vector
    punctuation: Tensor

    def __init__(self, config: Config, spec: HiddenSpec, output: OutputSpec) -> None:
        super().__init__()
        self.config = config
        width = spec.width("states")
        self.project = nn.Linear(width, config.projection, bias=False) if config.projection else nn.Identity()
        pieces = output.pieces() if config.skip_punctuation and isinstance(output, Vocabulary) else ()
        skipped = punctuation_of(pieces)
        self.register_buffer("punctuation", torch.tensor(skipped, dtype=torch.long), persistent=False)

    def context(self, hidden: Hidden) -> Vectors:
        return Vectors(self._vectors(hidden), hidden.mask)

    def candidate(self, hidden: Hidden) -> Vectors:
        pooled = self._pooled(hidden)
        return Vectors(pooled.vectors, pooled.mask)

    def explain(self, context: Hidden, candidate: Hidden) -> ScoreParts:
        query, pooled = self.context(context).present, self._pooled(candidate)
        similarities = query @ pooled.vectors[0].T  # (tokens, vectors)
        similarities = similarities[:, pooled.mask[0]]
        places = pooled.places[0].tolist()
        present = pooled.mask[0].nonzero()[:, 0].tolist()
        tokens = tuple(tuple(t for t, place in enumerate(places) if place == vector) for vector in present)
        best = tuple(similarities.argmax(1).tolist())
        return ScoreParts(matches=Matches(similarities.float().cpu().numpy(), best, tokens))

    def _pooled(self, hidden: Hidden) -> Pooled:
        """Vectors of candidates as they are stored."""
        mask = hidden.mask
        if len(self.punctuation) and hidden.tokens is not None:
            content = mask & ~torch.isin(hidden.tokens, self.punctuation)
            mask = torch.where(content.any(1, keepdim=True), content, mask)  # of punctuation alone all stays
        vectors = self._vectors(hidden)
        if self.config.max_vectors is None or self.training:
            places = torch.arange(mask.shape[1], device=mask.device).expand(mask.shape)
            return Pooled(vectors, mask, places.masked_fill(~mask, -1))
        pooled = pool_tokens(vectors, mask, self.config.max_vectors)
        return pooled._replace(vectors=F.normalize(pooled.vectors, dim=-1)) if self.config.normalize else pooled

    def most_vectors(self, tokens: int | None) -> int | None:
        return min((limit for limit in (tokens, self.config.max_vectors) if limit is not None), default=None)

    def score(self, contexts: Vectors, candidates: Vectors) -> Tensor:
        # No more dot products at a time than a block holds: memory does not grow with the candidates.
        rows, positions, _ = contexts.vectors.shape
        size = max(1, BLOCK // max(1, rows * positions * candidates.vectors.shape[1]))
        starts = range(0, len(candidates), size)
        parts = [_sum_of_maxima(contexts, candidates[start : start + size]) for start in starts]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def score_at_once(self, contexts: Vectors, candidates: Vectors) -> Tensor:
        return _sum_of_maxima(contexts, candidates)

    def ceiling(self, contexts: Vectors) -> Tensor:
        """Vectors that bound the scores, each query token in a group of its own; the bound is the score itself."""
        return contexts.present[:, None]

    def _vectors(self, hidden: Hidden) -> Tensor:
        vectors: Tensor = self.project(hidden.need("states"))
        return F.normalize(vectors, dim=-1) if self.config.normalize else vectors


def _sum_of_maxima(contexts: Vectors, candidates: Vectors) -> Tensor:
    """Scores of all pairs, (contexts, candidates)."""
    count, positions, width = candidates.vectors.shape
    products = contexts.vectors @ candidates.vectors.reshape(-1, width).T  # (contexts, tokens, candidates × positions)
    products = products.view(*products.shape[:2], count, positions)
    if candidates.mask is not None:
        products = products.masked_fill(~candidates.mask, -math.inf)
    best: Tensor = products.amax(-1)  # (contexts, tokens, candidates)
    if contexts.mask is not None:
        best = best.masked_fill(~contexts.mask[..., None], 0.0)
    return best.sum(1)


def punctuation_of(pieces: Sequence[str]) -> list[int]:
    """Tokens that are punctuation only; special tokens such as [CLS] are not."""
    bare = [piece.removeprefix("▁").removeprefix("##") for piece in pieces]
    return [
        token
        for token, piece in enumerate(bare)
        if piece and all(unicodedata.category(letter).startswith("P") for letter in piece)
    ]


class Pooled(NamedTuple):
    """Candidate vectors after token pooling."""

    vectors: Tensor
    """Shape (rows, vectors, width)."""
    mask: Tensor
    """Shape (rows, vectors), true for real vectors."""
    places: Tensor
    """Index of the vector that each token is part of, (rows, tokens); -1 for none."""


def pool_tokens(vectors: Tensor, mask: Tensor, most: int) -> Pooled:
    """Averages the two most similar vectors of a row, by cosine, until at most `most` are left; a mean is weighted by
    the number of its tokens."""
    rows, positions, _ = vectors.shape
    sums, sizes, real = vectors * mask[..., None], mask.to(vectors.dtype), mask.clone()
    owners = torch.arange(positions, device=mask.device).repeat(rows, 1)  # the vector that each token is part of
    units = F.normalize(sums.detach(), dim=-1)
    apart = torch.eye(positions, dtype=torch.bool, device=mask.device)
    alike = units @ units.transpose(1, 2)  # (rows, positions, positions)
    alike = alike.masked_fill(apart | ~real[:, None] | ~real[..., None], -math.inf)
    for _ in range(positions - most):
        crowded = real.sum(1) > most
        if not crowded.any():
            break
        row = torch.arange(rows, device=mask.device)[crowded]
        into = alike.amax(2).argmax(1)[crowded]
        gone = alike[row, into].argmax(1)
        sums[row, into] += sums[row, gone]
        sizes[row, into] += sizes[row, gone]
        real[row, gone] = False
        owners[row] = torch.where(owners[row] == gone[:, None], into[:, None], owners[row])
        units[row, into] = F.normalize(sums[row, into].detach(), dim=-1)
        changed = (units[row] @ units[row, into][..., None])[..., 0]  # (crowded rows, positions)
        changed = changed.masked_fill(apart[into] | ~real[row], -math.inf)
        alike[row, into] = alike[row, :, into] = changed
        alike[row, gone] = alike[row, :, gone] = -math.inf
    means = sums / sizes.clamp(min=1)[..., None]
    kept = min(most, positions)
    # Real vectors first, in their order.
    order = (~real).to(torch.uint8).argsort(dim=1, stable=True)
    places = order.argsort(dim=1).gather(1, owners).masked_fill(~mask, -1)
    order = order[:, :kept]
    return Pooled(means.gather(1, order[..., None].expand(-1, -1, vectors.shape[-1])), real.gather(1, order), places)
