"""Route `/predict`: answers of models that do not rank, and the form that text-embeddings-inference has for labels."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import orjson
from pydantic import Field
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from twofold.model import Model, Ranker
from twofold.outputs import Output
from twofold.results import Prediction
from twofold.serve.bodies import StrictBody, shaped
from twofold.serve.errors import RefusalError, too_many
from twofold.serve.given import value_of
from twofold.serve.jobs import Job, Reading
from twofold.serve.options import options_of
from twofold.serve.registry import ServedModel
from twofold.serve.routes import Call
from twofold.serve.service import check_count
from twofold.serve.settings import Limits

LETTERS = 4
"""Letters of a token, about: batches are planned before texts are tokenized."""
FILE_TOKENS = 256
"""Tokens that an image or a sound counts as, where batches are planned."""
FILES, FIELDS = 64, 16
"""Maximum numbers of files and of other fields of a form."""


class PredictBody(StrictBody):
    """Inputs to answer: one, or several in a list."""

    model: str | None = None
    input: Any = Field(None, description='Text, words, {"first", "second"}, or {"image": "<base64>"}, {"audio": ...}')
    batch: list[Any] | None = Field(None, description="Several inputs")
    inputs: Any = Field(None, description="Texts to label, in the form of text-embeddings-inference")
    truncate: bool | None = None
    raw_scores: bool | None = None
    options: dict[str, Any] = Field({})
    decoder: str | None = None


def answers(model: Model) -> bool:
    """Returns True for a model that answers inputs."""
    return not isinstance(model, Ranker)


async def predict(call: Call[PredictBody]) -> Any:
    """Answers inputs, whatever the model's output is: labels, numbers, tags, trees, texts, masks."""
    body = call.body
    served = call.service.registry.model(body.model, answers)
    model = served.predictor
    given = [body.input] if body.batch is None else body.batch
    if (body.input is None) == (body.batch is None):
        raise RefusalError("invalid", "give either input, one value, or batch, a list of values", "input")
    limits = call.service.settings.limits
    if len(given) > limits.texts:
        raise too_many("inputs", len(given), limits.texts, "batch")
    place = "input" if body.batch is None else "batch[{}]"
    values = [value_of(model.input, value, place.format(number), limits) for number, value in enumerate(given)]
    return await _answered(call, served, values)


async def _answered(call: Call[PredictBody], served: ServedModel, values: Sequence[Any]) -> dict[str, Any]:
    model, decoder = served.predictor, served.predictor.decoder_name(call.body.decoder)
    predictions = await predictions_of(call, served, values, decoder, call.body.options)
    output = model.outputs[decoder]
    return {"model": served.name, "predictions": [as_content(output, prediction) for prediction in predictions]}


async def predictions_of(
    call: Call[Any], served: ServedModel, values: Sequence[Any], decoder: str, options: dict[str, Any]
) -> list[Prediction]:
    """Predictions for values, which share batches with those of other requests."""
    model, how = served.predictor, options_of(call.service, served.predictor, options)

    def read(values: list[Any]) -> list[Prediction]:
        return model.predict(values, how, decoder)

    check_count(values, "input", call.service.settings.limits)
    lengths = [how.beam * _length(value) for value in values]
    call.service.check_tokens(lengths, "input")
    reading = Reading(
        (id(model), decoder, how), values, lengths, read, lambda parts: [x for part in parts for x in part]
    )
    predictions: list[Prediction] = await call.service.run(call.request, served, Job(lambda read: read[0], (reading,)))
    return predictions


def _length(value: Any) -> int:
    """Tokens of a value, about."""
    if isinstance(value, str):
        return 1 + len(value) // LETTERS
    if isinstance(value, list):
        return sum(map(_length, value))
    return FILE_TOKENS


def as_content(output: Output[Any], prediction: Prediction) -> dict[str, Any]:
    """JSON of an answer, as `twofold predict --json` prints it, without the input."""
    given = [(output.plain(prediction.output), prediction.score), *prediction.alternatives]
    scored: list[dict[str, Any]] = [{"output": answer, "score": score} for answer, score in given]
    for content, normalized in zip(scored, prediction.normalized_scores, strict=False):
        content["normalized_score"] = normalized
    return scored[0] | ({"alternatives": scored[1:]} if prediction.alternatives else {})


async def from_form(request: Request, raw: bytes, limits: Limits) -> PredictBody:
    """Reads a form: its files are the inputs, its other fields are those of the JSON body."""
    form = await _form(request, raw, limits)
    fields: dict[str, Any] = {}
    files: list[bytes] = []
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            files.append(await value.read())
        else:
            fields[name] = value
    await form.close()
    if not files:
        raise RefusalError("invalid", "the form holds no file; send one or several", "file")
    if "options" in fields:
        try:
            fields["options"] = orjson.loads(fields["options"])
        except orjson.JSONDecodeError as error:
            raise RefusalError("malformed", f"options: not JSON ({error})", "options") from None
    return shaped(PredictBody, {**fields, "batch": files})


async def _form(request: Request, raw: bytes, limits: Limits) -> FormData:
    async def stream() -> AsyncGenerator[bytes, None]:
        yield raw

    parser = MultiPartParser(request.headers, stream(), max_files=FILES, max_fields=FIELDS, max_part_size=limits.body)
    parser.spool_max_size = limits.body  # nothing is written to the disk
    try:
        return await parser.parse()
    except (MultiPartException, KeyError, ValueError) as error:
        reason = getattr(error, "message", None) or str(error)
        raise RefusalError("malformed", f"the form cannot be read: {reason}") from None
