"""Texts as they are written: token by token, and where the decoder looks meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch

from twofold.config import kind_of
from twofold.errors import TwofoldError
from twofold.generate.decoder import TextDecoder
from twofold.generate.options import GenerateOptions
from twofold.model.evaluating import Evaluating
from twofold.outputs.text import TextOutput
from twofold.results import AttentionMap

if TYPE_CHECKING:
    from twofold.model.model import Model


def stream(
    model: Model,
    given: Any,
    options: GenerateOptions | None = None,
    decoder: str | None = None,
    prefix: str | None = None,
) -> Iterator[str]:
    """Pieces of the output as they are written, greedily unless the options sample; joined they are the output."""
    part, output = _text_decoder(model, decoder)
    options = options or replace(model.config.generate, beam=1, n_best=1)
    if options.beam > 1:
        raise TwofoldError(f"a stream cannot take words back, as a beam of {options.beam} may; set beam=1 or sample")
    begun = model.beginning(prefix)
    batch = model.reading_batch(model.input.items([model.input.row(given, "input 1")]), begun)
    tokens = [int(token) for token in begun]
    shown = output.text.decode(tokens)
    if shown:
        yield shown
    with Evaluating(model):
        with torch.no_grad():
            hidden = model.encode_batch(batch)
        for token in part.stream(hidden, options):
            tokens.append(token)
            now = output.text.decode(tokens)
            yield now[len(shown) :]
            shown = now


@torch.no_grad()
def attention(
    model: Model, given: Any, written: str | Sequence[int], decoder: str | None = None, prefix: str | None = None
) -> AttentionMap:
    """Where the decoder looks at a text or an image as it writes.

    written: the tokens of a prediction, or any text, which is tokenized and of which `prefix` was given
    """
    part, output = _text_decoder(model, decoder)
    if not part.attends:
        kind = kind_of(model.config.tasks[model.decoder_name(decoder)].decoder)
        raise TwofoldError(f"the decoder '{kind}' has no attention to show: all it sees is one vector")
    items, begun = model.input.items([model.input.row(given, "input 1")]), model.beginning(prefix)
    tokenizer = output.text.tokenizer
    if isinstance(written, str):
        written = tokenizer.encode([written.removeprefix(output.text.decode([int(token) for token in begun]))])[0]
    written = list(written[: output.text.limit])
    target = output.text_target([written]).to(model.device)
    with Evaluating(model):
        hidden = model.encode_batch(model.reading_batch(items, begun))
        weights = part.attention(hidden, target.tokens[:, :-1])[0].cpu().numpy()
    pieces = tokenizer.pieces([*written, tokenizer.end])
    if hidden.grid:
        places = weights[:, : hidden.grid[0] * hidden.grid[1]]  # those of the text that was read stand behind
        return AttentionMap([], pieces, places.reshape(len(pieces), *hidden.grid))
    return AttentionMap(model.input.pieces(items[0]), pieces, weights)


def _text_decoder(model: Model, name: str | None) -> tuple[TextDecoder, TextOutput]:
    part, output = model.decoder(name), model.outputs[model.decoder_name(name)]
    if not isinstance(part, TextDecoder):
        raise TwofoldError(f"the decoder '{model.decoder_name(name)}' does not write text")
    return part, cast(TextOutput, output)
