"""The model: one encoder, then one or several decoders; it learns from batches and predicts from texts."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from twofold.config import kind_of
from twofold.data.batches import by_length, make_batch
from twofold.data.fields import TextField
from twofold.data.files import Row
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError, did_you_mean
from twofold.generate.decoder import TextDecoder
from twofold.generate.options import GenerateOptions
from twofold.model import saved
from twofold.model.config import SOURCE, ModelConfig
from twofold.model.learner import Evaluating, Learner
from twofold.progress import Report
from twofold.types import Batch, Decoder, DecoderConfig, Encoder, EncoderConfig, Example, Hidden, Loss, Prediction

PREDICT_TOKENS = 4096
"""Rows × longest × beam of one batch when predicting."""
Text = str | list[str]
"""A text, or the turns of a dialogue, oldest first."""


@dataclass(frozen=True)
class Looked:
    """Where a decoder looked as it wrote."""

    source: list[str]
    written: list[str]
    """Pieces of text; the last one is the end symbol."""
    weights: NDArray[np.float32]
    """(written, source), each row adding up to one."""


class Model(Learner):
    """f : X → H, then g : H → Y."""

    def __init__(self, config: ModelConfig, tokenizers: Mapping[str, TextTokenizer]) -> None:
        """`tokenizers` has one for 'source' and one for each decoder by its name; they may be the same."""
        super().__init__()
        config.check()
        self.config = config
        self.source = TextField(config.source, tokenizers[SOURCE], config.max_source, config.too_long)
        self.targets = {
            name: TextField(slot.target, tokenizers[name], config.max_target, config.too_long)
            for name, slot in config.decoders.items()
        }
        encoder = cast(EncoderConfig, config.encoder)
        self.encoder: Encoder = encoder.build(self.source.vocabulary, config.needs())
        self.decoders = nn.ModuleDict(
            {
                name: cast(DecoderConfig, slot.part).build(encoder.spec(), self.targets[name].vocabulary)
                for name, slot in config.decoders.items()
            }
        )
        if config.tie_embeddings:
            self._tie_embeddings()

    @classmethod
    def from_pretrained(cls, folder: str | Path, allow_code: bool = False) -> Self:
        """The model that `save_pretrained` or a training wrote; parts outside twofold only with `allow_code`."""
        found = saved.read(Path(folder), allow_code)
        if not isinstance(found.config, ModelConfig):
            raise TwofoldError(f"{folder}: ranks candidates and writes no text; load it with twofold.load")
        model = cls(found.config, found.tokenizers)
        saved.load_weights(model, found.path)
        return model.eval()

    def save_pretrained(self, folder: str | Path) -> None:
        tokenizers = {SOURCE: self.source.tokenizer, **{name: field.tokenizer for name, field in self.targets.items()}}
        saved.write(self, self.config, tokenizers, Path(folder))

    # --- learning ---

    def batch(self, examples: Sequence[Example], targets: bool = True) -> Batch:
        """Examples, each a mapping from column names to texts, as tensors on the model's device."""
        rows = [Row(f"example {number}", values) for number, values in enumerate(examples, start=1)]
        return self.batch_of(rows, targets)

    def batch_of(self, rows: Sequence[Row], targets: bool = True) -> Batch:
        """Rows of a file as tensors on the model's device."""
        fields = self.targets if targets else {}
        written = {name: (field.encode(rows).ids, field.vocabulary) for name, field in fields.items()}
        return make_batch(self.source.encode(rows).ids, self.source.vocabulary, written).to(self.device)

    @property
    def weights(self) -> Mapping[str, float]:
        return {name: slot.weight for name, slot in self.config.decoders.items()}

    def losses(self, batch: Batch) -> dict[str, Loss]:
        with self.autocast():
            hidden = self.encoder(batch)
            return {
                name: self.decoder(name).loss(hidden, target, batch.progress) for name, target in batch.targets.items()
            }

    def counts(self, batch: Batch) -> dict[str, int]:
        return {name: self.decoder(name).count(target) for name, target in batch.targets.items()}

    def tokens(self, batch: Batch) -> int:
        return int(batch.mask.sum()) + sum(self.counts(batch).values())

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
        inputs: Sequence[Text] | str,
        options: GenerateOptions | None = None,
        decoder: str | None = None,
        report: Report | None = None,
    ) -> list[Prediction]:
        """One prediction for each input, in order; `inputs` may be a single text."""
        texts: Sequence[Text] = [inputs] if isinstance(inputs, str) else inputs
        options = options or self.config.generate
        part, field = self.decoder(decoder), self.targets[self.decoder_name(decoder)]
        ids = self._read(texts)
        results: dict[int, Prediction] = {}
        with Evaluating(self):
            for numbers in by_length([len(one) for one in ids], PREDICT_TOKENS // options.beam):
                batch = make_batch([ids[number] for number in numbers], self.source.vocabulary).to(self.device)
                for number, written in zip(numbers, part.predict(self.encoder(batch), options), strict=True):
                    best, *others = [(field.decode(one.tokens), one.score) for one in written.hypotheses]
                    results[number] = Prediction(texts[number], *best, tuple(others))
                if report:
                    report(len(results))
        return [results[number] for number in range(len(texts))]

    def stream(self, text: Text, options: GenerateOptions | None = None, decoder: str | None = None) -> Iterator[str]:
        """Pieces of the output as they are written, greedily or sampled; joined they are the output."""
        part, field = self._text_decoder(decoder), self.targets[self.decoder_name(decoder)]
        options = options or self.config.generate
        if options.beam > 1:
            raise TwofoldError(
                f"a stream cannot take words back, as a beam of {options.beam} may; set beam=1 or sample"
            )
        batch = make_batch(self._read([text]), self.source.vocabulary).to(self.device)
        tokens: list[int] = []
        shown = ""
        with Evaluating(self):
            for token in part.stream(self._encode(batch), options):
                tokens.append(token)
                now = field.decode(tokens)
                yield now[len(shown) :]
                shown = now

    @torch.no_grad()
    def attention(self, text: Text, output: str, decoder: str | None = None) -> Looked:
        """Where the decoder looks at `text` as it writes `output`."""
        part, name = self._text_decoder(decoder), self.decoder_name(decoder)
        if not part.attends:
            kind = kind_of(self.config.decoders[name].part)
            raise TwofoldError(f"the decoder '{kind}' has no attention to show: all it sees is one vector")
        field = self.targets[name]
        source, written = self._read([text])[0], field.tokenizer.encode([output])[0][: field.limit]
        written_as = {name: ([written], field.vocabulary)}
        batch = make_batch([source], self.source.vocabulary, written_as).to(self.device)
        with Evaluating(self):
            weights = part.attention(self._encode(batch), batch.targets[name].tokens[:, :-1])[0]
        pieces = field.tokenizer.pieces([*written, field.tokenizer.end])
        return Looked(self.source.tokenizer.pieces(source), pieces, weights.cpu().numpy())

    def _read(self, texts: Sequence[Text]) -> list[list[int]]:
        """The token ids of each text; what is too long is said, then cut, or refused as the recipe said."""
        rows = [Row(f"input {number}", {self.source.column: text}) for number, text in enumerate(texts, start=1)]
        encoded = self.source.encode(rows)
        if encoded.cut:
            warnings.warn(
                f"{encoded.cut} of {len(texts)} inputs are longer than {self.source.limit} tokens and were cut",
                stacklevel=3,
            )
        return encoded.ids

    def _text_decoder(self, name: str | None) -> TextDecoder:
        part = self.decoder(name)
        if not isinstance(part, TextDecoder):
            raise TwofoldError(f"the decoder '{self.decoder_name(name)}' does not write text")
        return part

    @torch.no_grad()
    def _encode(self, batch: Batch) -> Hidden:
        return self.encoder(batch)

    def _tie_embeddings(self) -> None:
        """Let every decoder use the encoder's table of token vectors."""
        shared: Any = getattr(self.encoder, "embedding", None)
        part: Any
        for name, part in self.decoders.items():
            own: Any = getattr(part, "embedding", None)
            if shared is None or own is None or own.weight.shape != shared.weight.shape:
                raise TwofoldError(
                    f"tie_embeddings: the encoder and the decoder '{name}' must both have token vectors of the same "
                    "width over one vocabulary (tokenizer.shared=true)"
                )
            tied = part.output.weight is own.weight
            part.embedding = shared
            if tied:
                part.output.weight = shared.weight
