"""Texts written by CTranslate2: the model is converted once, checked against torch and kept in a cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor

from twofold import storage
from twofold.errors import TwofoldError
from twofold.generate.decoder import TextDecoder
from twofold.generate.search import GenerateOptions
from twofold.inputs import INPUT
from twofold.inputs.text import TextInput, Tokens
from twofold.model import Model
from twofold.precision import processor_flags
from twofold.results import Hypotheses, Hypothesis
from twofold.runtime import store
from twofold.runtime.store import Record
from twofold.types import Batch, Target, Vocabulary

PATIENCE = 2
"""The beam goes on until this many times its size have ended (Kasai et al. 2022). Ours ends by its scores, mostly
between once and twice its size, so a text that is best at both ends is the one that ours finds."""
LARGEST_DIFFERENCE = {"float32": 1e-3, "int8": 1.0}
"""Largest difference of a token's log-probability from torch on the samples, by precision."""
SAMPLES = 4
"""Number of texts, of random tokens and of different lengths, that are compared with torch."""


class Translating:
    """Model that an engine computes as a whole, from the tokens of the input to the hypotheses of the output."""

    def __init__(self, model: Model, engine: ModuleType, precision: str, announce: Callable[[], None]) -> None:
        self.model, self.engine, self.precision, self.announce = model, engine, precision, announce
        self.name = engine.__name__.rsplit(".", 1)[-1]
        self._vocabulary = cast(Vocabulary, model.outputs[model.decoder_name(None)].spec)
        self._parameters = [module._parameters for module in model.modules() if module._parameters]
        self._weights, self._process = self._versions(), os.getpid()
        self._threads: int | None = None
        self._translator: Any = None
        self._refused, self._said = "", False

    def __call__(self, batch: Batch, options: GenerateOptions) -> list[Hypotheses] | None:
        """Writes hypotheses for each row; None if torch must write them."""
        if self._refused or self._process != os.getpid():
            return None
        if options.sample or options.no_repeat or options.n_best > 1:
            self._say_once("sampling, no_repeat and n_best are not its own")
            return None
        if self._weights != self._versions() or batch.inputs.keys() != {INPUT}:
            return None
        if self._threads != torch.get_num_threads():
            self._threads = torch.get_num_threads()
            self._open()
        if self._refused:
            return None
        text, part = batch.read(Tokens), cast(TextDecoder, self.model.decoder())
        written = self._written(text, options)
        # CTranslate2 can forbid tokens, but then its probabilities are shares of the others. Ours are of all tokens, so
        # nothing is forbidden, and the rare texts with such a token are written again.
        wrong = [row for row, (best, sure) in enumerate(written) if not sure or self._is_forbidden(best)]
        hypotheses = [best for best, _ in written]
        if wrong:
            again = Batch({INPUT: Tokens(text.tokens[wrong], text.mask[wrong])})
            for row, right in zip(wrong, part.predict(self.model.encode_batch(again), options), strict=True):
                hypotheses[row] = right
        return hypotheses

    def _is_forbidden(self, hypotheses: Hypotheses) -> bool:
        never = {self._vocabulary.pad, self._vocabulary.start, self._vocabulary.unknown}
        return any(not never.isdisjoint(hypothesis.tokens) for hypothesis in hypotheses.hypotheses)

    def _written(self, text: Tokens, options: GenerateOptions) -> list[tuple[Hypotheses, bool]]:
        vocabulary = self._vocabulary
        results = self._translator.translate_batch(
            self._sources(text),
            beam_size=options.beam,
            patience=PATIENCE if options.beam > 1 else 1,
            num_hypotheses=PATIENCE * options.beam if options.beam > 1 else 1,
            length_penalty=options.length_penalty,
            min_decoding_length=options.min_length,
            max_decoding_length=min(options.max_length or vocabulary.limit, vocabulary.limit),
            max_input_length=0,
            return_end_token=True,
            return_scores=True,
        )
        return [self._best(result, options) for result in results]

    def _best(self, result: Any, options: GenerateOptions) -> tuple[Hypotheses, bool]:
        """Best hypothesis; true if it is also the best of those that had ended when the beam was full of them."""
        best = self._hypothesis([self._ids[name] for name in result.hypotheses[0]], result.scores[0], options)
        lengths = sorted(map(len, result.hypotheses))
        sure = len(lengths) < options.beam or len(result.hypotheses[0]) <= lengths[options.beam - 1]
        return Hypotheses((best,)), sure

    def _hypothesis(self, tokens: list[int], normalized: float, options: GenerateOptions) -> Hypothesis:
        score = normalized * len(tokens) ** options.length_penalty
        if tokens and tokens[-1] == self._vocabulary.end:
            tokens = tokens[:-1]
        return Hypothesis(tuple(tokens), score, normalized)

    def _sources(self, text: Tokens) -> list[list[str]]:
        lengths = text.mask.sum(1).tolist()
        rows = zip(text.tokens.tolist(), lengths, strict=True)
        return [[self._read[token] for token in tokens[:length]] for tokens, length in rows]

    def _open(self) -> None:
        """Opens the converted model, and converts and checks it first if that was not done on this machine."""
        self._refused = self.engine.refusal(self.model) or ""
        try:
            if not self._refused:
                self._refused = self._opened()
        except TwofoldError as error:
            self._refused = str(error)
        except OSError as error:
            self._refused = f"its file cannot be kept in the cache folder ({error.strerror or error})"
        if self._refused:
            self._say_once(self._refused)

    def _opened(self) -> str:
        name = self.model.decoder_name(None)
        self._names = self.engine.token_names(self.model.tokenizers[name], self._vocabulary.size)
        self._ids = {piece: number for number, piece in enumerate(self._names)}
        self._read = self.engine.token_names(
            self.model.tokenizers[INPUT], len(cast(Tensor, self.model.encoder.table()))
        )
        code = storage.sha256(Path(self.engine.__file__ or ""))
        folder = store.engines_folder() / hashlib.sha256(f"{self.model.fingerprint()} {code}".encode()).hexdigest()[:40]
        path = folder / self.engine.FILE
        record = store.known_record(path, self.name, self.precision, self.engine.version(), self._say)
        if not path.is_file():
            shutil.rmtree(folder, ignore_errors=True)
            store.add_folder(folder, self._convert)
        try:
            self._translator = self.engine.load(folder, self.precision, self._threads)
        except RuntimeError as error:  # of files beside the weights
            shutil.rmtree(folder, ignore_errors=True)
            return f"its files are damaged ({str(error).splitlines()[0]}) and removed"
        if record is None:
            about = (self.name, self.precision, self.engine.version(), list(processor_flags()), storage.sha256(path))
            largest = self._difference()
            far = not largest <= LARGEST_DIFFERENCE[self.precision]
            refused = f"log-probabilities differ from torch by {largest:.1e}" if far else ""
            record = Record(*about, largest_difference=largest, refused=refused)
            store.write_record(folder, record)
        store.mark_used(folder)
        return record.refused

    def _convert(self, folder: Path) -> None:
        self.announce()
        self.engine.convert(self.model, folder)

    @torch.no_grad()
    def _difference(self) -> float:
        """Returns the largest difference of the log-probabilities of random texts from torch."""
        draw, vocabulary = torch.Generator().manual_seed(0), self._vocabulary
        special = {vocabulary.pad, vocabulary.start, vocabulary.end, vocabulary.unknown}
        longest = min(cast(TextInput, self.model.input).limit, vocabulary.limit - 1)
        lengths = [1 + number * (longest - 1) // SAMPLES for number in range(SAMPLES)]

        def drawn(size: int) -> list[list[int]]:
            usual = torch.tensor([token for token in range(size) if token not in special] or [0])
            return [usual[torch.randint(len(usual), (length,), generator=draw)].tolist() for length in lengths]

        sources, targets = drawn(len(self._read)), drawn(vocabulary.size)
        output = self.model.outputs[self.model.decoder_name(None)]
        target: Target = output.target(targets)
        items = [torch.tensor(tokens) for tokens in sources]
        tokens = torch.nn.utils.rnn.pad_sequence(items, batch_first=True)
        mask = torch.arange(tokens.shape[1]) < torch.tensor(lengths)[:, None]
        text = Tokens(tokens, mask)
        hidden = self.model.encoder.forward(Batch({INPUT: text}))
        part = cast(TextDecoder, self.model.decoder())
        expected = part.token_log_probabilities(hidden, target)
        named = [[self._names[token] for token in row] for row in targets]
        scored = self._translator.score_batch(self._sources(text), named, max_input_length=0)
        return max(
            float((torch.tensor(ours.log_probs) - theirs[: len(ours.log_probs)]).abs().max())
            for ours, theirs in zip(scored, expected, strict=True)
        )

    def _say_once(self, reason: str) -> None:
        if not self._said:
            warnings.warn(f"{self.name}: {reason}; torch is used", stacklevel=3)
        self._said = True

    def _say(self, reason: str) -> None:
        warnings.warn(f"{self.name}: {reason}", stacklevel=2)

    def _versions(self) -> list[int]:
        """Returns a value that changes when any weight is changed in place or replaced."""
        tensors = [tensor for table in self._parameters for tensor in table.values() if tensor is not None]
        return [number for tensor in tensors for number in (tensor._version, tensor.data_ptr())]
