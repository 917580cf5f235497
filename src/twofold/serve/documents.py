"""Description of the routes: `/openapi.json`, and `/docs`, a page of plain HTML made from it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic.json_schema import models_json_schema
from starlette.responses import Response

from twofold import __version__
from twofold.serve.errors import STATUS
from twofold.serve.playground import HEADERS
from twofold.serve.routes import JSON, Call, Route, as_json

REFERENCE = "#/components/schemas/{model}"
KEY = {"key": {"type": "http", "scheme": "bearer"}}
ERRORS: dict[str, Any] = {
    str(status): {"description": reason.replace("_", " ")} for reason, status in STATUS.items() if status < 500
}
ABOUT = "Models and indexes of Twofold. Each group of routes answers errors in the form of its own convention."


def describe(routes: Sequence[Route], keyed: bool) -> dict[str, Any]:
    """OpenAPI document of routes; `keyed` if a key is needed."""
    shapes = {route.body for route in routes if route.body is not None}
    ordered = sorted(shapes, key=lambda shape: shape.__name__)
    _, definitions = models_json_schema([(shape, "validation") for shape in ordered], ref_template=REFERENCE)
    paths: dict[str, Any] = {}
    for route in routes:
        path = re.sub(r"\{(\w+):path\}", r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, path, keyed)
    info = {"title": "Twofold", "version": __version__, "description": ABOUT}
    components = {"schemas": definitions.get("$defs", {}), **({"securitySchemes": KEY} if keyed else {})}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": components}


def _operation(route: Route, path: str, keyed: bool) -> dict[str, Any]:
    name = re.sub(r"\W+", "_", f"{route.method.lower()}{path}").strip("_")
    operation: dict[str, Any] = {"operationId": name, "summary": route.handle.__doc__}
    operation["tags"] = [route.convention.name]
    operation["responses"] = {"200": {"description": "Answer"}, **ERRORS}
    names = re.findall(r"\{(\w+)\}", path)
    if names:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    if route.body is not None:
        forms: dict[str, Any] = {JSON: {"schema": {"$ref": REFERENCE.format(model=route.body.__name__)}}}
        if route.form is not None:
            file = {"type": "string", "format": "binary"}
            forms["multipart/form-data"] = {"schema": {"type": "object", "properties": {"file": file}}}
        operation["requestBody"] = {"required": True, "content": forms}
    if keyed and not route.public:
        operation["security"] = [{"key": []}]
    return operation


async def openapi(call: Call[Any]) -> Response:
    """Describes all routes in the form of OpenAPI."""
    return as_json(describe(call.service.routes, bool(call.service.settings.keys)))


async def docs(call: Call[Any]) -> Response:
    """Describes all routes on a page."""
    page = "\n".join(_lines(describe(call.service.routes, False)))
    return Response(page, headers=HEADERS, media_type="text/html; charset=utf-8")


def _lines(document: dict[str, Any]) -> Iterator[str]:
    """HTML of a document: a section for each route, with a table of its fields."""
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Twofold: routes</title>'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1"></head><body><main>'
    yield f'<h1>Routes</h1><p>{ABOUT} <a href="/openapi.json">openapi.json</a> has the same for programs.</p>'
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"<h2><code>{method.upper()} {html.escape(path)}</code></h2>"
            yield f"<p>{html.escape(operation['summary'])} ({operation['tags'][0]})</p>"
            if "requestBody" in operation:
                reference = operation["requestBody"]["content"][JSON]["schema"]["$ref"]
                yield from _fields(document["components"]["schemas"][reference.rpartition("/")[2]])
    yield "</main></body></html>"


def _fields(schema: dict[str, Any]) -> Iterator[str]:
    yield "<table><thead><tr><th>field<th>type<th>default<th>about</tr></thead><tbody>"
    for name, field in schema.get("properties", {}).items():
        default = "required" if name in schema.get("required", ()) else _default(field.get("default"))
        cells = (name, _type(field), default, field.get("description", ""))
        yield f"<tr>{''.join(f'<td>{html.escape(cell)}' for cell in cells)}</tr>"
    yield "</tbody></table>"


def _default(value: Any) -> str:
    return "" if value is None else str(value)


def _type(field: dict[str, Any]) -> str:
    """Type of a field in words."""
    if "anyOf" in field:
        return " or ".join(_type(option) for option in field["anyOf"] if option.get("type") != "null")
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    if "enum" in field:
        return " or ".join(map(str, field["enum"]))
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}))}"
    return str(field.get("type", "any"))


ROUTES = (
    Route("/openapi.json", openapi, method="GET", public=True),
    Route("/docs", docs, method="GET", public=True),
)
