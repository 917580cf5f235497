"""The model: one encoder, then one or several decoders; it learns from batches and answers inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from twofold.config import kind_of
from twofold.data.cache import Field
from twofold.data.files import Row, Sources
from twofold.data.tokenizer import Ids, TextTokenizer
from twofold.errors import NOT_NUMBERS, TwofoldError, did_you_mean
from twofold.generate.options import GenerateOptions
from twofold.inputs import INPUT, Input
from twofold.inputs.text import Config as TextConfig
from twofold.inputs.text import TextInput
from twofold.model import generation, saved
from twofold.model.config import ModelConfig
from twofold.model.evaluating import Evaluating
from twofold.model.tied_embeddings import tie_embeddings
from twofold.outputs import BatchRows, Output
from twofold.outputs.captions import PREFIX
from twofold.progress import Report
from twofold.results import Prediction, Scores
from twofold.types import Batch, Decoder, Encoder, Example, Hidden, Loss, Vocabulary

PREDICT_TOKENS = 4096
"""Rows × longest × beam of one batch when predicting."""
LEARN_ROWS = 64
"""Rows of one batch when the right answers are read as well."""


class Model(nn.Module):
    """f : X → H, then g : H → Y."""

    precision: torch.dtype | None = None
    """What to compute in where that is quicker; without it in the numbers of the weights."""

    def __init__(self, config: ModelConfig, tokenizers: Mapping[str, TextTokenizer]) -> None:
        """`tokenizers` has one for 'input' and one for each decoder by its name, where they are texts."""
        super().__init__()
        config.check()
        if config.ranks and not self.ranks:
            kind = kind_of(next(iter(config.tasks.values())).decoder)
            raise TwofoldError(f"the decoder '{kind}' ranks candidates; make a Ranker of it")
        self.config, self.tokenizers = config, dict(tokenizers)
        special = any(task.output.special_tokens for task in config.tasks.values())
        self.input: Input[Any] = config.input.with_special_tokens(special).build(self.tokenizers.get(INPUT))
        spec = config.encoder.spec()
        self.outputs: dict[str, Output[Any]] = {
            name: task.output.build(name, self.input, self.tokenizers.get(name), spec)
            for name, task in config.tasks.items()
        }
        self.prefix = self._prefix_input()
        """How the beginning of a text is read beside the input, where the encoder can."""
        self.encoder: Encoder = config.encoder.build(self.reading_vocabulary(), config.needs())
        self.decoders = nn.ModuleDict(
            {name: task.decoder.build(spec, self.outputs[name].spec) for name, task in config.tasks.items()}
        )
        if config.tie_embeddings:
            tie_embeddings(self.encoder, self.decoders, self.tokenizers)
        for name in self.decoders:
            self.decoder(name).share(self.encoder.table())

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
        saved.check_sizes(lambda: cls(folder.config, folder.tokenizers), folder)
        model = cls(folder.config, folder.tokenizers)
        saved.load_weights(model, folder)
        return model.eval()

    ranks = False
    """Whether it ranks candidates."""

    def save_pretrained(self, folder: str | Path) -> None:
        """Write weights, settings and tokenizers into a folder, which takes the place of an older one as a whole."""
        saved.write(self, self.config, self.tokenizers, Path(folder))

    def fingerprint(self) -> str:
        """A hash of weights, tokenizers and settings: vectors of models that differ in it do not mix."""
        return saved.fingerprint(self, self.config, self.tokenizers)

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

    def reading_vocabulary(self) -> Vocabulary:
        """The tokens that the encoder reads."""
        return self.input.vocabulary if self.prefix is None else self.prefix.vocabulary

    # --- learning ---

    def train(self, mode: bool = True) -> Self:
        """Go over to training; of the encoders, each layer that is frozen stays as it is when it answers."""
        super().train(mode)
        for layer in (layer for encoder in self.encoders() for layer in encoder.modules()):
            parameters = list(layer.parameters())
            if parameters and not any(parameter.requires_grad for parameter in parameters):
                layer.eval()
        return self

    def columns(self) -> dict[str, Field]:
        """What a cache keeps of each row."""
        columns = dict(self.input.columns())
        for output in self.outputs.values():
            columns |= output.columns()
        return columns

    def batch(self, examples: Sequence[Example], targets: bool = True) -> Batch:
        """Examples, each a mapping from column names to values, as tensors on the model's device."""
        if not examples:
            raise TwofoldError("a batch needs at least one example")
        rows = [Row(f"example {number}", values) for number, values in enumerate(examples, start=1)]
        items, outputs = self.input.items(rows), list(self.outputs.values()) if targets else []
        return self._batch(items, {output.name: output.values(rows) for output in outputs}, range(len(rows)))

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
        for numbers in self.input.groups(items, PREDICT_TOKENS):
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
            hidden = self.encode_batch(batch)
            return {
                # What was read once is told to every target that belongs to it.
                name: self.decoder(name).loss(
                    hidden if target.rows is None else hidden.select(target.rows), target, batch.progress
                )
                for name, target in batch.targets.items()
            }

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

    # --- predicting ---

    def decoder(self, name: str | None = None) -> Decoder:
        """The decoder of that name, or the first."""
        return cast(Decoder, self.decoders[self.decoder_name(name)])

    def decoder_name(self, name: str | None) -> str:
        """The name itself, or that of the first decoder; an unknown one is an error."""
        if name is not None and name not in self.decoders:
            raise TwofoldError(f"the model has no decoder '{name}'; {did_you_mean(name, self.decoders)}")
        return name or next(iter(self.decoders))

    @torch.no_grad()
    def predict(
        self,
        inputs: Any,
        options: GenerateOptions | None = None,
        decoder: str | None = None,
        report: Report | None = None,
        prefix: str | None = None,
    ) -> list[Prediction]:
        """One prediction for each input, in order; `inputs` may be a single text, path or image.

        prefix: how captions begin, which a model that was trained for it goes on from
        """
        given, options = self.input.several(inputs), options or self.config.generate
        part, output = self.decoder(decoder), self.outputs[self.decoder_name(decoder)]
        rows = [self.input.row(value, f"input {number}") for number, value in enumerate(given, start=1)]
        items, begun = self.input.items(rows), self.beginning(prefix)
        output.accept(rows, items)
        results: dict[int, Prediction] = {}
        with Evaluating(self):
            for numbers in self.input.groups(items, PREDICT_TOKENS // options.beam):
                batch = self.reading_batch([items[number] for number in numbers], begun)
                for number, raw in zip(numbers, self.raw(batch, part, options), strict=True):
                    results[number] = output.answer(given[number], items[number], raw, begun)
                if report:
                    report(len(results))
        return [results[number] for number in range(len(given))]

    @torch.no_grad()
    def answers(self, batch: Batch, decoder: str) -> Sequence[Any]:
        """What a decoder makes of a batch, before it is put into the form of the data."""
        with Evaluating(self):
            return self.raw(batch, self.decoder(decoder), self.config.generate)

    def raw(self, batch: Batch, part: Decoder, options: GenerateOptions) -> Sequence[Any]:
        """What a decoder makes of each row, in numbers; nan would be shown as an answer like any other."""
        results = part.predict(self.encode_batch(batch), options)
        for result in results:
            score = result.values if isinstance(result, Scores) else getattr(result, "score", 0.0)
            if not np.all(np.isfinite(score) if isinstance(result, Scores) else ~np.isnan(score)):
                raise TwofoldError(f"the scores of the answer are {NOT_NUMBERS}")
        return results

    def reading_batch(self, items: Sequence[Any], begun: Ids = ()) -> Batch:
        """Items, and how their outputs begin, as tensors on the model's device."""
        batch = Batch({INPUT: self.input.batch(items)})
        if len(begun) and self.prefix is not None:
            batch = batch.with_input(PREFIX, self.prefix.batch([begun] * len(items)))
        return batch.to(self.device)

    stream = generation.stream
    attention = generation.attention

    def encode_batch(self, batch: Batch) -> Hidden:
        """What the encoder reads."""
        return batch.first.encode(self.encoder, batch)

    def beginning(self, prefix: str | None) -> Ids:
        """The tokens of how an output begins."""
        if prefix is None:
            return ()
        if not prefix.strip():
            raise TwofoldError("the beginning of a text is empty; leave it out")
        if self.prefix is None:
            raise TwofoldError("this model reads no beginning of a text; train a `vit` with encoder.prefix=true")
        return self.prefix.beginning(prefix)

    def _prefix_input(self) -> TextInput | None:
        """How the beginning of a text is read: as the texts that the first text decoder writes."""
        if self.config.encoder.beside() is None:
            return None
        name = next(name for name, task in self.config.tasks.items() if task.output.writes_text)
        written = self.outputs[name].spec
        assert isinstance(written, Vocabulary)
        return TextConfig(column=PREFIX, max_tokens=written.limit, special_tokens=False).build(self.tokenizers[name])
