"""Routes of text-embeddings-inference: embed, rerank, predict, similarity and info."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from twofold import __version__
from twofold.errors import TwofoldError
from twofold.model import Model, Ranker
from twofold.results import Prediction, Scores
from twofold.serve import predicting
from twofold.serve.bodies import Body, Many, Texts, as_texts, shaped
from twofold.serve.cohere import ranks_texts
from twofold.serve.embedding import check_texts, embedded, embeds, shortened, sigmoid, unit
from twofold.serve.errors import Convention, Reason, RefusalError
from twofold.serve.predicting import PredictBody
from twofold.serve.registry import ServedModel
from twofold.serve.reranking import reranked
from twofold.serve.routes import Call, Route, as_json
from twofold.types import Classes

TYPES: Mapping[Reason, str] = {
    "unauthorized": "Unauthorized",
    "forbidden": "Unauthorized",
    "failed": "Backend",
    "internal": "Backend",
    "overloaded": "Overloaded",
}


def _error(refusal: RefusalError) -> dict[str, Any]:
    return {"error": refusal.message, "error_type": TYPES.get(refusal.reason, "Validation")}


TEI = Convention("text-embeddings-inference", _error, {"malformed": 422})


class EmbedBody(Body):
    """Texts to embed."""

    inputs: str | Texts
    model: str | None = None
    truncate: bool | None = None
    normalize: bool | None = None
    prompt_name: str | None = Field(None, description="query or document: the side that reads the texts")
    dimensions: int | None = Field(None, ge=1)


class TeiRerankBody(Body):
    """Texts to order by their relevance to a query."""

    query: str
    texts: Many[str]
    model: str | None = None
    raw_scores: bool | None = None
    return_text: bool | None = None
    truncate: bool | None = None


class Sentences(Body):
    """Text, and others that it is compared with."""

    source_sentence: str
    sentences: Many[str]


class SimilarityBody(Body):
    """Texts to compare."""

    inputs: Sentences
    model: str | None = None
    parameters: dict[str, Any] | None = None


async def embed(call: Call[EmbedBody]) -> Any:
    """Embeds texts."""
    body = call.body
    texts = [body.inputs] if isinstance(body.inputs, str) else as_texts(body.inputs, "inputs")
    check_texts(texts, "inputs", call.service.settings.limits)
    if body.prompt_name not in (None, "query", "document"):
        said = f"prompt_name: there is no {body.prompt_name[:100]!r}; give query or document"
        raise RefusalError("invalid", said, "prompt_name")
    served = call.service.registry.model(body.model, embeds)
    query, cut = body.prompt_name == "query", body.truncate is not False
    answer = await embedded(call.service, call.request, served, texts, query, cut, "inputs")
    vectors = shortened(answer.vectors, body.dimensions, "dimensions")
    return as_json(vectors if body.normalize is False else unit(vectors))


async def rerank(call: Call[TeiRerankBody]) -> Any:
    """Orders texts by their relevance to a query."""
    body, limits = call.body, call.service.settings.limits
    check_texts([body.query], "query", limits)
    check_texts(body.texts, "texts", limits)
    served = call.service.registry.model(body.model, ranks_texts)
    cut, places = body.truncate is not False, ("query", "texts")
    answer = await reranked(call.service, call.request, served, body.query, body.texts, None, cut, places)
    scores = sigmoid(answer.scores) if answer.joined and not body.raw_scores else answer.scores
    ranks = []
    for number in np.argsort(-answer.scores, kind="stable").tolist():
        rank = {"index": number, "score": float(scores[number])}
        ranks.append(rank | ({"text": body.texts[number]} if body.return_text else {}))
    return as_json(ranks)


async def similarity(call: Call[SimilarityBody]) -> Any:
    """Cosine similarity of a text with others."""
    sentences = call.body.inputs
    texts = [sentences.source_sentence, *sentences.sentences]
    check_texts(sentences.sentences, "inputs.sentences", call.service.settings.limits)
    check_texts(texts, "inputs", call.service.settings.limits)
    served = call.service.registry.model(call.body.model, embeds)
    vectors = unit((await embedded(call.service, call.request, served, texts, place="inputs")).vectors)
    return as_json(vectors[1:] @ vectors[0])


async def predict(call: Call[PredictBody]) -> Any:
    """Answers inputs, whatever the model's output is; `inputs` has the form of text-embeddings-inference."""
    if call.body.inputs is None:
        return await predicting.predict(call)
    try:
        return await _labels(call)
    except RefusalError as error:
        refusal = error
    except TwofoldError as error:
        refusal = RefusalError("invalid", call.service.registry.named(str(error)))
    return as_json(TEI.body(refusal), TEI.status(refusal), refusal.headers)


async def _labels(call: Call[PredictBody]) -> Any:
    """Labels of texts or pairs of texts with their scores, best first."""
    values, single = _sequences(call.body.inputs)
    check_texts([text for value in values for text in value], "inputs", call.service.settings.limits)
    served = call.service.registry.model(call.body.model, labels)
    if not labels(served.model):
        raise RefusalError("failed", f"the model {served.name} does not label texts; name another", "model")
    texts = served.model.config.input.texts
    for number, value in enumerate(values):
        if len(value) != texts:
            given = f"inputs[{number}]: {len(value)} texts, and the model {served.name} reads {texts}"
            raise RefusalError("invalid", given, "inputs")
    decoder = served.model.decoder_name(call.body.decoder)
    given_values = [value[0] if texts == 1 else value for value in values]
    predictions = await predicting.predictions_of(call, served, given_values, decoder, {})
    answers = [_scores(prediction) for prediction in predictions]
    return as_json(answers[0] if single else answers)


def labels(model: Model) -> bool:
    """Returns True for a model that labels texts."""
    if isinstance(model, Ranker) or model.input.tokenizer is None:
        return False
    output = next(iter(model.outputs.values()))
    return output.config.takes is Scores and isinstance(output.spec, Classes)


def _sequences(inputs: Any) -> tuple[list[list[str]], bool]:
    """Texts or pairs of texts, and whether there is only one: "a", ["a", "b"] for a pair, [["a"], ["b", "c"]]."""
    single = isinstance(inputs, str) or (isinstance(inputs, list) and all(isinstance(each, str) for each in inputs))
    values: list[Any] = [[inputs]] if isinstance(inputs, str) else [inputs] if single else inputs
    for value in values if isinstance(values, list) else [None]:
        if not isinstance(value, list) or not 1 <= len(value) <= 2 or not all(isinstance(text, str) for text in value):
            said = 'inputs: give a text, a pair ["a", "b"], or a list of these: [["a"], ["b", "c"]]'
            raise RefusalError("invalid", said, "inputs")
    return values, single


def _scores(prediction: Prediction) -> list[dict[str, Any]]:
    """All labels with their probabilities, best first."""
    given = [(prediction.output, prediction.score), *prediction.alternatives]
    if not isinstance(prediction.output, str):  # of several labels, the alternatives hold all
        given = list(prediction.alternatives)
    return [{"score": score, "label": label} for label, score in given]


async def info(call: Call[Any]) -> dict[str, Any]:
    """Facts about the first model and the limits, and the names of all models."""
    registry, limits = call.service.registry, call.service.settings.limits
    served = registry.model(call.request.query_params.get("model"))
    return {
        "model_id": served.name,
        "model_sha": None,
        "model_dtype": served.model.computing["precision"],
        "model_type": _type(served),
        "max_concurrent_requests": limits.queue,
        "max_input_length": served.model.input.limit,
        "max_batch_tokens": limits.batch_tokens,
        "max_batch_requests": None,
        "max_client_batch_size": limits.texts,
        "auto_truncate": True,
        "tokenization_workers": 1,
        "version": __version__,
        "models": list(registry.models),
    }


def _type(served: ServedModel) -> dict[str, Any]:
    model = served.model
    if isinstance(model, Ranker):
        pooling = str(getattr(getattr(model.head, "config", None), "pooling", "mean"))
        return {"reranker": {"id2label": {"0": "LABEL_0"}}} if model.joined else {"embedding": {"pooling": pooling}}
    spec = next(iter(model.outputs.values())).spec
    names = spec.names if isinstance(spec, Classes) else ()
    if labels(model):
        return {"classifier": {"id2label": {str(number): name for number, name in enumerate(names)}}}
    return {"embedding": {"pooling": "mean"}}


class RootBody(Body):
    """Texts to embed, label, compare or order, for clients that send to the address alone."""

    inputs: Any = None
    query: str | None = None
    texts: Texts | None = None
    model: str | None = None
    truncate: bool | None = None
    normalize: bool | None = None
    prompt_name: str | None = None
    dimensions: int | None = None
    raw_scores: bool | None = None
    return_text: bool | None = None


async def root(call: Call[RootBody]) -> Any:
    """Does what the body and the model are made for: orders, compares, labels or embeds."""
    given = call.body.model_dump(exclude_none=True)
    served = call.service.registry.model(call.body.model)
    shape: type[BaseModel]
    handle: Any
    if "texts" in given:
        shape, handle = TeiRerankBody, rerank
    elif isinstance(call.body.inputs, dict):
        shape, handle = SimilarityBody, similarity
    elif labels(served.model):
        shape, handle = PredictBody, _labels
        given = {name: value for name, value in given.items() if name in PredictBody.model_fields}
    else:
        shape, handle = EmbedBody, embed
    return await handle(Call(call.service, call.request, shaped(shape, given)))


ROUTES = (
    Route("/embed", embed, EmbedBody, convention=TEI),
    Route("/rerank", rerank, TeiRerankBody, convention=TEI),
    Route("/similarity", similarity, SimilarityBody, convention=TEI),
    Route("/predict", predict, PredictBody, form=predicting.from_form),
    Route("/", root, RootBody, convention=TEI),
    Route("/info", info, method="GET", convention=TEI),
)
