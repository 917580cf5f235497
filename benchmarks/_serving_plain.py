"""Server as people write it around sentence-transformers: FastAPI, `model.encode` in the threads of plain handlers."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer


class Embed(BaseModel):
    input: str | list[str]


class Rerank(BaseModel):
    query: str
    documents: list[str]


class Search(BaseModel):
    context: str
    k: int = 10


def make_app(folder: str, stored: list[str]) -> FastAPI:
    """Routes for embeddings, rerank and search by the vectors of a bi-encoder."""
    model = SentenceTransformer(folder, device="cpu")
    vectors = model.encode(stored, normalize_embeddings=True, show_progress_bar=False)
    app = FastAPI()

    @app.post("/v1/embeddings")
    def embeddings(body: Embed) -> dict[str, Any]:
        texts = [body.input] if isinstance(body.input, str) else body.input
        found = model.encode(texts, show_progress_bar=False)
        return {"data": [{"index": number, "embedding": row.tolist()} for number, row in enumerate(found)]}

    @app.post("/v2/rerank")
    def rerank(body: Rerank) -> dict[str, Any]:
        found = model.encode([body.query, *body.documents], normalize_embeddings=True, show_progress_bar=False)
        scores = found[1:] @ found[0]
        order = np.argsort(-scores)
        return {"results": [{"index": int(n), "relevance_score": float(scores[n])} for n in order]}

    @app.post("/search")
    def search(body: Search) -> dict[str, Any]:
        scores = vectors @ model.encode(body.context, normalize_embeddings=True, show_progress_bar=False)
        order = np.argsort(-scores)[: body.k]
        return {"hits": [{"id": int(n), "text": stored[n], "score": float(scores[n])} for n in order]}

    @app.get("/ready")
    async def ready() -> dict[str, bool]:
        return {"ready": True}

    return app


def main() -> None:
    folder, texts, port = sys.argv[1:]
    with open(texts, encoding="utf-8") as file:
        stored = file.read().splitlines()
    uvicorn.run(make_app(folder, stored), host="127.0.0.1", port=int(port), log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
