"""Transformer text decoder: causal self-attention over the generated tokens, cross-attention over the source."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, cast

from torch import Tensor, nn

from twofold.decoders import DecoderConfig
from twofold.generate.decoder import TextDecoder
from twofold.generate.search import Step
from twofold.layers.attend import KeysValues, kept
from twofold.layers.attention import Past
from twofold.layers.blocks import Embed, make_embedding
from twofold.layers.cache import Cache
from twofold.layers.linear import make_output
from twofold.layers.transformer import BlockSettings, DecoderBlock
from twofold.types import Hidden, HiddenSpec, OutputSpec, Vocabulary


@dataclass(frozen=True)
class Config(BlockSettings, DecoderConfig):
    """Settings of the Transformer decoder."""

    label_smoothing: float = 0.0
    """Label smoothing: fraction of the target probability that is spread over all tokens."""
    tied: bool = True
    """Shares the embedding table with the output layer (weight tying)."""

    def build(self, spec: HiddenSpec, output: OutputSpec) -> TransformerDecoder:
        assert isinstance(output, Vocabulary)
        return TransformerDecoder(self, spec.width("states"), output)


class Remembered(NamedTuple):
    """Keys and values of the source for each layer, the mask of the source, and the cache of generated positions."""

    source: tuple[KeysValues, ...]
    """Keys and values of each layer; the hypotheses of a row share them."""
    mask: Tensor
    """Shape (rows, source positions)."""
    cache: Cache

    def select(self, hypotheses: Tensor) -> Remembered:
        cache = self.cache.select(hypotheses)
        if cache.rows == self.cache.rows:
            return self._replace(cache=cache)
        rows = hypotheses[:: cache.beam] // cache.beam
        source = tuple(KeysValues(*(part[rows] for part in layer)) for layer in self.source)
        return Remembered(source, self.mask[rows], cache)


class TransformerDecoder(TextDecoder):
    """Transformer decoder: all positions at once in training, one position at a time in generation."""

    def __init__(self, config: Config, memory_width: int, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary, config.label_smoothing)
        limit = vocabulary.limit + 1  # the start symbol is read as well
        self.embedding = make_embedding(vocabulary.size, config.width)
        self.embed = Embed(config.positions, config.width, limit, config.dropout)
        self.rotary = config.make_rotary(limit)
        self.blocks = nn.ModuleList(DecoderBlock(config, memory_width) for _ in range(config.layers))
        self.norm = config.make_last_norm()
        self.output = make_output(config.width, vocabulary.size, self.embedding if config.tied else None)

    def teach(self, hidden: Hidden, tokens: Tensor, mask: Tensor, progress: float) -> Tensor:
        source = hidden.need("states")
        states: Tensor = self.embed(self.embedding(tokens))
        for block in self._blocks():
            states = block(states, mask, block.cross.remember(source), hidden.mask, self.rotary)
        return states if self.norm is None else self.norm(states, mask)

    def start(self, hidden: Hidden, beam: int = 1) -> Remembered:
        states = hidden.need("states")
        source = tuple(KeysValues(*map(kept, block.cross.remember(states))) for block in self._blocks())
        return Remembered(source, hidden.mask, Cache(len(states), beam))

    def _blocks(self) -> Iterable[DecoderBlock]:
        return cast(Iterable[DecoderBlock], self.blocks)

    def step(self, state: Remembered, tokens: Tensor) -> Step:
        """Computes the next position; writes into the cache of `state`, which must not be used again."""
        cache = state.cache
        visible = cache.advance(tokens.device)
        embedded = self.embed(self.embedding(tokens[:, None]), cache.length - 1)
        now = embedded.view(cache.rows, cache.beam, -1)
        for layer, (block, memory) in enumerate(zip(self._blocks(), state.source, strict=True)):
            now = block.step(now, Past(cache, layer, visible), memory, state.mask, self.rotary)
        features = now if self.norm is None else self.norm(now)
        return Step(features.flatten(0, 1), state)
