"""Routes of Cohere's convention: re-ranking."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

import numpy as np
from pydantic import Field, WithJsonSchema

from twofold.model import Model, Ranker
from twofold.serve.bodies import Body
from twofold.serve.embedding import check_texts, reads_text, sigmoid
from twofold.serve.errors import Convention, RefusalError
from twofold.serve.reranking import Reranked, reranked
from twofold.serve.routes import Call, Route


def _error(refusal: RefusalError) -> dict[str, Any]:
    return {"message": refusal.message, "type": refusal.reason, "param": refusal.place}


COHERE = Convention("cohere", _error, {"invalid": 400, "failed": 400})


DOCUMENT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
DOCUMENTS = {"type": "array", "items": {"anyOf": [{"type": "string"}, DOCUMENT]}}


class RerankBody(Body):
    """Documents to order by their relevance to a query."""

    model: str | None = None
    query: str
    documents: Annotated[list[Any], WithJsonSchema(DOCUMENTS)]
    top_n: int | None = Field(None, ge=1)
    max_tokens_per_doc: int | None = Field(None, ge=1)
    return_documents: bool | None = None


def ranks_texts(model: Model) -> bool:
    """Returns True for a ranker of texts."""
    return isinstance(model, Ranker) and reads_text(model.contexts) and reads_text(model.candidates)


def _text(given: Any, number: int) -> str:
    """Text of a document."""
    text = given.get("text") if isinstance(given, dict) else given
    if not isinstance(text, str):
        place = f"documents[{number}]"
        raise RefusalError("invalid", f'{place}: neither a text nor an object with "text"', place)
    return text


async def rerank(call: Call[RerankBody]) -> dict[str, Any]:
    """Orders documents by their relevance to a query."""
    body, limits = call.body, call.service.settings.limits
    documents = [_text(given, number) for number, given in enumerate(body.documents)]
    check_texts([body.query], "query", limits)
    check_texts(documents, "documents", limits)
    served = call.service.registry.model(body.model, ranks_texts)
    answer = await reranked(call.service, call.request, served, body.query, documents, body.max_tokens_per_doc)
    order = np.argsort(-answer.scores, kind="stable")[: body.top_n]
    scores = sigmoid(answer.scores) if answer.joined else answer.scores
    results: list[dict[str, Any]] = []
    for number in order.tolist():
        result = {"index": number, "relevance_score": float(scores[number])}
        results.append(result | ({"document": {"text": documents[number]}} if body.return_documents else {}))
    return {"id": str(uuid.uuid4()), "model": served.name, "results": results, **_about(answer, call)}


def _about(answer: Reranked, call: Call[RerankBody]) -> dict[str, Any]:
    """Kind of the scores, and the number of tokens."""
    version = call.request.url.path.split("/")[1].removeprefix("v")
    tokens = {"input_tokens": answer.tokens, "output_tokens": 0}
    meta = {"api_version": {"version": version}, "billed_units": {"search_units": 1}, "tokens": tokens}
    score_type = "sigmoid" if answer.joined else "raw"
    return {"score_type": score_type, "meta": meta, "usage": {"total_tokens": answer.tokens}}


ROUTES = tuple(Route(path, rerank, RerankBody, convention=COHERE) for path in ("/v2/rerank", "/v1/rerank"))
