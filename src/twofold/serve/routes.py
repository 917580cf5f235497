"""Routes: what a request reads, who handles it, and in which form its answer and errors are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import orjson
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from twofold.serve.errors import PLAIN, Convention
from twofold.serve.service import Service
from twofold.serve.settings import Limits

Shape = TypeVar("Shape", bound=BaseModel)
JSON = "application/json"


@dataclass(frozen=True)
class Call(Generic[Shape]):
    """Request, with its body in its shape."""

    service: Service
    request: Request
    body: Shape


@dataclass(frozen=True)
class Route:
    """Route of the service."""

    path: str
    handle: Callable[[Call[Any]], Awaitable[Any]]
    """Answers a call: JSON values, or a whole response."""
    body: type[BaseModel] | None = None
    """Shape of the body; None reads none."""
    method: str = "POST"
    convention: Convention = PLAIN
    public: bool = False
    """True if no key is needed."""
    form: Callable[[Request, bytes, Limits], Awaitable[BaseModel]] | None = None
    """Reads the body of a form with files; None takes JSON alone."""
    answers: type[BaseModel] | None = None
    """Shape of the answer, for the OpenAPI page."""


def as_json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Response of JSON values and arrays; NaN becomes null."""
    return Response(dumps(content), status, headers, JSON)


def dumps(content: Any) -> bytes:
    """JSON of values and arrays."""
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS, default=str)
