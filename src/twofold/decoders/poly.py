"""Poly-encoder: m codes attend over the context's tokens, the candidate attends over the codes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twofold.decoders import RankingDecoder, RankingDecoderConfig, Vectors
from twofold.errors import TwofoldError
from twofold.layers.pooling import BLOCK, CandidateVector, VectorSettings, attention_weights, finished
from twofold.results.explanation import Codes, ScoreParts
from twofold.types import Hidden, HiddenSpec, OutputSpec


@dataclass(frozen=True)
class Config(VectorSettings, RankingDecoderConfig):
    """Settings of the poly-encoder (Humeau et al., 2020); `pooling` concerns the candidate."""

    codes: int = 16
    """Number of codes m: vectors that represent a context."""
    code_kind: Literal["learned", "first"] = "learned"
    """Codes: `learned` queries that attend over the tokens, or the states of the `first` m tokens (for causal encoders
    the last m)."""
    code_attention: Literal["plain", "scaled"] = "plain"
    """Attention of the codes over the tokens: `plain`, softmax(q·h), or `scaled`, softmax(q·h/√d)."""
    code_size: float = 1.0
    """Initial norm of the learned codes; near 0 each code starts as the mean of the tokens."""
    attention: Literal["plain", "scaled", "multihead"] = "plain"
    """Attention of the candidate over the codes: `plain`, softmax(s), `scaled`, softmax(s/√d), or `multihead`."""
    heads: int = 4
    """Number of attention heads, with `attention: multihead`."""

    def needs(self) -> frozenset[str]:
        return super().needs() | {"states", "finish"}

    def build(self, spec: HiddenSpec, output: OutputSpec) -> PolyEncoder:
        width = spec.width("states")
        if self.attention == "multihead" and width % self.heads:
            raise TwofoldError(f"decoder.heads: {self.heads} heads do not divide a width of {width}")
        if self.pooling == "summary" and spec.width("summary") != width:
            raise TwofoldError("decoder.pooling: the encoder's summary is not as wide as its states; use mean")
        return PolyEncoder(self, spec)


class PolyEncoder(RankingDecoder):
    """Poly-encoder: score = Σ_i softmax_i(β s_i)·s_i with s_i = c·y_i, a function of the m dot products alone."""

    def __init__(self, config: Config, spec: HiddenSpec) -> None:
        super().__init__()
        width = spec.width("states")
        self.number, self.causal = config.codes, spec.causal
        drawn = torch.randn(config.codes, width) * (config.code_size / math.sqrt(width))
        self.codes = nn.Parameter(drawn) if config.code_kind == "learned" else None
        self.code_scale = 1.0 if config.code_attention == "plain" else 1 / math.sqrt(width)
        self.beta = 1 / math.sqrt(width) if config.attention == "scaled" else 1.0
        self.heads = Heads(width, config.heads) if config.attention == "multihead" else None
        self.softmax_scale = self.beta if self.heads is None else None
        self.vector = CandidateVector(config, spec)
        self.normalize = config.normalize == "both"

    def context(self, hidden: Hidden) -> Vectors:
        weights, there = self._looks(hidden)
        vectors = finished(weights @ hidden.need("states"), hidden)
        return Vectors(F.normalize(vectors, dim=-1) if self.normalize else vectors, there)

    def candidate(self, hidden: Hidden) -> Vectors:
        return Vectors(self.vector(hidden)[:, None])

    def explain(self, context: Hidden, candidate: Hidden) -> ScoreParts:
        contexts, block = self.context(context), self.candidate(candidate).single
        keys, values = self.heads.project(contexts.vectors) if self.heads else (contexts.vectors, None)
        shares, products = self._parts(keys, values, block, contexts)
        weights, parts = (side.reshape(-1, self.number).cpu().numpy() for side in (shares, products))  # (heads, codes)
        constant = float(self.heads.constant(block)) if self.heads else 0.0
        return ScoreParts(Codes(self._looks(context)[0][0].cpu().numpy(), parts, weights, constant))

    def score(self, contexts: Vectors, candidates: Vectors) -> Tensor:
        keys, values = self.heads.project(contexts.vectors) if self.heads else (contexts.vectors, None)
        # No more dot products at a time than a block holds: memory does not grow with the candidates.
        size = max(1, BLOCK // max(1, len(contexts) * keys.shape[1]))
        if len(candidates) <= size:
            return self._score(keys, values, candidates.single, contexts)
        return torch.cat(
            [self._score(keys, values, block, contexts) for block in torch.split(candidates.single, size)], 1
        )

    def score_at_once(self, contexts: Vectors, candidates: Vectors) -> Tensor:
        keys, values = self.heads.project(contexts.vectors) if self.heads else (contexts.vectors, None)
        return self._score(keys, values, candidates.single, contexts)

    def towards(self, contexts: Vectors, candidates: Tensor) -> Tensor:
        """Attended code vectors Σ_i softmax_i(β s_i)·y_i, (rows, width)."""
        if self.heads:
            return self.heads.look(contexts, candidates)
        products = (contexts.vectors @ candidates[:, :, None])[..., 0] * self.beta
        if contexts.mask is not None:
            products = products.masked_fill(~contexts.mask, -math.inf)
        return (products.softmax(1)[:, None] @ contexts.vectors)[:, 0]

    def ceiling(self, contexts: Vectors) -> Tensor:
        """Vectors that bound the scores: a mean of dot products is at most the largest of them, in each head."""
        vectors = contexts.vectors if contexts.mask is None else contexts.vectors[contexts.mask][None]
        return vectors if self.heads is None else self.heads.ceiling(vectors)

    def _score(self, keys: Tensor, values: Tensor | None, block: Tensor, of: Vectors) -> Tensor:
        if self.heads is None and len(of) == 1 and not torch.is_grad_enabled():
            # For a search, a matrix of candidates and codes is a third faster than its transpose.
            products = block @ keys[0].T
            logits = products if self.beta == 1.0 else products * self.beta
            if of.mask is not None:
                logits = logits.masked_fill(~of.mask, -math.inf)
            return (logits.softmax(1) * products).sum(1)[None]
        weights, parts = self._parts(keys, values, block, of)
        if self.heads is None:
            return (weights * parts).sum(1)
        return (weights * parts).sum((1, 2)) + self.heads.constant(block)

    def _parts(self, keys: Tensor, values: Tensor | None, block: Tensor, of: Vectors) -> tuple[Tensor, Tensor]:
        """Weights of the codes and their parts of the score, (contexts, codes, candidates) each; with several heads
        (contexts, heads, codes, candidates)."""
        products = keys @ block.T
        if self.heads is not None and values is not None:
            return self.heads.parts(products, values @ block.T, of)
        logits = products if self.beta == 1.0 else products * self.beta
        if of.mask is not None:
            logits = logits.masked_fill(~of.mask[..., None], -math.inf)
        return logits.softmax(1), products

    def _looks(self, hidden: Hidden) -> tuple[Tensor, Tensor | None]:
        """Attention of the codes over the tokens, (rows, codes, positions), and the mask of real codes."""
        states, mask = hidden.need("states"), hidden.mask
        if self.codes is None:
            return self._first(states, mask)
        return attention_weights(self.codes, states, mask, self.code_scale), None

    def _first(self, states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Attention of codes at one position each, the first m real ones or the last m, and the mask of real codes."""
        lengths = mask.sum(1, keepdim=True)
        start = (lengths - self.number).clamp(min=0) if self.causal else torch.zeros_like(lengths)
        places = start + torch.arange(self.number, device=states.device)  # (rows, m)
        there = places < lengths
        position = torch.arange(states.shape[1], device=states.device)
        return ((places[..., None] == position) & there[..., None]).to(states.dtype), there


class Heads(nn.Module):
    """Attention of a candidate over the codes with projections, as `nn.MultiheadAttention` computes it.

    The candidate's projections are moved to the side of the codes, so that every logit and every value is a dot
    product with the candidate itself: head h sees c·(Wq_hᵀ Wk_h y_i) and adds c·(Wo_h Wv_h y_i).
    """

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.count, self.width = count, width
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.value, self.output = nn.Linear(width, width), nn.Linear(width, width)
        for linear in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(linear.weight)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def project(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values, (contexts, heads × codes, width) each."""
        keys = self._split(self.key(vectors)) @ self._apart(self.query.weight, 0) / math.sqrt(self.width // self.count)
        values = self._split(vectors @ self.value.weight.T) @ self._apart(self.output.weight.T, 0)
        return keys.flatten(1, 2), values.flatten(1, 2)

    def parts(self, logits: Tensor, values: Tensor, contexts: Vectors) -> tuple[Tensor, Tensor]:
        """Weights of the codes and their parts of the score, (contexts, heads, codes, candidates) each, from dot
        products with keys and values, (contexts, heads × codes, candidates) each."""
        logits = self._apart(logits, 1) + self._query_bias(contexts.vectors)[..., None]
        if contexts.mask is not None:
            logits = logits.masked_fill(~contexts.mask[:, None, :, None], -math.inf)
        return logits.softmax(2), self._apart(values, 1)

    def constant(self, candidates: Tensor) -> Tensor:
        """Part of each candidate's score that depends on no code, (candidates,)."""
        return candidates @ self._bias()

    def look(self, contexts: Vectors, candidates: Tensor) -> Tensor:
        """Result of each candidate's attention over the codes of the same row, (rows, width)."""
        keys, values = self.project(contexts.vectors)
        logits = self._apart((keys @ candidates[:, :, None])[..., 0], 1) + self._query_bias(contexts.vectors)
        if contexts.mask is not None:
            logits = logits.masked_fill(~contexts.mask[:, None], -math.inf)
        return (logits.softmax(-1)[..., None] * self._apart(values, 1)).sum((1, 2)) + self._bias()

    def ceiling(self, vectors: Tensor) -> Tensor:
        """Values of each head for the codes of one context, and the constant vector; (heads + 1, codes, width)."""
        values = self._apart(self.project(vectors)[1][0], 0)
        return torch.cat([values, self._bias().expand(1, *values.shape[1:])])

    def _split(self, vectors: Tensor) -> Tensor:
        """Splits (contexts, codes, width) into (contexts, heads, codes, width of a head)."""
        return self._apart(vectors, 2).transpose(1, 2)

    def _apart(self, tensor: Tensor, dimension: int) -> Tensor:
        """Splits a dimension into two, the first of which is the heads."""
        return torch.unflatten(tensor, dimension, (self.count, -1))

    def _query_bias(self, vectors: Tensor) -> Tensor:
        """Part of each logit that comes from the bias of the query, (contexts, heads, codes)."""
        bias = self._apart(self.query.bias, 0)[:, :, None]  # (heads, width of a head, 1)
        return (self._split(self.key(vectors)) @ bias)[..., 0] / math.sqrt(self.width // self.count)

    def _bias(self) -> Tensor:
        """Part of the attention's result that depends on no code, (width,)."""
        return self.output(self.value.bias)  # type: ignore[no-any-return]
