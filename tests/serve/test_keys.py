"""With a key, everything but the page and the state of the process needs it; without one, only this machine asks."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from tests.serve.serving import Served, serving
from tests.serve.small_set import SmallSet
from twofold.errors import TwofoldError
from twofold.serve.app import ROUTES
from twofold.serve.settings import Settings

KEYS = ("first-key", "second-key")
PUBLIC = {"/", "/page/{name:path}", "/health", "/ready", "/docs", "/openapi.json"}


@pytest.fixture(scope="module")
def locked(models: SmallSet) -> Iterator[Served]:
    with serving(f"bi={models.folders['bi']}", f"numbers={models.folders['numbers']}", keys=KEYS) as server:
        yield server


def test_every_route_but_the_page_and_the_state_needs_the_key(locked: Served) -> None:
    for route in ROUTES:
        path = route.path.replace("{name:path}", "index.html").replace("{name}", "numbers")
        status = locked.send(route.method, path, b"{}" if route.method != "GET" else None)[0]
        public = route.method == "GET" and route.path in PUBLIC
        assert (status == 401) is not public, (route.method, route.path, status)
        assert route.public is public


def test_any_of_the_keys_opens(locked: Served) -> None:
    for key in KEYS:
        answer = locked.ask("POST", "/embed", {"inputs": "a"}, Authorization=f"Bearer {key}")
        assert answer[0] == 200


@pytest.mark.parametrize(
    "given",
    ["", "Bearer", "Bearer ", "Bearer first-ke", "Bearer first-key2", "Basic first-key", "first-key", "Bearer ÿ"],
)
def test_nothing_else_opens(locked: Served, given: str) -> None:
    for method, path, body in (
        ("POST", "/embed", {"inputs": "a"}),
        ("DELETE", "/indexes/numbers/candidates", {"ids": ["n1"]}),
        ("GET", "/nothing", None),
    ):
        assert locked.ask(method, path, body, Authorization=given)[0] == 401
    assert len(locked.service.registry.indexes["numbers"].index) == 80


def test_errors_of_keys_have_the_form_of_their_convention(locked: Served) -> None:
    assert locked.ask("POST", "/embed", {"inputs": "a"})[1]["error_type"] == "Unauthorized"
    assert "key" in locked.ask("POST", "/v2/rerank", {})[1]["message"]
    with openai.OpenAI(base_url=f"{locked.url}/v1", api_key="wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError) as error:
            client.embeddings.create(model="bi", input="a")
        assert error.value.code == "invalid_api_key"
    with openai.OpenAI(base_url=f"{locked.url}/v1", api_key=KEYS[1]) as client:
        assert client.embeddings.create(model="bi", input="a").data


def test_a_key_opens_under_any_name(locked: Served) -> None:
    assert locked.ask("POST", "/embed", {"inputs": "a"}, Authorization="Bearer first-key", Host="x.example")[0] == 200


def test_further_names_can_be_allowed(models: SmallSet) -> None:
    with serving(f"bi={models.folders['bi']}", hosts=("models.example",)) as server:
        assert server.ask("GET", "/v1/models", None, Host="models.example:8000")[0] == 200
        assert server.ask("GET", "/v1/models", None, Host="other.example")[0] == 403


@pytest.mark.parametrize("key", ["", "two words", "schlüssel", "line\n"])
def test_keys_that_no_header_can_hold_are_refused(key: str) -> None:
    with pytest.raises(TwofoldError, match="a key"):
        Settings(keys=(key,))
