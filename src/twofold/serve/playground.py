"""Routes of the page: its files, what is served, and the facts about a model."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from starlette.responses import Response

from twofold import __version__
from twofold.config import kind_of
from twofold.errors import TwofoldError
from twofold.inputs import Input
from twofold.model import Ranker
from twofold.recipe.comparing import facts_of
from twofold.recipe.file import read_yaml
from twofold.recipe.given import RECIPE
from twofold.serve.errors import RefusalError
from twofold.serve.registry import ServedModel
from twofold.serve.routes import Call, Route

FOLDER = Path(__file__).parent / "page"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".woff2": "font/woff2",
    ".png": "image/png",
}
"""Media types of the page's files; files of other types are not served."""
POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self'; script-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}
CARD = "README.md"


async def state(call: Call[Any]) -> dict[str, Any]:
    """Lists what is served, for the page."""
    service = call.service
    registry = service.registry
    return {
        "version": __version__,
        "key_needed": bool(service.settings.keys),
        "models": [about(served) for served in registry.models.values()],
        "indexes": [
            {
                "name": served.name,
                "model": served.served.name,
                "candidates": len(served.index),
                "fields": served.index.info()["fields"],
            }
            for served in registry.indexes.values()
        ],
    }


def about(served: ServedModel) -> dict[str, Any]:
    """Facts about a model that decide where the page shows it."""
    model, tasks = served.model, served.model.config.tasks
    first = next(iter(tasks.values()))
    inputs = [("input", model.input)]
    if isinstance(model, Ranker):
        inputs = [("context", model.contexts), ("candidate", model.candidates)]
    decoders = [
        {"name": name, "kind": kind_of(task.decoder), "output": kind_of(task.output), "tab": task.output.tab}
        for name, task in tasks.items()
    ]
    return {
        "name": served.name,
        "title": served.title,
        "kind": kind_of(first.decoder),
        "task": kind_of(first.output),
        "tab": first.output.tab,
        "inputs": [_input(name, side) for name, side in inputs],
        "output": kind_of(first.output),
        "decoders": decoders,
        **model.computing,
        "trained": served.run is not None,
    }


def _input(name: str, side: Input[Any]) -> dict[str, Any]:
    return {"name": name, "type": kind_of(side.config), "noun": side.config.noun, "max_tokens": side.limit or None}


async def model(call: Call[Any]) -> dict[str, Any]:
    """Parts and shapes of a model, its recipe, the curves of its training and its card."""
    served = call.service.registry.model(call.request.path_params["name"])
    content: dict[str, Any] = {"summary": served.model.summary().as_dict(), "recipe": None, "curves": [], "card": None}
    if served.run is not None:
        try:
            content["recipe"] = read_yaml(served.run / RECIPE)
            content["curves"] = curves(served.run)
        except TwofoldError:  # a damaged log is no reason to hide the model
            pass
    card = None if served.folder is None else served.folder / CARD
    if card is not None and card.is_file():
        content["card"] = card.read_text(encoding="utf-8", errors="replace")
    return content


def curves(run: Path) -> list[dict[str, Any]]:
    """Loss and validation metrics of a training, step by step."""
    facts = facts_of(run)
    steps: dict[int, dict[str, Any]] = {}
    for name, curve in {"loss": facts.losses, **facts.evaluations}.items():
        for step, value in curve:
            steps.setdefault(step, {"step": step})[name] = value
    return [steps[step] for step in sorted(steps)]


@dataclass(frozen=True)
class PageFile:
    """File of the page, as it is sent."""

    content: bytes
    packed: bytes
    """Content in gzip."""
    tag: str
    type: str


@lru_cache(maxsize=128)
def _read(path: Path, changed: int) -> PageFile:
    content = path.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    return PageFile(content, gzip.compress(content, mtime=0), tag, TYPES[path.suffix])


def page_files() -> dict[str, Path]:
    """Files of the page by name; no other name is looked for on the disk."""
    return {path.relative_to(FOLDER).as_posix(): path for path in FOLDER.rglob("*") if path.suffix in TYPES}


async def page(call: Call[Any]) -> Response:
    """Serves a file of the page."""
    path = page_files().get(call.request.path_params.get("name", "index.html"))
    if path is None:
        raise RefusalError("not_found", "the page has no such file")
    file = _read(path, path.stat().st_mtime_ns)
    headers = {**HEADERS, "ETag": file.tag}
    if call.request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    if "gzip" in call.request.headers.get("accept-encoding", "") and len(file.packed) < len(file.content):
        return Response(file.packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=file.type)
    return Response(file.content, headers=headers, media_type=file.type)


ROUTES = (
    Route("/", page, method="GET", public=True),
    Route("/page/{name:path}", page, method="GET", public=True),
    Route("/playground/state", state, method="GET"),
    Route("/models/{name}", model, method="GET"),
)
