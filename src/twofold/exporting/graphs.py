"""Graphs of a model as functions of tensors: towers and scores of a ranker, logits of any other model."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from twofold.decoders import RankingDecoder, Vectors
from twofold.errors import TwofoldError
from twofold.inputs import INPUT, Input
from twofold.model import Model, Ranker
from twofold.model.representation import CANDIDATES, CONTEXTS, PAIRS, Side
from twofold.outputs.ranking import CANDIDATE
from twofold.runtime import graph
from twofold.runtime.flat import Named, flatten, rebuilt
from twofold.types import Batch, InputBatch

CONTEXT, SCORE, PAIR, MODEL = "context", "score", "pair", "model"
"""Names of graphs, beside `candidate`."""
VECTORS, MASK, SCORES = "vectors", "vectors_mask", "scores"
"""Names of the outputs of towers, and of scores."""
SAMPLE_TOKENS = 1 << 20
"""Tokens of a batch of samples; all of one form are read at once."""
Compute = Callable[[InputBatch], Named]


@dataclass(frozen=True)
class Graph:
    """Part of a model that becomes one file."""

    name: str
    network: nn.Module
    """Computes the outputs, as a tuple, from the inputs."""
    samples: list[Named]
    """Inputs by name: batches of unlike sizes, a ragged one first."""
    gives: tuple[str, ...]
    """Names of the outputs."""
    input: Input[Any] | None = None
    """Input that makes the arrays; None for the graph that scores vectors."""

    @property
    def takes(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return tuple(self.samples[0])

    def free(self, name: str) -> list[bool]:
        """Returns for each dimension of an input whether its size may change."""
        shapes = [sample[name].shape for sample in self.samples]
        return [len(set(sizes)) > 1 for sizes in zip(*shapes, strict=True)]

    @torch.no_grad()
    def expected(self, sample: Named) -> Named:
        """Outputs as torch computes them."""
        return dict(zip(self.gives, self.network(*sample.values()), strict=True))

    def write(self, path: Path) -> None:
        """Writes the graph in ONNX; sizes that differ among the samples stay free."""
        kinds = {True: torch.export.Dim.DYNAMIC, False: torch.export.Dim.STATIC}
        shapes = tuple(dict(enumerate(kinds[free] for free in self.free(name))) for name in self.takes)
        try:
            graph.export_module(
                self.network, tuple(self.samples[0].values()), self.takes, self.gives, path, shapes=shapes
            )
        except TwofoldError as error:
            sized = any(tensor.ndim > 3 and any(self.free(name)[2:]) for name, tensor in self.samples[0].items())
            remedy = "; it may be for images of one size, input.size" if sized else ""
            raise TwofoldError(f"the graph '{self.name}' {error}{remedy}") from error


class Reading(nn.Module):
    """Part of a model that reads an input batch, as a function of the batch's tensors."""

    def __init__(self, model: Model, compute: Compute, template: InputBatch) -> None:
        super().__init__()
        self.model, self.compute, self.template = model, compute, template
        self.names = [name for name, _ in flatten(template)]

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Computes the outputs from the tensors of a batch."""
        read = rebuilt(self.template, dict(zip(self.names, tensors, strict=True)))
        return tuple(self.compute(read).values())


class Scoring(nn.Module):
    """Scores of all pairs, as a function of the vectors of both sides."""

    def __init__(self, head: RankingDecoder, takes: Sequence[str]) -> None:
        super().__init__()
        self.head, self.takes = head, takes

    def forward(self, *tensors: Tensor) -> tuple[Tensor]:
        """Computes scores (contexts, candidates)."""
        given = dict(zip(self.takes, tensors, strict=True))
        sides = [
            Vectors(_several(given[f"{side}_{VECTORS}"]), given.get(f"{side}_{MASK}")) for side in (CONTEXT, CANDIDATE)
        ]
        return (self.head.score_at_once(*sides).float(),)


def graphs_of(model: Model) -> Iterator[Graph]:
    """Yields the graphs that together are the model."""
    if not isinstance(model, Ranker):
        yield _whole(model)
        return
    contexts, candidates = (_items(each) for each in (model.contexts, model.candidates))
    if model.reads_alone:
        towers = [
            _tower(model, model.side(CONTEXTS), CONTEXT, contexts),
            _tower(model, model.side(CANDIDATES), CANDIDATE, candidates),
        ]
        yield from towers
        yield _scoring(model, towers)
    if model.joined:
        side = model.side(PAIRS)
        both = list(zip(contexts, reversed(candidates), strict=True))

        def scores(read: InputBatch) -> Named:
            return {SCORES: side.represent_read(read).vectors.float()}

        yield _reading(model, PAIR, side.input, both, scores)


def _whole(model: Model) -> Graph:
    """Graph of a model that does not rank: from an input to the logits of each decoder."""
    written = [name for name, task in model.config.tasks.items() if task.output.writes_text]
    if written:
        remedy = "--to ctranslate2 takes Transformers from text to text"
        raise TwofoldError(f"the decoder '{written[0]}' writes text token by token, which is no graph; {remedy}")

    def logits(read: InputBatch) -> Named:
        hidden = read.encode(model.encoder, Batch({INPUT: read}))
        outputs: Named = {}
        for name in model.decoders:
            output = model.decoder(name)(hidden)
            prefix = f"{name}_" if len(model.decoders) > 1 else ""
            parts = {"logits": output.logits, "relations": output.relations}
            outputs |= {f"{prefix}{part}": tensor for part, tensor in parts.items() if tensor is not None}
        return outputs

    return _reading(model, MODEL, model.input, _items(model.input), logits)


def _tower(model: Ranker, side: Side, name: str, items: Sequence[Any]) -> Graph:
    """Graph of one side: from an input to vectors, (rows, width), or (rows, vectors, width) and their mask."""

    def vectors(read: InputBatch) -> Named:
        kept = side.represent_read(read)
        if kept.mask is not None:
            return {VECTORS: kept.vectors.float(), MASK: kept.mask & True}  # an output that is no input
        single = kept.vectors.shape[1] == 1
        return {VECTORS: (kept.vectors[:, 0] if single else kept.vectors).float()}

    return _reading(model, name, side.input, items, vectors)


def _scoring(model: Ranker, towers: Sequence[Graph]) -> Graph:
    """Graph that scores the vectors of both sides."""
    first, second = ([tower.expected(sample) for sample in tower.samples] for tower in towers)
    fewer = {name: tensor[:-2] for name, tensor in second[0].items()}  # equal sizes would be taken for one
    pairs = [(first[0], fewer), (first[0], second[-1]), *zip(first, reversed(second), strict=False)]
    samples = [by_side(*pair) for pair in pairs]
    return Graph(SCORE, Scoring(model.head, tuple(samples[0])).eval(), samples, (SCORES,))


def by_side(contexts: Mapping[str, Any], candidates: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs of the graph that scores vectors, from the outputs of both towers."""
    return {
        f"{side}_{name}": value
        for side, outputs in ((CONTEXT, contexts), (CANDIDATE, candidates))
        for name, value in outputs.items()
    }


def _reading(model: Model, name: str, input: Input[Any], items: Sequence[Any], compute: Compute) -> Graph:
    """Graph that reads an input, with batches of its items: all of one form together, and each alone."""
    groups = sorted(input.groups(items, SAMPLE_TOKENS), key=len, reverse=True)
    batches = [input.batch([items[number] for number in group]) for group in groups]
    batches += [input.batch([item]) for item in items]
    network = Reading(model, compute, batches[0]).eval()
    samples = [{path.replace(".", "_"): tensor for path, tensor in flatten(batch)} for batch in batches]
    with torch.no_grad():
        gives = tuple(compute(batches[0]))
    return Graph(name, network, samples, gives, input)


def _items(input: Input[Any]) -> list[Any]:
    """Items of the sample values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that long ones are cut
        return [input.items_of([value])[0] for value in values_of(input)]


def values_of(input: Input[Any]) -> list[Any]:
    """Sample values that an input accepts: some refuse empty texts."""
    accepted = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for value in input.samples():
            with contextlib.suppress(TwofoldError):
                input.items_of([value])
                accepted.append(value)
    return accepted


def _several(vectors: Tensor) -> Tensor:
    """Vectors (rows, vectors, width) of rows that may have one each, (rows, width)."""
    return vectors if vectors.ndim > 2 else vectors[:, None]


@contextlib.contextmanager
def plain(model: Model) -> Iterator[None]:
    """Lets torch compute the model on the processor, in float32 and without what is random in training."""
    device, precision = model.device, model.precision
    engines = [(encoder, encoder.engine) for encoder in model.encoders()]
    with model.evaluating():
        try:
            model.precision = None
            for encoder, _ in engines:
                encoder.engine = None
            model.to("cpu")
            yield
        finally:
            model.to(device)
            model.precision = precision
            for encoder, engine in engines:
                encoder.engine = engine
