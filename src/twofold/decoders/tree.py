"""Biaffine dependency parser: the maximum spanning tree with one root, and the relation of each word to its head."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twofold.decoders import DecoderConfig
from twofold.errors import NOT_NUMBERS, TwofoldError
from twofold.layers.blocks import dropout
from twofold.layers.trees import best_tree
from twofold.results import Arcs, DecoderOutput
from twofold.types import Classes, Decoder, Hidden, HiddenSpec, Loss, OutputSpec, Target

ROOT = "root"
"""Relation that belongs to the root and to no other word, if the data has it."""


@dataclass(frozen=True)
class Config(DecoderConfig):
    """Settings of the biaffine parser (Dozat and Manning, 2017)."""

    output = "tree"
    writes = Arcs

    width: int = 256
    """Width of the projections for arcs (a word as dependent, and as head)."""
    relation_width: int = 96
    """Width of the projections for relations."""
    dropout: float = 0.3
    """Dropout probability before and after these projections."""

    def build(self, spec: HiddenSpec, output: OutputSpec) -> TreeDecoder:
        assert isinstance(output, Classes)
        return TreeDecoder(self, spec, output)


class TreeDecoder(Decoder):
    """Tree decoder: scores every pair of words and finds the best tree."""

    def __init__(self, config: Config, spec: HiddenSpec, output: Classes) -> None:
        super().__init__()
        width, self.dropout = spec.width("states"), config.dropout
        self.root = nn.Parameter(torch.randn(width) * 0.02)
        self.word, self.head = nn.Linear(width, config.width), nn.Linear(width, config.width)
        self.arc = nn.Parameter(torch.zeros(config.width + 1, config.width))
        narrow = config.relation_width
        self.word_relation, self.head_relation = nn.Linear(width, narrow), nn.Linear(width, narrow)
        self.relation = nn.Parameter(torch.zeros(len(output), narrow + 1, narrow + 1))
        self.root_relation = output.numbers.get(ROOT) if len(output) > 1 else None

    def forward(self, hidden: Hidden, target: Target | None = None, progress: float = 0.0) -> DecoderOutput:
        nodes, mask = self._nodes(hidden)
        arcs = self._arcs(nodes, mask)
        return DecoderOutput(
            arcs, self._relations_of_all(nodes) if target is None else self._relations(nodes, target.tokens[..., 0])
        )

    def count(self, target: Target) -> int:
        return int(target.mask.sum())

    def loss(self, hidden: Hidden, target: Target, progress: float = 0.0) -> Loss:
        output, counts = self.forward(hidden, target), target.mask
        assert output.relations is not None
        heads, relations = target.tokens.unbind(-1)  # (rows, words) each
        total = F.cross_entropy(output.logits[counts], heads[counts], reduction="sum")
        total = total + F.cross_entropy(output.relations[counts], relations[counts], reduction="sum")
        return Loss(total, self.count(target))

    def predict(self, hidden: Hidden, options: object) -> list[Arcs]:
        nodes, mask = self._nodes(hidden)
        arcs = self._arcs(nodes, mask).log_softmax(-1)
        if arcs.isnan().any():
            raise TwofoldError(f"the scores of the tree are {NOT_NUMBERS}")
        heads = torch.zeros_like(mask, dtype=torch.long)
        lengths = mask.sum(1).tolist()
        for row, length in enumerate(lengths):
            tree = best_tree(arcs[row, :length, : length + 1].cpu().numpy())
            heads[row, :length] = torch.from_numpy(tree).to(heads.device)
        names = self._relations(nodes, heads)
        if self.root_relation is not None:
            only = torch.arange(names.shape[-1], device=names.device) == self.root_relation
            names = names.masked_fill((heads == 0)[..., None] != only, -math.inf)
        names = names.log_softmax(-1)
        scores, relations = names.max(-1)
        scores = (scores + arcs.gather(-1, heads[..., None])[..., 0]).masked_fill(~mask, 0.0).sum(1)
        chances = (arcs.exp().cpu().numpy(), names.exp().cpu().numpy())
        return [
            Arcs(
                tuple(parents[:length]),
                tuple(labels[:length]),
                score,
                of_heads[:length, : length + 1],
                of_labels[:length],
            )
            for parents, labels, length, score, of_heads, of_labels in zip(
                heads.tolist(), relations.tolist(), lengths, scores.tolist(), *chances, strict=True
            )
        ]

    def _nodes(self, hidden: Hidden) -> tuple[Tensor, Tensor]:
        """States of the root and the words, (rows, 1 + words, width), and the mask of words, (rows, words)."""
        states, mask = hidden.of_words()
        root = self.root.expand(states.shape[0], 1, -1)  # len() would be a constant of an exported graph
        return dropout(torch.cat([root, states], 1), self.dropout, self.training), mask

    def _arcs(self, nodes: Tensor, mask: Tensor) -> Tensor:
        """Scores of the root and of every word as head of each word, (rows, words, 1 + words)."""
        words, heads = self._kept(self.word, nodes[:, 1:]), self._kept(self.head, nodes)
        scores: Tensor = (_with_one(words) @ self.arc) @ heads.transpose(1, 2)
        there = F.pad(mask, (1, 0), value=True)
        return scores.float().masked_fill(~there[:, None], -math.inf)

    def _relations(self, nodes: Tensor, heads: Tensor) -> Tensor:
        """Scores of the relations between each word and the given head, (rows, words, relations)."""
        words = _with_one(self._kept(self.word_relation, nodes[:, 1:]))
        every = _with_one(self._kept(self.head_relation, nodes))
        chosen = every.gather(1, heads[..., None].expand(-1, -1, every.shape[-1]))
        return torch.einsum("bwi,rij,bwj->bwr", words, self.relation, chosen).float()

    def _relations_of_all(self, nodes: Tensor) -> Tensor:
        """Scores of the relations between each word and every head, (rows, words, 1 + words, relations)."""
        words = _with_one(self._kept(self.word_relation, nodes[:, 1:]))
        heads = _with_one(self._kept(self.head_relation, nodes))
        rows = words[:, :, None, None] @ self.relation  # (rows, words, relations, 1, width)
        return (rows[..., 0, :] @ heads[:, None].transpose(2, 3)).transpose(2, 3).float()

    def _kept(self, layer: nn.Linear, nodes: Tensor) -> Tensor:
        return dropout(F.leaky_relu(layer(nodes), 0.1), self.dropout, self.training)


def _with_one(values: Tensor) -> Tensor:
    """Appends a 1 to each vector, so that a product has a part that depends on the other side alone."""
    return F.pad(values, (0, 1), value=1.0)
