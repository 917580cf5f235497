"""The model: one encoder, then one or several decoders; it learns from batches and answers inputs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from twofold.config import kind_of
from twofold.data.cache import Field
from twofold.data.files import Row, Sources
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError, did_you_mean
from twofold.inputs import INPUT, Input
from twofold.model import encoding, explaining, predicting, saved
from twofold.model.batches import BatchRows
from twofold.model.config import ModelConfig, building
from twofold.outputs import Output
from twofold.types import Batch, Decoder, Encoder, Example, Hidden, InputSpec, Loss

LEARN_ROWS = 64
"""Rows of one batch when the right answers are read as well."""


class Model(nn.Module):
    """f : X → H, then g : H → Y."""

    precision: torch.dtype | None = None
    """What to compute in where that is quicker; without it in the numbers of the weights."""
    ranks = False
    """Whether it ranks candidates."""

    def __init__(self, config: ModelConfig, tokenizers: Mapping[str, TextTokenizer]) -> None:
        """`tokenizers` has one for 'input' and one for each decoder by its name, where they are texts."""
        super().__init__()
        config.check()
        if config.ranks and not self.ranks:
            kind = kind_of(next(iter(config.tasks.values())).decoder)
            raise TwofoldError(f"the decoder '{kind}' ranks candidates; make a Ranker of it")
        self.config, self.tokenizers = config, dict(tokenizers)
        special = any(task.output.special_tokens for task in config.tasks.values())
        with building(config.input):
            self.input: Input[Any] = config.input.with_special_tokens(special).build(self.tokenizers.get(INPUT))
        spec = config.encoder.spec()
        self.outputs: dict[str, Output[Any]] = {}
        for name, task in config.tasks.items():
            with building(task.output):
                self.outputs[name] = task.output.build(name, self.input, self.tokenizers.get(name), spec)
        self.prefix = predicting.prefix_input(self) if config.encoder.beside() else None
        """How the beginning of a text is read beside the input, where the encoder can."""
        with building(config.encoder):
            self.encoder: Encoder = config.encoder.build(self.reading_spec(), config.needs())
        self.decoders = nn.ModuleDict()
        for name, task in config.tasks.items():
            with building(task.decoder):
                self.decoders[name] = task.decoder.build(spec, self.outputs[name].spec)
        if config.tie_embeddings:
            self._tie_embeddings()
        for name in self.decoders:
            self.decoder(name).share(self.encoder.table())

    def _tie_embeddings(self) -> None:
        """Let every decoder that writes texts use the encoder's table of token vectors."""
        shared = getattr(self.encoder, "embedding", None)
        source = self.tokenizers.get(INPUT, next(iter(self.tokenizers.values())))
        for name in (name for name in self.decoders if name in self.tokenizers):
            part = cast(Any, self.decoders[name])
            table = getattr(part, "embedding", None)
            same = self.tokenizers[name].fingerprint() == source.fingerprint()
            if shared is None or table is None or table.weight.shape != shared.weight.shape or not same:
                raise TwofoldError(
                    f"tie_embeddings: the encoder and the decoder '{name}' must both have token vectors of the same "
                    "width over one vocabulary (output.tokenizer=null)"
                )
            if part.output.weight is table.weight:
                part.output.weight = shared.weight
            part.embedding = shared

    @classmethod
    def from_pretrained(cls, folder: str | Path, allow_code: bool = False) -> Self:
        """The model that `save_pretrained` or a training wrote; parts outside twofold only with `allow_code`."""
        return cls.from_saved(saved.read(Path(folder), allow_code))

    @classmethod
    def from_saved(cls, folder: saved.Saved) -> Self:
        """The model whose settings have been read."""
        if folder.config.ranks and not cls.ranks:
            raise TwofoldError(f"{folder.path}: ranks candidates and writes no text; load it with twofold.load")
        if cls.ranks and not folder.config.ranks:
            raise TwofoldError(f"{folder.path}: does not rank candidates; give a bi-, poly- or cross-encoder")
        return saved.restored(lambda: cls(folder.config, folder.tokenizers), folder).eval()

    save_pretrained = saved.save_pretrained
    fingerprint = saved.fingerprint

    def start_from(self, anyway: bool = False) -> None:
        """Take the weights that the encoder's settings name."""
        self.config.encoder.fill(self.encoder, anyway)

    def take_weights(self, folder: str | Path, anyway: bool = False) -> None:
        """Begin with the weights of another model's encoder, all of which must fit unless `anyway`."""
        other = saved.read(Path(folder), allow_code=False)
        theirs = {name: value for name, value in saved.read_weights(other).items() if name.startswith("encoder.")}
        saved.take(self, theirs, other.path, anyway)

    def encoders(self) -> list[Encoder]:
        """All encoders."""
        return [self.encoder]

    def reading_spec(self) -> InputSpec:
        """What the encoder must know of what it reads."""
        return (self.prefix or self.input).spec

    def train(self, mode: bool = True) -> Self:
        """Go over to training; of the encoders, each layer that is frozen stays as it is when it answers."""
        super().train(mode)
        for encoder in self.encoders() if mode else ():
            encoder.engine = None  # its graph holds the weights as they were loaded
        for layer in (layer for encoder in self.encoders() for layer in encoder.modules()):
            parameters = list(layer.parameters())
            if parameters and not any(parameter.requires_grad for parameter in parameters):
                layer.eval()
        return self

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Sets the model to evaluation and back to what it was."""
        was = self.training
        self.eval()
        try:
            yield
        finally:
            self.train(was)

    def columns(self) -> dict[str, Field]:
        """What a cache keeps of each row."""
        parts: list[Input[Any] | Output[Any]] = [self.input, *self.outputs.values()]
        return {name: field for part in parts for name, field in part.columns().items()}

    def batch(self, examples: Sequence[Example], targets: bool = True) -> Batch:
        """Examples, each a mapping from column names to values, as tensors on the model's device."""
        rows = as_rows(examples)
        items = self.input.items(rows)
        values = {output.name: output.values(rows) for output in self.outputs.values() if targets}
        return self._batch(items, values, range(len(rows)))

    def read(self, where: Sources, folder: str | None = None) -> Iterator[Row]:
        """The rows of a file in the form of the training data, those that can be used.

        folder: where the files lie that rows name; the folder of their table unless given
        """
        return self.usable(self.config.input.in_folder(folder).rows(where))

    def usable(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Those of the rows that can be used; what is wrong with the others is said, or is an error."""
        columns = [field for output in self.outputs.values() for field in output.columns().values()]
        return iter(self.input.usable(rows, columns))

    def batches(self, rows: Sequence[Row], decoder: str) -> Iterator[Batch]:
        """All rows, in batches of like length or size, with what one decoder is to write."""
        items, output = self.input.items(rows), self.outputs[decoder]
        output.accept(rows, items)
        values = {decoder: output.values(rows)}
        for numbers in self.input.groups(items, predicting.PREDICT_TOKENS):
            for start in range(0, len(numbers), LEARN_ROWS):
                yield self._batch(items, values, numbers[start : start + LEARN_ROWS])

    def _batch(self, items: Sequence[Any], values: Mapping[str, Sequence[Any]], numbers: Sequence[int]) -> Batch:
        """Some of the items; what is random about them is the same whenever they are evaluated."""
        draws = [np.random.default_rng([0, number]) for number in numbers]
        chosen = {name: [right[number] for number in numbers] for name, right in values.items()}
        some = [items[number] for number in numbers]
        rows = BatchRows(some, chosen, draws, lambda draw: items[int(draw.integers(len(items)))])
        return rows.batch(self.input, [self.outputs[name] for name in values], 0.0, False).to(self.device)

    @property
    def weights(self) -> Mapping[str, float]:
        """What each decoder's loss is multiplied by."""
        return {name: task.weight for name, task in self.config.tasks.items()}

    def losses(self, batch: Batch) -> dict[str, Loss]:
        """For each decoder a sum and a count."""
        with self.autocast():
            hidden, losses = self.encode_batch(batch), {}
            for name, target in batch.targets.items():
                # What was read once is told to every target that belongs to it.
                told = hidden if target.rows is None else hidden.select(target.rows)
                losses[name] = self.decoder(name).loss(told, target, batch.progress)
            return losses

    def counts(self, batch: Batch) -> dict[str, int]:
        """For each decoder what its sum will be divided by, known before anything is computed."""
        return {name: self.decoder(name).count(target) for name, target in batch.targets.items()}

    def tokens(self, batch: Batch) -> int:
        """How many real tokens are read and written."""
        return sum(read.count() for read in batch.inputs.values()) + sum(self.counts(batch).values())

    def loss(self, batch: Batch) -> Tensor:
        """One number to minimize: the weighted mean losses of all decoders."""
        return self.weighted(self.losses(batch), self.counts(batch))

    def weighted(self, losses: Mapping[str, Loss], counts: Mapping[str, int]) -> Tensor:
        """The weighted mean of some losses, in which `counts` things count."""
        # Where nothing counts, such as in images of no known class, the sum is 0 already.
        scales = {name: self.weights[name] / max(counts[name], 1) for name in losses}
        return torch.stack([loss.sum * scales[name] for name, loss in losses.items()]).sum()

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def autocast(self) -> torch.autocast:
        """Computes in `precision` as long as it lasts."""
        return torch.autocast(self.device.type, self.precision, enabled=self.precision is not None)

    def decoder(self, name: str | None = None) -> Decoder:
        """The decoder of that name, or the first."""
        return cast(Decoder, self.decoders[self.decoder_name(name)])

    def decoder_name(self, name: str | None) -> str:
        """The name itself, or that of the first decoder; an unknown one is an error."""
        if name is not None and name not in self.decoders:
            raise TwofoldError(f"the model has no decoder '{name}'; {did_you_mean(name, self.decoders)}")
        return name or next(iter(self.decoders))

    def encode_batch(self, batch: Batch) -> Hidden:
        """What the encoder reads."""
        return batch.first.encode(self.encoder, batch)

    encode = encoding.encode
    predict = predicting.predict
    answers = predicting.answers
    stream = predicting.stream
    explain = explaining.explain


def as_rows(examples: Sequence[Example]) -> list[Row]:
    """Examples of one batch, which are called by their places from 1."""
    if not examples:
        raise TwofoldError("a batch needs at least one example")
    return [Row(f"example {number}", values) for number, values in enumerate(examples, start=1)]


def make_device(name: str) -> torch.device:
    """The device of this process."""
    if name != "auto":
        try:
            device = torch.empty(0, device=name).device
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise TwofoldError(f"the device '{name}' cannot be used here ({reason}); try auto or cpu") from None
        if device.type == "meta":
            raise TwofoldError("the device 'meta' computes nothing; try auto or cpu")
        return device
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
