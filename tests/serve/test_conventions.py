"""Clients that people have: openai, cohere and huggingface_hub work as they come; errors are in their own form."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import cohere
import httpx
import huggingface_hub
import numpy as np
import openai
import pytest

from tests.serve.serving import Served, assert_alike
from tests.serve.small_set import SmallSet

TEXTS = ["one hundred and two", "seven", "102"]


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as opened:
        yield opened


@pytest.fixture(scope="module")
def reranker(served: Served) -> Iterator[cohere.ClientV2]:
    with httpx.Client() as opened:
        yield cohere.ClientV2(api_key="none", base_url=served.url, httpx_client=opened)


def test_openai_embeds_as_python_does(client: openai.OpenAI, models: SmallSet) -> None:
    expected = models.models["bi"].encode(TEXTS)
    for form in ("float", "base64"):  # the client's own default is base64
        answer = client.embeddings.create(model="bi", input=TEXTS, encoding_format=form)
        assert [each.index for each in answer.data] == [0, 1, 2]
        vectors: Any = [each.embedding for each in answer.data]
        if form == "base64":
            vectors = [np.frombuffer(base64.b64decode(vector), "<f4") for vector in vectors]
        np.testing.assert_allclose(np.array(vectors), expected, rtol=1e-4, atol=1e-5)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > len(TEXTS)
    single = client.embeddings.create(model="bi", input=TEXTS[0])
    np.testing.assert_allclose(single.data[0].embedding, expected[0], rtol=1e-4, atol=1e-5)


def test_openai_shortens_embeddings(client: openai.OpenAI, models: SmallSet) -> None:
    vector = client.embeddings.create(model="bi", input="seven", dimensions=5).data[0].embedding
    expected = models.models["bi"].encode("seven")[:5]
    np.testing.assert_allclose(vector, expected / np.linalg.norm(expected), rtol=1e-4)
    with pytest.raises(openai.BadRequestError) as error:
        client.embeddings.create(model="bi", input="seven", dimensions=17)
    assert error.value.param == "dimensions"


def test_queries_can_be_embedded_by_the_side_of_queries(client: openai.OpenAI, models: SmallSet) -> None:
    asked = client.embeddings.create(model="bi", input="seven", extra_body={"input_type": "query"}).data[0].embedding
    np.testing.assert_allclose(asked, models.models["bi"].encode_query("seven"), rtol=1e-4, atol=1e-5)


def test_openai_lists_the_models(client: openai.OpenAI, models: SmallSet) -> None:
    assert {model.id for model in client.models.list()} == set(models.models)
    assert client.models.retrieve("poly").id == "poly"


def test_openai_sees_errors_of_its_own_kind(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.embeddings.create(model="text-embedding-3-small", input="a")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False"):
        client.embeddings.create(model="bi", input=[[1, 2], [3]])
    with pytest.raises(openai.BadRequestError, match="empty"):
        client.embeddings.create(model="bi", input="")
    with pytest.raises(openai.BadRequestError, match="one vector"):
        client.embeddings.create(model="cross", input="a")


@pytest.mark.parametrize("name", ["bi", "poly", "late", "cross"])
def test_cohere_re_ranks_as_python_does(reranker: cohere.ClientV2, models: SmallSet, name: str) -> None:
    answer: Any = reranker.rerank(model=name, query="seven", documents=TEXTS, top_n=2)
    hits = models.models[name].rank("seven", TEXTS, k=2)
    scores = np.array([hit.score for hit in hits])
    expected = 1 / (1 + np.exp(-scores)) if models.models[name].joined else scores
    assert [result.index for result in answer.results] == [hit.id for hit in hits]
    assert [result.relevance_score for result in answer.results] == pytest.approx(expected.tolist(), rel=1e-4)
    assert answer.score_type == ("sigmoid" if name == "cross" else "raw")


def test_cohere_takes_documents_as_objects_and_returns_them(served: Served) -> None:
    for path in ("/v1/rerank", "/v2/rerank"):
        given = [{"text": text} for text in TEXTS]
        answer = served.post(path, model="bi", query="seven", documents=given, return_documents=True, top_n=None)
        assert [TEXTS[result["index"]] for result in answer["results"]] == [
            result["document"]["text"] for result in answer["results"]
        ]
        assert answer["meta"]["api_version"]["version"] == path[2]


def test_documents_are_cut_where_cohere_asks_for_it(served: Served, models: SmallSet) -> None:
    asked = {"model": "bi", "query": "seven"}
    cut = served.post("/v2/rerank", **asked, documents=["one two nine"], max_tokens_per_doc=2)
    whole = served.post("/v2/rerank", **asked, documents=["one two nine"])
    assert cut["results"][0]["relevance_score"] != whole["results"][0]["relevance_score"]
    assert cut["meta"]["tokens"]["input_tokens"] < whole["meta"]["tokens"]["input_tokens"]


def test_cohere_sees_errors_of_its_own_kind(served: Served, reranker: cohere.ClientV2) -> None:
    with pytest.raises(cohere.NotFoundError, match="there is no model"):
        reranker.rerank(model="rerank-v4", query="a", documents=["b"])
    with pytest.raises(cohere.BadRequestError, match="documents"):
        reranker.rerank(model="bi", query="a", documents=[])
    status, content = served.ask("POST", "/v2/rerank", {"query": 1, "documents": []})
    assert (status, content["param"]) == (400, "query")


def test_huggingface_hub_embeds_and_compares(served: Served, models: SmallSet) -> None:
    client = huggingface_hub.InferenceClient(base_url=served.url)
    vectors = np.array([models.models["bi"].encode(text) for text in TEXTS])
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(client.feature_extraction("seven"), unit[1:2], rtol=1e-4, atol=1e-5)
    scores = client.sentence_similarity("seven", other_sentences=[TEXTS[0], TEXTS[2]])
    np.testing.assert_allclose(scores, unit[[0, 2]] @ unit[1], rtol=1e-4, atol=1e-5)


def test_text_embeddings_inference_embeds(served: Served, models: SmallSet) -> None:
    vectors = models.models["bi"].encode(TEXTS)
    raw = served.post("/embed", model="bi", inputs=TEXTS, normalize=False, truncate=None)
    np.testing.assert_allclose(raw, vectors, rtol=1e-4, atol=1e-5)
    asked = served.post("/embed", model="bi", inputs="seven", normalize=False, prompt_name="query")
    np.testing.assert_allclose(asked, [models.models["bi"].encode_query("seven")], rtol=1e-4, atol=1e-5)


def test_text_embeddings_inference_re_ranks_and_labels(served: Served, models: SmallSet) -> None:
    ranks = served.post("/rerank", model="cross", query="seven", texts=TEXTS, raw_scores=True, return_text=True)
    hits = models.models["cross"].rank("seven", TEXTS)
    assert [(rank["index"], rank["text"]) for rank in ranks] == [(hit.id, hit.text) for hit in hits]
    assert [rank["score"] for rank in ranks] == pytest.approx([hit.score for hit in hits], rel=1e-4)
    shares = served.post("/rerank", model="cross", query="seven", texts=TEXTS)
    assert all(0 < rank["score"] < 1 for rank in shares)
    (prediction,) = models.models["label"].predict(["one two"])
    labels = served.post("/predict", model="label", inputs="one two")
    assert labels[0] == {"label": prediction.output, "score": pytest.approx(prediction.score, rel=1e-4)}
    assert_alike(served.post("/predict", model="label", inputs=[["one two"], ["seven"]])[0], labels)


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        ("/embed", {"inputs": "one " * 200, "truncate": False, "model": "bi"}, 413, "Validation"),
        ("/embed", {"inputs": ["a"] * 10_001, "model": "bi"}, 413, "Validation"),
        ("/embed", {"inputs": 3}, 422, "Validation"),
        ("/embed", {"inputs": ""}, 422, "Validation"),
        ("/embed", {"inputs": "a", "model": "late"}, 424, "Backend"),
        ("/rerank", {"query": "a", "texts": []}, 422, "Validation"),
        ("/predict", {"inputs": "a", "model": "translate"}, 424, "Backend"),
        ("/predict", {"inputs": ["a", "b"], "model": "label"}, 422, "Validation"),
    ],
)
def test_text_embeddings_inference_has_its_own_errors(
    served: Served, path: str, body: dict[str, Any], status: int, kind: str
) -> None:
    answer, content = served.ask("POST", path, body)
    assert answer == status
    assert content.keys() == {"error", "error_type"}
    assert content["error_type"] == kind


def test_info_tells_what_the_first_model_is(served: Served, models: SmallSet) -> None:
    status, content = served.ask("GET", "/info")
    assert status == 200
    assert content["model_id"] in models.models
    assert served.ask("GET", "/info?model=cross")[1]["model_type"].keys() == {"reranker"}
    assert served.ask("GET", "/info?model=label")[1]["model_type"] == {
        "classifier": {"id2label": {"0": "few", "1": "many"}}
    }
