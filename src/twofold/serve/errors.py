"""Errors that clients see: each group of routes answers in the form of its own convention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from twofold.errors import one_line

Reason = Literal[
    "malformed",
    "invalid",
    "unauthorized",
    "forbidden",
    "not_found",
    "method",
    "slow",
    "too_large",
    "media_type",
    "failed",
    "overloaded",
    "internal",
]
STATUS: Mapping[Reason, int] = {
    "malformed": 400,
    "invalid": 422,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "method": 405,
    "slow": 408,
    "too_large": 413,
    "media_type": 415,
    "failed": 424,
    "overloaded": 429,
    "internal": 500,
}
"""Status of each reason, where a convention has no other."""


class RefusalError(Exception):
    """Request that is not answered, with the reason and a remedy."""

    def __init__(
        self, reason: Reason, message: str, place: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """place: path of the field that is wrong, such as `documents[3].text`"""
        super().__init__(message)
        self.reason, self.message, self.place = reason, one_line(message), place
        self.headers = dict(headers or {})


@dataclass(frozen=True)
class Convention:
    """Form of errors in a group of routes."""

    name: str
    body: Callable[[RefusalError], dict[str, Any]]
    """JSON of an error."""
    statuses: Mapping[Reason, int] = field(default_factory=dict)
    """Statuses that differ from `STATUS`."""

    def status(self, refusal: RefusalError) -> int:
        return self.statuses.get(refusal.reason, STATUS[refusal.reason])


def _plain(refusal: RefusalError) -> dict[str, Any]:
    return {"error": {"message": refusal.message, "type": refusal.reason, "place": refusal.place}}


PLAIN = Convention("twofold", _plain)
"""Form of errors of the service's own routes."""


def too_many(what: str, count: int, most: int, place: str) -> RefusalError:
    """Error for a request beyond a limit."""
    return RefusalError("too_large", f"{count:,} {what}, and {most:,} are the most of a request; send fewer", place)
