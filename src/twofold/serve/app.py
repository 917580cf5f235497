"""Application: routes of all conventions, behind one front that checks keys, counts, and words errors."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from twofold import __version__
from twofold.errors import TwofoldError
from twofold.serve import cohere, documents, explaining, health, indexes, openai, playground, ranking, tei, writing
from twofold.serve.bodies import parse, read_body
from twofold.serve.errors import Convention, RefusalError
from twofold.serve.front import Front
from twofold.serve.routes import Call, Route, as_json
from twofold.serve.service import Held, Service
from twofold.serve.settings import Settings
from twofold.serve.warming import warm

GROUPS = (playground, health, ranking, explaining, writing, indexes, openai, cohere, tei, documents)
ROUTES = tuple(route for group in GROUPS for route in group.ROUTES)
FORM = "multipart/form-data"
LOGGED = 2_000
"""Number of bytes of a body that the access log shows."""
LOG = logging.getLogger("twofold.serve")


def make_app(settings: Settings) -> Front:
    """Loads all models, and builds the application around them."""
    service = Service(settings)
    service.routes = ROUTES

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        try:
            await warm(service.registry)
            service.ready = True
        except TwofoldError as error:  # the server ends with it
            service.failure = error
        yield
        await service.stop()

    app = FastAPI(title="Twofold", version=__version__, lifespan=lifespan, openapi_url=None)
    for route in ROUTES:
        app.add_api_route(
            route.path,
            _endpoint(service, route),
            methods=[route.method] if route.method != "GET" else ["GET", "HEAD"],
            summary=route.handle.__doc__,
            response_model=None,
        )
    front = Front(app, service, ROUTES)
    app.add_exception_handler(HTTPException, _unknown(front))
    return front


def _endpoint(service: Service, route: Route) -> Callable[[Request], Awaitable[Response]]:
    """Reads the body into its shape, has it handled, and words errors as the convention of the route does."""

    async def answer(request: Request) -> Response:
        held = Held(service)
        try:
            body = await _body(service, route, request, held)
            content = await route.handle(Call(service, request, body))
            return content if isinstance(content, Response) else as_json(content)
        except RefusalError as error:
            return refused(error, route.convention)
        except TwofoldError as error:
            return refused(RefusalError("invalid", service.registry.named(str(error))), route.convention)
        except Exception:
            LOG.exception("%s %s failed", route.method, route.path)
            said = "the service failed to answer; its log says why"
            return refused(RefusalError("internal", said), route.convention)
        finally:
            held.release()

    answer.__name__ = f"{route.handle.__name__}_{route.path.strip('/').replace('/', '_')}"
    return answer


async def _body(service: Service, route: Route, request: Request, held: Held) -> Any:
    """Body of a request in the shape of its route."""
    if route.body is None:
        return None
    raw = await read_body(request, service.settings.limits, held.take)
    if service.settings.log_texts:
        request.state.body = raw[:LOGGED].decode(errors="replace")
    kind = request.headers.get("content-type", "")
    if route.form is not None and kind.startswith(FORM):
        return await route.form(request, raw, service.settings.limits)
    return parse(route.body, raw, kind)


def refused(error: RefusalError, convention: Convention) -> Response:
    """Response of an error in the form of a convention."""
    return as_json(convention.body(error), convention.status(error), error.headers)


def _unknown(front: Front) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Words errors of routing: unknown paths and methods."""

    async def answer(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.url.path
        convention = front.convention(request.method, path)
        if error.status_code == 405:
            refusal = RefusalError(
                "method", f"{path}: does not take {request.method}", headers=dict(error.headers or {})
            )
        else:
            refusal = RefusalError("not_found", f"there is nothing at {path[:200]}; /docs lists all routes")
        return refused(refusal, convention)

    return answer
