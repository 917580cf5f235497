"""Routes of OpenAI's convention: embeddings and the list of models."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from twofold.serve.bodies import Body, Texts, as_texts
from twofold.serve.embedding import check_texts, embedded, embeds, shortened
from twofold.serve.errors import Convention, Reason, RefusalError
from twofold.serve.routes import Call, Route

CREATED = 1_735_689_600
"""Time of creation of every model, which the convention wants: the beginning of 2025."""
TYPES: Mapping[Reason, str] = {
    "unauthorized": "authentication_error",
    "forbidden": "permission_error",
    "not_found": "not_found_error",
    "overloaded": "rate_limit_error",
    "internal": "server_error",
}
CODES: Mapping[Reason, str] = {"unauthorized": "invalid_api_key", "overloaded": "rate_limit_exceeded"}
IDS = (
    "input: token ids are of the client's tokenizer, and this model has another; have the client send texts "
    "(langchain: OpenAIEmbeddings(check_embedding_ctx_length=False))"
)


def _error(refusal: RefusalError) -> dict[str, Any]:
    code = CODES.get(refusal.reason)
    if refusal.reason == "not_found" and refusal.place == "model":
        code = "model_not_found"
    kind = TYPES.get(refusal.reason, "invalid_request_error")
    return {"error": {"message": refusal.message, "type": kind, "param": refusal.place, "code": code}}


OPENAI = Convention("openai", _error, {"invalid": 400, "failed": 400})


class EmbeddingsBody(Body):
    """Texts to embed."""

    input: str | Texts
    model: str | None = None
    dimensions: int | None = Field(None, ge=1)
    encoding_format: Literal["float", "base64"] | None = None
    user: str | None = None
    input_type: Literal["query", "document"] | None = Field(None, description="Side of the model that reads the texts")


async def embeddings(call: Call[EmbeddingsBody]) -> dict[str, Any]:
    """Embeds texts."""
    body = call.body
    texts = [body.input] if isinstance(body.input, str) else body.input
    if isinstance(texts[0] if texts else "", int | list):
        raise RefusalError("invalid", IDS, "input")
    texts = as_texts(texts, "input")
    check_texts(texts, "input", call.service.settings.limits)
    served = call.service.registry.model(body.model, embeds)
    answer = await embedded(call.service, call.request, served, texts, body.input_type == "query")
    vectors = shortened(answer.vectors, body.dimensions, "dimensions")
    written: Any = vectors
    if body.encoding_format == "base64":
        rows = vectors.astype("<f4", copy=False)
        written = [base64.b64encode(row.tobytes()).decode() for row in rows]
    data = [{"object": "embedding", "index": number, "embedding": row} for number, row in enumerate(written)]
    usage = {"prompt_tokens": answer.tokens, "total_tokens": answer.tokens}
    return {"object": "list", "data": data, "model": served.name, "usage": usage}


async def models(call: Call[Any]) -> dict[str, Any]:
    """Lists the models."""
    return {"object": "list", "data": [_model(name) for name in call.service.registry.models]}


async def one_model(call: Call[Any]) -> dict[str, Any]:
    """Tells about a model."""
    return _model(call.service.registry.model(call.request.path_params["name"]).name)


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": CREATED, "owned_by": "twofold"}


ROUTES = (
    Route("/v1/embeddings", embeddings, EmbeddingsBody, convention=OPENAI),
    Route("/v1/models", models, method="GET", convention=OPENAI),
    Route("/v1/models/{name}", one_model, method="GET", convention=OPENAI),
)
