"""Routes that write: `/generate`, as a whole or streamed, and `/next`, the choices after a forced beginning."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterator
from typing import Any

from pydantic import Field
from starlette.responses import StreamingResponse

from twofold.errors import TwofoldError
from twofold.generate.search import GenerateOptions
from twofold.model import Model
from twofold.model.continuing import Continuation, Token, Written
from twofold.serve.bodies import Many, StrictBody
from twofold.serve.errors import PLAIN, RefusalError
from twofold.serve.given import value_of
from twofold.serve.jobs import Stream
from twofold.serve.options import options_of
from twofold.serve.registry import ServedModel
from twofold.serve.routes import Call, Route, dumps
from twofold.serve.service import check_count

LONGEST_PREFIX = 1_000
END = object()
"""Last bit of a stream."""


class NextBody(StrictBody):
    """Input of a model that writes text, and the tokens of a beginning."""

    model: str | None = None
    input: Any
    prefix: Many[str | int] = Field(
        [], max_length=LONGEST_PREFIX, description="Tokens of the beginning, as the model shows them, or their ids"
    )
    top: int = Field(10, ge=1, le=100)
    decoder: str | None = None


class GenerateBody(StrictBody):
    """Input of a model that writes text."""

    model: str | None = None
    input: Any
    prefix: Many[str | int] = Field(
        [], max_length=LONGEST_PREFIX, description="Tokens of a forced beginning, which the model continues"
    )
    options: dict[str, Any] = Field({}, description="beam, n_best, length_penalty, max_length, sample, ...")
    decoder: str | None = None
    stream: bool = False


def writes(model: Model) -> bool:
    """Returns True for a model with a decoder that writes text."""
    return any(task.output.writes_text for task in model.config.tasks.values())


def _opened(call: Call[Any]) -> tuple[ServedModel, Any]:
    """Model and input of a request."""
    served = call.service.registry.model(call.body.model, writes)
    model, limits = served.predictor, call.service.settings.limits
    value = value_of(model.input, call.body.input, "input", limits)
    check_count([value], "input", limits)
    return served, value


async def next_token(call: Call[NextBody]) -> dict[str, Any]:
    """Shows the most likely next tokens after a forced beginning."""
    served, value = _opened(call)
    body, model = call.body, served.predictor

    def choices() -> dict[str, Any]:
        continuation = Continuation(model, value, body.prefix, body.decoder)
        shown = [
            {"token": token.piece, "id": token.id, "probability": token.probability}
            for token in continuation.choices(body.top)
        ]
        return {"prefix": continuation.pieces, "choices": shown, "text": continuation.text}

    content: dict[str, Any] = await call.service.waiting(call.request, served.batcher.call(choices))
    return content


async def generate(call: Call[GenerateBody]) -> Any:
    """Writes a text; with `stream`, token by token as server-sent events."""
    served, value = _opened(call)
    body, model = call.body, served.predictor
    options = options_of(call.service, model, body.options)
    if body.stream:
        if body.options.get("beam", 1) != 1:
            said = "options.beam: a beam may revise words that were sent; set beam to 1, or stream to false"
            raise RefusalError("invalid", said, "options.beam")
        return await _streamed(call, served, value, dataclasses.replace(options, beam=1, n_best=1))

    def write() -> Written:
        return Continuation(model, value, body.prefix, body.decoder).write(options)

    written = await call.service.waiting(call.request, served.batcher.call(write))
    return as_content(written)


def as_content(written: Written) -> dict[str, Any]:
    """JSON of a text."""
    return {"text": written.text, "tokens": written.pieces, "ids": written.ids, "score": written.score}


async def _streamed(call: Call[GenerateBody], served: ServedModel, value: Any, options: GenerateOptions) -> Any:
    """Streams a text; an error before the first token is an answer of its own."""
    bits: asyncio.Queue[Any] = asyncio.Queue()
    body, model = call.body, served.predictor

    def write(_: list[Any]) -> Iterator[Token | Written]:
        return Continuation(model, value, body.prefix, body.decoder).stream(options)

    task = asyncio.ensure_future(served.batcher.run(Stream(write, give=bits.put_nowait)))
    task.add_done_callback(lambda _: bits.put_nowait(END))
    try:
        async with asyncio.timeout(call.service.settings.limits.seconds):
            first = await bits.get()
    except BaseException:
        task.cancel()
        raise
    if first is END:
        task.result()
    return StreamingResponse(_events(first, bits, task, call), media_type="text/event-stream", headers=NOT_KEPT)


NOT_KEPT = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def _events(
    first: Any, bits: asyncio.Queue[Any], task: asyncio.Task[Any], call: Call[GenerateBody]
) -> AsyncIterator[bytes]:
    """Server-sent events of the tokens and of the whole text at the end."""
    bit = first
    try:
        async with asyncio.timeout(call.service.settings.limits.seconds):
            while bit is not END:
                yield b"data: " + dumps(_event(bit)) + b"\n\n"
                bit = await bits.get()
        task.result()
    except TimeoutError:
        yield _failed(RefusalError("overloaded", "the text takes too long; set options.max_length"))
    except RefusalError as error:
        yield _failed(error)
    except TwofoldError as error:
        yield _failed(RefusalError("invalid", call.service.registry.named(str(error))))
    finally:
        task.cancel()


def _event(bit: Token | Written) -> dict[str, Any]:
    if isinstance(bit, Written):
        return {"done": True, **as_content(bit)}
    return {"token": bit.piece, "id": bit.id, "probability": bit.probability, "text": bit.text}


def _failed(error: RefusalError) -> bytes:
    return b"data: " + dumps(PLAIN.body(error)) + b"\n\n"


ROUTES = (Route("/generate", generate, GenerateBody), Route("/next", next_token, NextBody))
