"""Model class: one encoder and one or several decoders, which learn from batches and answer inputs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
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
from twofold.generate.decoder import TextEngine
from twofold.inputs import INPUT, Input
from twofold.layers.mixed_precision import autocast
from twofold.model import describing, encoding, explaining, predicting, saved, summarizing
from twofold.model.batches import BatchRows, as_rows, checked, repeated
from twofold.model.candidates import Candidates
from twofold.model.config import ModelConfig, building
from twofold.model.starting import Start, saved_start
from twofold.outputs import Output
from twofold.results import DecoderOutput, Hits
from twofold.types import Batch, Decoder, Encoder, Example, Hidden, InputSpec, Loss

NOT_RANKING = "does not rank candidates; predict gives its answers, and similarity compares its vectors"
LEARN_ROWS = 64
"""Maximum number of rows in a batch with targets."""


class Model(nn.Module):
    """Encoder f : X → H, then decoders g : H → Y."""

    precision: torch.dtype | None = None
    """Data type for computation (mixed precision); None uses that of the weights."""
    writer: TextEngine | None = None
    """Engine that computes texts in place of encoder and decoder when nothing is learned."""
    ranks = False
    """True if the model ranks candidates."""

    def __init__(self, config: ModelConfig, tokenizers: Mapping[str, TextTokenizer]) -> None:
        """Builds the model; `tokenizers` has one for 'input' and one for each decoder that writes text, by name."""
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
        """Input that reads the given beginning of a text, for encoders that support it."""
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
        """Ties the embeddings of every text decoder to those of the encoder."""
        shared = getattr(self.encoder, "embedding", None)
        source = self.tokenizers.get(INPUT, next(iter(self.tokenizers.values())))
        for name in (name for name in self.decoders if name in self.tokenizers):
            table = getattr(part := cast(Any, self.decoders[name]), "embedding", None)
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
        """Loads a model that `save_pretrained` or a training wrote; parts outside twofold only with `allow_code`."""
        return cls.from_saved(saved.read(Path(folder), allow_code))

    @classmethod
    def from_saved(cls, folder: saved.Saved) -> Self:
        """Builds the model of a folder whose settings were read, with its weights."""
        if folder.config.ranks and not cls.ranks:
            raise TwofoldError(f"{folder.path}: ranks candidates and writes no text; load it with twofold.load")
        if cls.ranks and not folder.config.ranks:
            raise TwofoldError(f"{folder.path}: does not rank candidates; give a bi-, poly- or cross-encoder")
        return saved.restored(lambda: cls(folder.config, folder.tokenizers), folder).eval()

    save_pretrained = saved.save_pretrained
    fingerprint = saved.fingerprint

    def start_from(self, anyway: bool = False) -> None:
        """Loads the pre-trained weights that the encoder's settings name."""
        self.config.encoder.fill(self.encoder, anyway)

    def take_weights(self, folder: str | Path, anyway: bool = False) -> None:
        """Loads the encoder's weights from another model's folder; all of them must fit unless `anyway`."""
        self.take(saved_start(folder), anyway)

    def take(self, start: Start, anyway: bool = False) -> None:
        """Loads the encoder's weights from another model; all of them must fit unless `anyway`."""
        theirs = {name: value for name, value in start.weights().tensors.items() if name.startswith("encoder.")}
        saved.take(self, theirs, start.path, anyway)

    def encoders(self) -> list[Encoder]:
        """Encoders of the model; two for a ranker with two towers."""
        return [self.encoder]

    def reading_spec(self) -> InputSpec:
        """Facts that the encoder must know about its input."""
        return (self.prefix or self.input).spec

    def train(self, mode: bool = True) -> Self:
        """Sets training mode; frozen layers of the encoders stay in evaluation mode."""
        super().train(mode)
        for encoder in self.encoders() if mode else ():
            encoder.engine = self.writer = None  # their files hold the weights as they were loaded
        for layer in (layer for encoder in self.encoders() for layer in encoder.modules()):
            parameters = list(layer.parameters())
            if parameters and not any(parameter.requires_grad for parameter in parameters):
                layer.eval()
        return self

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Sets evaluation mode, and restores the mode afterwards."""
        learns = self.training
        if any(module.training for module in self.modules()):  # setting it takes longer than reading a short text
            self.eval()
        try:
            yield
        finally:
            if learns:
                self.train()

    def columns(self) -> dict[str, Field]:
        """Cache fields of each row."""
        parts: list[Input[Any] | Output[Any]] = [self.input, *self.outputs.values()]
        return {name: field for part in parts for name, field in part.columns().items()}

    def batch(self, examples: Sequence[Example], targets: bool = True) -> Batch:
        """Turns examples, each a mapping from column names to values, into tensors on the model's device."""
        rows = as_rows(examples)
        items = self.input.items(rows)
        values = {output.name: output.values(rows) for output in self.outputs.values() if targets}
        return self._batch(items, values, range(len(rows)))

    def read(self, where: Sources, folder: str | None = None) -> Iterator[Row]:
        """Reads the usable rows of a file in the form of the training data.

        folder: folder of the files that rows name; by default the folder of their table
        """
        return self.usable(self.config.input.in_folder(folder).rows(where))

    def usable(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Usable rows; reports unusable rows as a warning or an error."""
        columns = [field for output in self.outputs.values() for field in output.columns().values()]
        return iter(self.input.usable(rows, columns))

    def batches(self, rows: Sequence[Row], decoder: str) -> Iterator[Batch]:
        """Batches of all rows, of similar length or size, with the targets of one decoder."""
        items, output = self.input.items(rows), self.outputs[decoder]
        output.accept(rows, items)
        values = {decoder: output.values(rows)}
        for numbers in self.input.groups(items, predicting.PREDICT_TOKENS):
            for start in range(0, len(numbers), LEARN_ROWS):
                yield self._batch(items, values, numbers[start : start + LEARN_ROWS])

    def _batch(self, items: Sequence[Any], values: Mapping[str, Sequence[Any]], numbers: Sequence[int]) -> Batch:
        """Batch of some items; its random numbers are the same in every evaluation."""
        draws = [np.random.default_rng([0, number]) for number in numbers]
        chosen = {name: [right[number] for number in numbers] for name, right in values.items()}
        some = [items[number] for number in numbers]
        rows = BatchRows(some, chosen, draws, lambda draw: items[int(draw.integers(len(items)))])
        return rows.batch(self.input, [self.outputs[name] for name in values], 0.0, False).to(self.device)

    @property
    def weights(self) -> Mapping[str, float]:
        """Factor of each decoder's loss, by decoder name."""
        return {name: task.weight for name, task in self.config.tasks.items()}

    def forward(self, batch: Batch) -> dict[str, DecoderOutput]:
        """Logits of each decoder by its name: g(f(x)). Text decoders read their targets (teacher forcing)."""
        with self.autocast():
            hidden, outputs = self.encode_batch(batch), {}
            for name in self.decoders:
                target = batch.targets.get(name)
                outputs[name] = self.decoder(name)(repeated(hidden, target), target, batch.progress)
            return outputs

    def __call__(self, batch: Batch) -> dict[str, DecoderOutput]:
        return cast(dict[str, DecoderOutput], super().__call__(checked(batch)))

    def losses(self, batch: Batch) -> dict[str, Loss]:
        """Sum and count of each decoder's loss, by its name."""
        with self.autocast():
            hidden, losses = self.encode_batch(batch), {}
            for name, target in batch.targets.items():
                losses[name] = self.decoder(name).loss(repeated(hidden, target), target, batch.progress)
            return losses

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count that each decoder's loss is divided by, known before the forward pass."""
        return {name: self.decoder(name).count(target) for name, target in batch.targets.items()}

    def tokens(self, batch: Batch) -> int:
        """Number of real tokens that are read and written."""
        return sum(read.count() for read in batch.inputs.values()) + sum(self.counts(batch).values())

    def loss(self, batch: Batch) -> Tensor:
        """Loss to minimize: the weighted mean of the decoders' losses."""
        if not checked(batch).targets:
            raise TwofoldError("loss: the batch has no targets; make it with model.batch(rows)")
        return self.weighted(self.losses(batch), self.counts(batch))

    def weighted(self, losses: Mapping[str, Loss], counts: Mapping[str, int]) -> Tensor:
        """Weighted mean of losses; `counts` are the counts to divide by."""
        # Where nothing counts, such as in images of no known class, the sum is 0 already.
        scales = {name: self.weights[name] / max(counts[name], 1) for name in losses}
        return torch.stack([loss.sum * scales[name] for name, loss in losses.items()]).sum()

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def autocast(self) -> AbstractContextManager[object]:
        """Context in which the model computes in `precision`."""
        return autocast(self.device.type, self.precision, self.training)

    @property
    def computing(self) -> dict[str, str]:
        """Precision and runtime that it computes with where nothing is learned."""
        engines = [engine for engine in (self.writer, *(part.engine for part in self.encoders())) if engine is not None]
        precision = "float32" if self.precision is None else str(self.precision).removeprefix("torch.")
        return {"precision": precision, "runtime": engines[0].name if engines else "torch"}

    def decoder(self, name: str | None = None) -> Decoder:
        """Returns the decoder of that name, or the first one."""
        return cast(Decoder, self.decoders[self.decoder_name(name)])

    def decoder_name(self, name: str | None) -> str:
        """Returns the name, or that of the first decoder; an unknown name is an error."""
        if name is not None and name not in self.decoders:
            raise TwofoldError(f"the model has no decoder '{name}'; {did_you_mean(name, self.decoders)}")
        return name or next(iter(self.decoders))

    def encode_batch(self, batch: Batch) -> Hidden:
        """Runs the encoder on a batch."""
        return batch.first.encode(self.encoder, batch)

    def rank(self, context: Any, candidates: Iterable[Any] | Candidates, k: int = 10) -> Hits:
        """Ranks candidates for a context, best first: for rankers; any other model refuses."""
        raise TwofoldError(f"rank: this model {NOT_RANKING}")

    def rank_many(self, contexts: Iterable[Any], candidates: Iterable[Any] | Candidates, k: int = 10) -> list[Hits]:
        """Ranks the candidates for each context: for rankers; any other model refuses."""
        raise TwofoldError(f"rank_many: this model {NOT_RANKING}")

    encode = encoding.encode
    encode_query = encoding.encode
    similarity = encoding.similarity
    predict = predicting.predict
    answers = predicting.answers
    stream = predicting.stream
    explain = explaining.explain
    summary = summarizing.summary
    __repr__ = describing.model_lines


def make_device(name: str) -> torch.device:
    """Returns the device of this process."""
    if name != "auto":
        try:
            device = torch.empty(0, device=name).device
        except (RuntimeError, AssertionError) as error:
            said = f"the device '{name}' cannot be used here ({str(error).splitlines()[0]}); try auto or cpu"
            raise TwofoldError(said) from None
        if device.type == "meta":
            raise TwofoldError("the device 'meta' computes nothing; try auto or cpu")
        return device
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
