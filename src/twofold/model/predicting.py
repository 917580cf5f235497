"""Predictions, and streams of generated text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from twofold.data.tokenizer import Ids
from twofold.errors import NOT_NUMBERS, TwofoldError
from twofold.generate.decoder import TextDecoder
from twofold.generate.search import GenerateOptions
from twofold.inputs import INPUT
from twofold.inputs.text import Config as TextConfig
from twofold.inputs.text import TextInput
from twofold.outputs.captions import PREFIX
from twofold.outputs.text import TextOutput
from twofold.progress import Report
from twofold.results import Prediction, Scores
from twofold.types import Batch, Decoder, Vocabulary

if TYPE_CHECKING:
    from twofold.model.model import Model

PREDICT_TOKENS = 4096
"""Batch size in tokens: rows × longest × beam."""


@torch.no_grad()
def predict(
    model: Model,
    inputs: Any,
    options: GenerateOptions | None = None,
    decoder: str | None = None,
    report: Report | None = None,
    prefix: str | None = None,
) -> list[Prediction]:
    """Predicts one answer for each input, in order; `inputs` may be a single text, path or image.

    prefix: beginning of captions, for a model that was trained to continue one
    """
    given, options = model.input.several(inputs), options or model.config.generate
    part, output = model.decoder(decoder), model.outputs[model.decoder_name(decoder)]
    rows = [model.input.row(value, f"input {number}") for number, value in enumerate(given, start=1)]
    items, begun = model.input.items(rows), beginning(model, prefix)
    output.accept(rows, items)
    results: dict[int, Prediction] = {}
    with model.evaluating():
        for numbers in model.input.groups(items, PREDICT_TOKENS // options.beam):
            batch = reading_batch(model, [items[number] for number in numbers], begun)
            for number, raw in zip(numbers, _raw(model, batch, part, options), strict=True):
                results[number] = output.answer(given[number], items[number], raw, begun)
            if report:
                report(len(results))
    return [results[number] for number in range(len(given))]


@torch.no_grad()
def answers(model: Model, batch: Batch, decoder: str) -> Sequence[Any]:
    """Decoder's results for a batch, before they become answers."""
    with model.evaluating():
        return _raw(model, batch, model.decoder(decoder), model.config.generate)


def stream(
    model: Model,
    given: Any,
    options: GenerateOptions | None = None,
    decoder: str | None = None,
    prefix: str | None = None,
) -> Iterator[str]:
    """Yields pieces of the text as it is generated, greedily unless the options sample; joined, they are the output."""
    part, output = text_decoder(model, decoder)
    options = options or replace(model.config.generate, beam=1, n_best=1)
    if options.beam > 1:
        raise TwofoldError(f"stream: a beam of {options.beam} may revise words that were shown; set beam=1 or sample")
    begun = beginning(model, prefix)
    batch = reading_batch(model, model.input.items([model.input.row(given, "input 1")]), begun)
    tokens = [int(token) for token in begun]
    shown = output.text.decode(tokens)
    if shown:
        yield shown
    with model.evaluating():
        with torch.no_grad(), model.autocast():
            hidden = model.encode_batch(batch)
        for token in _in_precision(model, part.stream(hidden, options)):
            tokens.append(token)
            now = output.text.decode(tokens)
            yield now[len(shown) :]
            shown = now


def _in_precision(model: Model, written: Iterator[int]) -> Iterator[int]:
    """Computes each token in the model's precision, which does not reach into the caller's code between two."""
    while True:
        with model.autocast():
            token = next(written, None)
        if token is None:
            return
        yield token


def prefix_input(model: Model) -> TextInput:
    """Input that reads the beginning of a text, with the tokenizer of the first text decoder."""
    name = next(name for name, task in model.config.tasks.items() if task.output.writes_text)
    limit = cast(Vocabulary, model.outputs[name].spec).limit
    return TextConfig(column=PREFIX, max_tokens=limit, special_tokens=False).build(model.tokenizers[name])


def beginning(model: Model, prefix: str | None) -> Ids:
    """Token ids of the given beginning of an output."""
    if prefix is None:
        return ()
    if not prefix.strip():
        raise TwofoldError("prefix: empty; leave it out")
    if model.prefix is None:
        raise TwofoldError("prefix: this model was trained without prefixes; train a `vit` with encoder.prefix=true")
    return model.prefix.beginning(prefix)


def reading_batch(model: Model, items: Sequence[Any], begun: Ids) -> Batch:
    """Batch of items and the beginning of their outputs, on the model's device."""
    inputs = {INPUT: model.input.batch(items)}
    if len(begun) and model.prefix is not None:
        inputs[PREFIX] = model.prefix.batch([begun] * len(items))
    return Batch(inputs).to(model.device)


def _raw(model: Model, batch: Batch, part: Decoder, options: GenerateOptions) -> Sequence[Any]:
    """Decoder's result for each row of a batch."""
    if model.writer is not None and (written := model.writer(batch, options)) is not None:
        return checked(written)
    if not isinstance(part, TextDecoder):
        return checked(part.predict(model.encode_batch(batch), options))
    with model.autocast():  # most of the time is the decoder's, and its scores are float32
        return checked(part.predict(model.encode_batch(batch), options))


def checked(results: Sequence[Any]) -> Sequence[Any]:
    """Refuses results that are NaN, which would be shown as answers like any other."""
    for result in results:
        score = result.values if isinstance(result, Scores) else getattr(result, "score", 0.0)
        if not np.all(np.isfinite(score) if isinstance(result, Scores) else ~np.isnan(score)):
            raise TwofoldError(f"the scores of the answer are {NOT_NUMBERS}")
    return results


def text_decoder(model: Model, name: str | None) -> tuple[TextDecoder, TextOutput]:
    """Decoder of a name, or the first one, and its output; one that writes no text is an error."""
    part, output = model.decoder(name), model.outputs[model.decoder_name(name)]
    if not isinstance(part, TextDecoder):
        raise TwofoldError(f"the decoder '{model.decoder_name(name)}' does not write text")
    return part, cast(TextOutput, output)
