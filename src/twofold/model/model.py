"""The model: one encoder, then one or several decoders; it learns from batches and answers texts or images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from twofold.config import kind_of
from twofold.data.batches import make_target
from twofold.data.fields import SOURCE, TextField
from twofold.data.files import Row, Where, read_rows
from twofold.data.image_fields import ImageField, MaskField
from twofold.data.images import read_images
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import NOT_NUMBERS, TwofoldError, did_you_mean
from twofold.generate.decoder import TextDecoder
from twofold.generate.options import GenerateOptions
from twofold.layers.ranking import side_by_side
from twofold.layers.windows import read_windows
from twofold.model import saved
from twofold.model.config import ModelConfig
from twofold.model.fields import corruption_of, source_field, target_field
from twofold.model.learner import Evaluating, Learner
from twofold.model.sides import OwnOutput, TextOutput, output_of, source_of
from twofold.progress import Report
from twofold.results import Prediction, Weighed
from twofold.types import Batch, Decoder, DecoderConfig, Encoder, EncoderConfig, Example, Hidden, Loss

PREDICT_TOKENS = 4096
"""Rows × longest × beam of one batch when predicting."""
LEARN_ROWS = 64
"""Rows of one batch when the right answers are read as well."""
Input = Any
"""A text, or the turns of a dialogue, oldest first; two texts where two are read as one; words; or an image: a path, a
Pillow image, or an array of bytes."""


@dataclass(frozen=True)
class Looked:
    """Where a decoder looked as it wrote."""

    source: list[str]
    """Pieces of text; none where an image was looked at."""
    written: list[str]
    """Pieces of text; the last one is the end symbol."""
    weights: NDArray[np.float32]
    """(written, source), each row adding up to one; of an image (written, rows, columns)."""


class Model(Learner):
    """f : X → H, then g : H → Y."""

    def __init__(self, config: ModelConfig, tokenizers: Mapping[str, TextTokenizer]) -> None:
        """`tokenizers` has one for 'source' and one for each decoder by its name, where they are texts."""
        super().__init__()
        config.check()
        self.config = config
        self.tokenizers = dict(tokenizers)
        self.source: Any = source_field(config, self.tokenizers)
        """What is read: a `SourceField` or a `ImageField`."""
        self._reads = source_of(self.source)
        fields = {name: target_field(name, config, self.tokenizers, self.source) for name in config.decoders}
        self._writes = {name: output_of(field) for name, field in fields.items()}
        self.targets: dict[str, Any] = {
            name: field for name, field in fields.items() if not isinstance(self._writes[name], OwnOutput)
        }
        """For each decoder that writes a column its field."""
        self.corruption = corruption_of(config, self.tokenizers)
        """What is done to texts that are learned from, if anything is."""
        encoder = cast(EncoderConfig, config.encoder)
        self.encoder: Encoder = encoder.build(self.source.vocabulary, config.needs())
        self.decoders = nn.ModuleDict(
            {
                name: cast(DecoderConfig, slot.part).build(encoder.spec(), self._writes[name].writes)
                for name, slot in config.decoders.items()
            }
        )
        if config.tie_embeddings:
            self._tie_embeddings()
        for name in self.decoders:
            self.decoder(name).share(self.encoder.table())

    @classmethod
    def from_pretrained(cls, folder: str | Path, allow_code: bool = False) -> Self:
        """The model that `save_pretrained` or a training wrote; parts outside twofold only with `allow_code`."""
        found = saved.read(Path(folder), allow_code)
        if not isinstance(found.config, ModelConfig):
            raise TwofoldError(f"{folder}: ranks candidates and writes no text; load it with twofold.load")
        config, tokenizers = found.config, found.tokenizers
        saved.check_sizes(lambda: cls(config, tokenizers), found)
        model = cls(config, tokenizers)
        saved.load_weights(model, found.path)
        return model.eval()

    def save_pretrained(self, folder: str | Path) -> None:
        saved.write(self, self.config, self.tokenizers, Path(folder))

    def take_weights(self, folder: str | Path, anyway: bool = False) -> None:
        """Begin with the weights of another model's encoder, all of which must fit unless `anyway`."""
        path = saved.read(Path(folder), allow_code=False).path
        theirs = {name: one for name, one in saved.read_weights(path).items() if name.startswith("encoder.")}
        saved.take(self, theirs, path, anyway)

    # --- learning ---

    def batch(self, examples: Sequence[Example], targets: bool = True) -> Batch:
        """Examples, each a mapping from column names to texts, as tensors on the model's device."""
        if not examples:
            raise TwofoldError("a batch needs at least one example")
        rows = [Row(f"example {number}", values) for number, values in enumerate(examples, start=1)]
        return self.batch_of(rows, targets)

    def batch_of(self, rows: Sequence[Row], targets: bool = True) -> Batch:
        """Rows of a file as tensors on the model's device."""
        return self._batch(self._reads.read(rows), self._written(rows) if targets else None, range(len(rows)))

    def read(self, where: Where, images: str | None = None) -> Iterator[Row]:
        """The rows of a file in the form of the training data; `images` is where a table's images lie."""
        if not isinstance(self.source, ImageField):
            return read_rows(where)
        masks = [field.column for field in self.targets.values() if isinstance(field, MaskField)]
        if not isinstance(where, str):
            raise TwofoldError("images are named by one table, or lie in one folder")
        return self.usable(read_images(where, images, self.source.column, masks[0] if masks else None))

    def usable(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Those of the rows that can be read; what is wrong with the others is said, or is an error."""
        fields = [self.source, *self.targets.values()]
        return (row for row in rows if all(field.encode([row]).ids[0] for field in fields))

    def batches(self, rows: Sequence[Row], decoder: str) -> Iterator[Batch]:
        """All rows, in batches of like length or size, with what one decoder is to write."""
        items, written = self._reads.read(rows), self._written(rows, decoder)
        for numbers in self._reads.groups(items, PREDICT_TOKENS):
            for start in range(0, len(numbers), LEARN_ROWS):
                yield self._batch(items, written, numbers[start : start + LEARN_ROWS])

    def _written(self, rows: Sequence[Row], decoder: str | None = None) -> dict[str, Sequence[Any]]:
        """For each decoder that writes a column, or for one of them, what it is to write, row by row."""
        return {name: self._writes[name].read(rows) for name in self.targets if decoder in (None, name)}

    def _batch(
        self, items: Sequence[Any], written: Mapping[str, Sequence[Any]] | None, numbers: Sequence[int]
    ) -> Batch:
        """Some of the items; what is done to them is the same whenever they are judged."""
        chosen = [items[number] for number in numbers]
        if written is None or not self.corruption:
            batch = self._reads.batch(chosen)
        else:
            draws = [np.random.default_rng([0, number]) for number in numbers]
            batch = self.corruption.batch(
                self.source, chosen, draws, lambda draw: items[int(draw.integers(len(items)))]
            )
        targets = {
            name: self._writes[name].target([things[number] for number in numbers])
            for name, things in (written or {}).items()
        }
        return replace(batch, targets={**batch.targets, **targets}).to(self.device)

    @property
    def weights(self) -> Mapping[str, float]:
        return {name: slot.weight for name, slot in self.config.decoders.items()}

    def losses(self, batch: Batch) -> dict[str, Loss]:
        with self.autocast():
            hidden = self._encoded(batch)
            return {
                # What was read once is told to every target that belongs to it.
                name: self.decoder(name).loss(
                    hidden if target.rows is None else hidden.select(target.rows), target, batch.progress
                )
                for name, target in batch.targets.items()
            }

    def counts(self, batch: Batch) -> dict[str, int]:
        return {name: self.decoder(name).count(target) for name, target in batch.targets.items()}

    def tokens(self, batch: Batch) -> int:
        read = sum(int(one.mask.sum()) for one in (batch, batch.second) if one is not None)
        return read + sum(self.counts(batch).values())

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
        inputs: Sequence[Input] | Input,
        options: GenerateOptions | None = None,
        decoder: str | None = None,
        report: Report | None = None,
        prefix: str | None = None,
    ) -> list[Prediction]:
        """One prediction for each input, in order; `inputs` may be a single text, path or image.

        prefix: how captions begin, which a model that was trained for it goes on from
        """
        shown = isinstance(self.source, ImageField)
        single = not isinstance(inputs, list | tuple) if shown else isinstance(inputs, str)
        if not single and (isinstance(inputs, bytes | bytearray) or not isinstance(inputs, Sequence)):
            raise TwofoldError(f"predict takes one input or a list of them, not {type(inputs).__name__}; give a list")
        given: Sequence[Input] = [inputs] if single else inputs
        options = options or self.config.generate
        part, output = self.decoder(decoder), self._writes[self.decoder_name(decoder)]
        items = self._reads.read(self._rows(given, prefix))
        results: dict[int, Prediction] = {}
        with Evaluating(self):
            for numbers in self._reads.groups(items, PREDICT_TOKENS // options.beam):
                batch = self._reads.batch([items[number] for number in numbers]).to(self.device)
                for number, made in zip(numbers, _made(part, self._encoded(batch), options), strict=True):
                    results[number] = output.answer(given[number], items[number], made)
                if report:
                    report(len(results))
        return [results[number] for number in range(len(given))]

    @torch.no_grad()
    def answers(self, batch: Batch, decoder: str | None = None) -> Sequence[Any]:
        """What a decoder makes of a batch, before it is put into the form of the data."""
        with Evaluating(self):
            return _made(self.decoder(decoder), self._encoded(batch), self.config.generate)

    def stream(
        self,
        given: Input,
        options: GenerateOptions | None = None,
        decoder: str | None = None,
        prefix: str | None = None,
    ) -> Iterator[str]:
        """Pieces of the output as they are written, greedily unless the options sample; joined they are the output."""
        part, field = self._text_decoder(decoder)
        options = options or replace(self.config.generate, beam=1, n_best=1)
        if options.beam > 1:
            raise TwofoldError(
                f"a stream cannot take words back, as a beam of {options.beam} may; set beam=1 or sample"
            )
        batch = self._reads.batch(self._reads.read(self._rows([given], prefix))).to(self.device)
        tokens: list[int] = batch.tokens[0].tolist() if prefix else []
        shown = field.decode(tokens)
        if shown:
            yield shown
        with Evaluating(self):
            for token in part.stream(self._encode(batch), options):
                tokens.append(token)
                now = field.decode(tokens)
                yield now[len(shown) :]
                shown = now

    @torch.no_grad()
    def attention(
        self,
        given: Input,
        output: str | Sequence[int],
        decoder: str | None = None,
        prefix: str | None = None,
    ) -> Looked:
        """Where the decoder looks at a text or an image as it writes `output`.

        output: the tokens of a prediction, or any text, which is tokenized and of which `prefix` was given
        """
        part, field = self._text_decoder(decoder)
        name = self.decoder_name(decoder)
        if not part.attends:
            kind = kind_of(self.config.decoders[name].part)
            raise TwofoldError(f"the decoder '{kind}' has no attention to show: all it sees is one vector")
        items = self._reads.read(self._rows([given], prefix))
        if isinstance(output, str):
            begun = field.decode(items[0].prefix) if prefix else ""
            output = field.tokenizer.encode([output.removeprefix(begun)])[0]
        written = output[: field.limit]
        target = make_target([written], field.vocabulary).to(self.device)
        with Evaluating(self):
            hidden = self._encode(self._reads.batch(items).to(self.device))
            weights = part.attention(hidden, target.tokens[:, :-1])[0].cpu().numpy()
        pieces = field.tokenizer.pieces([*written, field.tokenizer.end])
        if hidden.grid:
            places = weights[:, : hidden.grid[0] * hidden.grid[1]]  # those of the text that was read stand behind
            return Looked([], pieces, places.reshape(len(pieces), *hidden.grid))
        return Looked(self.tokenizers[SOURCE].pieces(items[0]), pieces, weights)

    def _rows(self, given: Sequence[Input], prefix: str | None) -> list[Row]:
        begun = {}
        if prefix is not None and not prefix.strip():
            raise TwofoldError("the beginning of a text is empty; leave it out")
        if prefix:
            field = self.source.prefix if isinstance(self.source, ImageField) else None
            if field is None:
                raise TwofoldError("this model reads no beginning of a text; train a `vit` with encoder.prefix=true")
            begun = {field.column: prefix}
        rows = [self.source.given(one, f"input {number}") for number, one in enumerate(given, start=1)]
        return [Row(row.place, {**row.values, **begun}) for row in rows]

    def _text_decoder(self, name: str | None) -> tuple[TextDecoder, TextField]:
        part, output = self.decoder(name), self._writes[self.decoder_name(name)]
        if not isinstance(part, TextDecoder) or not isinstance(output, TextOutput):
            raise TwofoldError(f"the decoder '{self.decoder_name(name)}' does not write text")
        return part, output.field

    def _encoded(self, batch: Batch) -> Hidden:
        """What the encoder reads, with the places of words and of two texts in it."""
        if batch.second is not None:
            return side_by_side(self.encoder(batch), self.encoder(batch.second))
        if batch.windows is not None:
            return replace(read_windows(self.encoder, batch, batch.windows, PREDICT_TOKENS), words=batch.words)
        return replace(self.encoder(batch), words=batch.words, segments=batch.segments)

    @torch.no_grad()
    def _encode(self, batch: Batch) -> Hidden:
        return self._encoded(batch)

    def _tie_embeddings(self) -> None:
        """Let every decoder use the encoder's table of token vectors."""
        shared: Any = getattr(self.encoder, "embedding", None)
        source = self.tokenizers.get(SOURCE, next(iter(self.tokenizers.values())))
        part: Any
        for name, part in self.decoders.items():
            own: Any = getattr(part, "embedding", None)
            if name not in self.tokenizers:  # it writes no text
                continue
            same = self.tokenizers[name].fingerprint() == source.fingerprint()
            if shared is None or own is None or own.weight.shape != shared.weight.shape or not same:
                raise TwofoldError(
                    f"tie_embeddings: the encoder and the decoder '{name}' must both have token vectors of the same "
                    "width over one vocabulary (tokenizer.shared=true)"
                )
            tied = part.output.weight is own.weight
            part.embedding = shared
            if tied:
                part.output.weight = shared.weight


def _made(part: Decoder, hidden: Hidden, options: GenerateOptions) -> Sequence[Any]:
    """What a decoder makes of each row, in numbers; nan would be shown as an answer like any other."""
    made = part.predict(hidden, options)
    for result in made:
        wrong = ~np.isfinite(result.values) if isinstance(result, Weighed) else np.isnan(getattr(result, "score", 0.0))
        if np.any(wrong):
            raise TwofoldError(f"the scores of the answer are {NOT_NUMBERS}")
    return made
