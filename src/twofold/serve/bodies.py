"""Reads bodies of requests: within limits of size and time, then strictly into typed shapes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast, ValidationError, WithJsonSchema
from starlette.requests import ClientDisconnect, Request

from twofold.errors import check_text, did_you_mean, kind_of_value
from twofold.serve.errors import RefusalError
from twofold.serve.settings import Limits

SHOWN = 200
"""Maximum number of characters of a value that an error shows."""
NUL = b"\\u0000"
TYPES = ("str", "list", "dict", "int", "float", "bool")
"""Names in the place of an error that stand for forms of a field."""


class Body(BaseModel):
    """JSON object of a request; a null field is the same as one that is missing."""

    model_config = ConfigDict(strict=True, extra="ignore", protected_namespaces=())


class StrictBody(Body):
    """JSON object of a request to a route of our own, where an unknown field is an error."""

    # Refused after parsing: pydantic would make an error of each of a million unknown fields.
    model_config = ConfigDict(strict=True, extra="allow", protected_namespaces=())


Entry = TypeVar("Entry")
Many = Annotated[list[Entry], FailFast()]
"""List that is refused at the first wrong entry: errors of all entries would take longer than the request."""
Texts = Annotated[list[Any], WithJsonSchema({"type": "array", "items": {"type": "string"}})]
"""List of texts in a field that has other forms too; `as_texts` checks it."""
Shape = TypeVar("Shape", bound=BaseModel)


async def read_body(request: Request, limits: Limits, hold: Callable[[int], None]) -> bytes:
    """Reads the whole body; one that is too large or comes too slowly is refused.

    hold: is told the size of every part, and may refuse it
    """
    if request.headers.get("content-encoding", "identity") != "identity":
        raise RefusalError("media_type", "the body is compressed; send it without Content-Encoding")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limits.body:
        raise _too_large(int(length), limits)
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.read_seconds):
            async for part in request.stream():
                size += len(part)
                if size > limits.body:
                    raise _too_large(size, limits)
                hold(len(part))
                parts.append(part)
    except TimeoutError:
        said = f"the body took longer than {limits.read_seconds:g} s to arrive; send it at once"
        raise RefusalError("slow", said, headers={"Connection": "close"}) from None
    except ClientDisconnect:
        raise RefusalError("slow", "the client went away") from None
    return b"".join(parts)


def _too_large(size: int, limits: Limits) -> RefusalError:
    said = f"a body of {size:,} bytes or more, and {limits.body:,} are the most; send less at a time"
    return RefusalError("too_large", said, headers={"Connection": "close"})


def parse(shape: type[Shape], raw: bytes, media_type: str) -> Shape:
    """Parses JSON into a shape; an error names the field and what is wrong with it."""
    if media_type.partition(";")[0].strip().lower() not in ("application/json", "text/json"):
        raise RefusalError(
            "media_type", f"the body is {media_type or 'of no type'}; send Content-Type: application/json"
        )
    try:
        body = shape.model_validate_json(raw)
    except ValidationError as error:
        raise refusal_of(error) from None
    except RecursionError:
        raise RefusalError("malformed", "the JSON is nested too deeply; send it flat") from None
    if isinstance(body, StrictBody) and body.model_extra:
        name, known = next(iter(body.model_extra)), type(body).model_fields
        raise RefusalError(
            "invalid", f"there is no field {name[:100]!r}; {did_you_mean(name[:100], known)}", name[:100]
        )
    if NUL in raw:
        refuse_nul(body.model_dump(), "")
    return body


def as_texts(values: Sequence[Any], place: str) -> list[str]:
    """Checks that all entries of a list are texts."""
    for number, value in enumerate(values):
        if not isinstance(value, str):
            where = f"{place}[{number}]"
            raise RefusalError("invalid", f"{where}: {kind_of_value(value)}, where a text is wanted", where)
    return list(values)


def shaped(shape: type[Shape], values: Any) -> Shape:
    """Puts values into a shape."""
    try:
        return shape.model_validate(values)
    except ValidationError as error:
        raise refusal_of(error) from None


def refusal_of(error: ValidationError) -> RefusalError:
    """Error of a field that is wrong; of several forms that a field may have, the deepest tells most."""
    first = max(error.errors(include_url=False, include_context=False), key=lambda wrong: len(wrong["loc"]))
    if first["type"] == "json_invalid":
        return RefusalError("malformed", f"not JSON: {first['msg'].removeprefix('Invalid JSON: ')}")
    place = ""
    for step in first["loc"]:
        if isinstance(step, int):
            place += f"[{step}]"
        elif step.isidentifier() and not step[0].isupper() and step not in TYPES:
            place += f".{step}" if place else step
    given = repr(first.get("input"))
    shown = f" ({given[:SHOWN]})" if first["type"] not in ("missing", "extra_forbidden") else ""
    return RefusalError("invalid", f"{place or 'the body'}: {first['msg']}{shown}", place or None)


def refuse_nul(value: Any, place: str) -> None:
    """Refuses texts with a NUL character, wherever they stand."""
    if isinstance(value, str):
        check_text(value, place)
        if "\0" in value:
            raise RefusalError("invalid", f"{place}: holds a NUL character; remove it", place)
    elif isinstance(value, dict):
        for name, inner in value.items():
            refuse_nul(name, f"{place}.{name}".lstrip("."))
            refuse_nul(inner, f"{place}.{name}".lstrip("."))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            refuse_nul(inner, f"{place}[{number}]")
