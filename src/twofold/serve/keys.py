"""Bearer keys, and names under which a service without keys is reached."""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers

from twofold.serve.errors import RefusalError
from twofold.serve.routes import Route
from twofold.serve.settings import LOOPBACK, Settings


class Keys:
    """Bearer keys, or without any the names of this machine."""

    def __init__(self, settings: Settings) -> None:
        self._keys = [key.encode() for key in settings.keys]
        self._hosts = {*LOOPBACK, "[::1]", settings.host, *settings.hosts} if settings.host in LOOPBACK else set()

    def check(self, headers: Headers, route: Route | None) -> RefusalError | None:
        """Returns the reason to refuse a request, or None."""
        if not self._keys:
            return self._check_host(headers.get("host", ""))
        if route is not None and route.public:
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        # Each key is compared, whichever fits, so that the time tells nothing.
        fits = [hmac.compare_digest(given.strip().encode("utf-8", "replace"), key) for key in self._keys]
        if scheme.lower() == "bearer" and any(fits):
            return None
        said = "a wrong key" if given else "a key is needed"
        return RefusalError(
            "unauthorized", f"{said}; send Authorization: Bearer KEY", headers={"WWW-Authenticate": "Bearer"}
        )

    def _check_host(self, given: str) -> RefusalError | None:
        """Refuses other names than those of this machine: a page elsewhere could lead its own name here."""
        name = given.rpartition(":")[0] if given.rpartition(":")[2].isdecimal() else given
        if not self._hosts or name.lower() in self._hosts:
            return None
        said = f"this service answers as {', '.join(sorted(self._hosts))}; name others with --allow-host, or set a key"
        return RefusalError("forbidden", said)
