"""A Transformer that writes a text: masked self-attention over what is written, cross-attention over the source."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, cast

from torch import Tensor, nn

from twofold.decoders import DecoderConfig
from twofold.generate.decoder import TextDecoder, make_output
from twofold.generate.search import Step
from twofold.layers.attention import KeysValues
from twofold.layers.blocks import Embed, make_embedding
from twofold.layers.transformer import BlockSettings, DecoderBlock
from twofold.types import Hidden, HiddenSpec, OutputSpec, Vocabulary


@dataclass(frozen=True)
class Config(BlockSettings, DecoderConfig):
    """Settings of the Transformer decoder."""

    label_smoothing: float = 0.0
    """Share of the probability that is spread over all tokens when learning."""
    tied: bool = True
    """Whether the layer over the vocabulary shares the table of token vectors."""

    def build(self, spec: HiddenSpec, output: OutputSpec) -> TransformerDecoder:
        assert isinstance(output, Vocabulary)
        return TransformerDecoder(self, spec.width("states"), output)


class Remembered(NamedTuple):
    """Keys and values of the source for each layer, its mask, and keys and values of what is written."""

    source: tuple[KeysValues, ...]
    mask: Tensor
    written: tuple[KeysValues, ...]

    def select(self, rows: Tensor) -> Remembered:
        source, written = (tuple(layer.select(rows) for layer in side) for side in (self.source, self.written))
        return Remembered(source, self.mask.index_select(0, rows), written)


class TransformerDecoder(TextDecoder):
    """All positions at once when taught, one more position at a time when it writes."""

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

    def start(self, hidden: Hidden) -> Remembered:
        source = hidden.need("states")
        return Remembered(tuple(block.cross.remember(source) for block in self._blocks()), hidden.mask, ())

    def _blocks(self) -> Iterable[DecoderBlock]:
        return cast(Iterable[DecoderBlock], self.blocks)

    def step(self, state: Remembered, tokens: Tensor) -> Step:
        start = state.written[0].keys.shape[2] if state.written else 0
        past = state.written or (None,) * len(self.blocks)
        now = self.embed(self.embedding(tokens[:, None]), start)
        written = []
        for block, before, memory in zip(self._blocks(), past, state.source, strict=True):
            now, grown = block.step(now, before, memory, state.mask, self.rotary)
            written.append(grown)
        features = now if self.norm is None else self.norm(now)
        return Step(features[:, 0], state._replace(written=tuple(written)))
