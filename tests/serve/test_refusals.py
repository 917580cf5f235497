"""Hostile and mistaken requests are answered with 4xx in the form of their convention, and the server stays up."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.serve.serving import Served, connected, serving
from tests.serve.small_set import SmallSet
from twofold.serve.memory import give_back
from twofold.serve.settings import Limits

ROUTES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "/v1/embeddings": ("input", lambda content: content["error"]["message"]),
    "/v2/rerank": ("query", lambda content: content["message"]),
    "/embed": ("inputs", lambda content: content["error"]),
    "/rank": ("context", lambda content: content["error"]["message"]),
    "/search": ("context", lambda content: content["error"]["message"]),
    "/explain": ("context", lambda content: content["error"]["message"]),
    "/predict": ("input", lambda content: content["error"]["message"]),
    "/generate": ("input", lambda content: content["error"]["message"]),
    "/next": ("input", lambda content: content["error"]["message"]),
}
"""Routes with the field that holds a text, and where an error has its message."""
BODIES: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"text",
    "half JSON": b'{"FIELD": ',
    "a list": b"[]",
    "null": b"null",
    "no fields": b"{}",
    "a number": b'{"FIELD": 3, "model": 4}',
    "NaN": b'{"FIELD": NaN, "documents": ["a"], "candidates": ["a"]}',
    "deep nesting": b'{"FIELD": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "a lone surrogate": b'{"FIELD": "\\ud800", "documents": ["a"], "candidates": ["a"]}',
    "NUL": b'{"FIELD": "a\\u0000b", "documents": ["a"], "candidates": ["a"]}',
    "not UTF-8": b'{"FIELD": "\xff\xfe", "documents": ["a"], "candidates": ["a"]}',
    "an unknown model": b'{"FIELD": "a", "model": "../../etc/passwd", "documents": ["a"], "candidates": ["a"]}',
    "an unknown index": b'{"FIELD": "a", "model": "none", "index": "/etc", "documents": ["a"]}',
    "a large number": b'{"FIELD": "a", "k": 1e400, "top_n": 1e400, "dimensions": 1e400, "top": 1e400, "options": 3}',
    "an empty text": b'{"FIELD": "", "documents": ["a"], "candidates": ["a"]}',
}


@pytest.fixture(autouse=True)
def still_up(served: Served) -> Iterator[None]:
    """After every test the server answers as before, and has no failure of its own in its log."""
    yield
    assert served.ask("GET", "/ready") == (200, {"ready": True})


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("body", BODIES)
def test_a_malformed_body_is_refused_in_the_form_of_the_convention(served: Served, path: str, body: str) -> None:
    field, message = ROUTES[path]
    raw = BODIES[body].replace(b"FIELD", field.encode())
    status, headers, content = served.send("POST", path, raw)
    assert 400 <= status < 500, content
    assert headers["content-type"] == "application/json"
    assert message(json.loads(content))


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/v1/embeddings", {"input": ["a"] * 100_000, "model": "bi"}, "100,000 texts"),
        ("/embed", {"inputs": ["a"] * 100_000, "model": "bi"}, "100,000 texts"),
        ("/rank", {"model": "bi", "context": "a", "candidates": ["a"] * 100_000}, "100,000 candidates"),
        ("/rank", {"model": "bi", "context": "a", "candidates": ["a"], "k": 10**9}, "1,000,000,000 hits"),
        ("/rank", {"model": "bi", "context": "a", "candidates": ["a"], "candidate": 1}, "did you mean 'candidates'"),
        ("/rank", {"model": "translate", "context": "a", "candidates": ["a"]}, "does not rank"),
        ("/predict", {"model": "bi", "input": "a"}, "ranks candidates"),
        ("/rank", {"model": "bi", "context": "a" * 200_000, "candidates": ["a"]}, "200,000 characters"),
        ("/search", {"context": "a", "filter": "lang = 'ko'; DROP TABLE candidates"}, "filter"),
        ("/search", {"context": "a", "filter": "1 OR 1=1"}, "filter"),
        ("/search", {"context": "a", "filter": "x" * 5000}, "4096"),
        ("/search", {"context": "a", "index": "numbers/../../etc"}, "there is no index"),
        ("/predict", {"model": "caption", "input": "/etc/passwd"}, "base64"),
        ("/predict", {"model": "caption", "input": {"image": "/etc/passwd"}}, "not base64"),
        ("/predict", {"model": "transcribe", "input": {"audio": "/etc/passwd"}}, "not base64"),
        ("/generate", {"model": "translate", "input": "a", "prefix": ["x"] * 2000}, "1000"),
        ("/next", {"model": "translate", "input": "a", "top": 10**6}, "100"),
        ("/explain", {"model": "bi", "context": "a", "candidates": ["a"] * 200}, "200 explained"),
        ("/explain", {"model": "label", "input": "a " * 20_000, "influence": True}, "words"),
    ],
)
def test_what_is_beyond_a_limit_says_so(served: Served, path: str, body: dict[str, Any], said: str) -> None:
    status, content = served.ask("POST", path, body)
    assert status in (400, 404, 413, 422)
    assert said in json.dumps(content)


def bomb(side: int) -> bytes:
    """PNG of a huge image in a few kilobytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    rows = zlib.compress(b"\0" * (side // 8 + 1) * 1000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.parametrize("route", ["/predict", "/explain"])
@pytest.mark.parametrize(
    ("content", "said"),
    [(b"plain text", "not a PNG"), (b"", "not a PNG"), (bomb(30_000), "pixels"), (bomb(5_000), "pixels")],
)
def test_what_is_no_image_is_refused(served: Served, route: str, content: bytes, said: str) -> None:
    given = {"model": "caption", "input": {"image": base64.b64encode(content).decode()}}
    status, answer = served.ask("POST", route, given)
    assert status in (413, 422)
    assert said in answer["error"]["message"]


@pytest.mark.parametrize("content", [b"text", b"RIFF\xff\xff\xff\xffWAVEfmt "])
def test_what_is_no_sound_is_refused(served: Served, content: bytes) -> None:
    given = {"model": "transcribe", "input": {"audio": base64.b64encode(content).decode()}}
    status, answer = served.ask("POST", "/predict", given)
    assert status == 422
    assert "not a sound" in answer["error"]["message"]


def test_forms_that_are_none_are_refused(served: Served) -> None:
    for kind, raw in {
        "multipart/form-data": b"x",
        "multipart/form-data; boundary=b": b"--b\r\nbroken",
        "multipart/form-data; boundary=c": b"--c\r\nContent-Disposition: form-data\r\n\r\n\r\n--c--\r\n",
    }.items():
        status, _, content = served.send("POST", "/predict", raw, {"Content-Type": kind})
        assert 400 <= status < 500, content


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Encoding": "gzip"}, 415),
        ({"Host": "attacker.example"}, 403),
    ],
)
def test_what_a_page_elsewhere_could_send_is_refused(served: Served, headers: dict[str, str], status: int) -> None:
    raw = json.dumps({"model": "bi", "context": "a", "candidates": ["a"]}).encode()
    body = gzip.compress(raw) if "Content-Encoding" in headers else raw
    assert served.send("POST", "/rank", body, headers)[0] == status


def test_methods_and_paths_that_there_are_not_have_their_form(served: Served) -> None:
    assert served.ask("GET", "/nothing")[0] == 404
    assert served.ask("GET", "/v2/rerank") == (405, served.ask("GET", "/v2/rerank")[1])
    assert "message" in served.ask("GET", "/v2/rerank")[1]
    assert served.ask("DELETE", "/v1/embeddings")[1]["error"]["type"] == "invalid_request_error"
    for path in ("/page/../app.py", "/page/%2e%2e/app.py", "/page/index.html%00", "/page//etc/passwd"):
        assert served.ask("GET", path)[0] == 404


def test_no_error_names_a_folder_of_the_server(served: Served, models: SmallSet) -> None:
    status, content = served.ask("DELETE", "/indexes/numbers/candidates", {"ids": ["nobody"]})
    assert status == 404
    assert content["error"]["message"].startswith("numbers: there is no candidate")
    assert str(models.folders["numbers"].parent) not in json.dumps(content)


@pytest.fixture(scope="module")
def narrow(models: SmallSet) -> Iterator[Served]:
    """Server with low limits."""
    limits = Limits(body=20_000, read_seconds=1, connections=4, queue=1, seconds=1)
    with serving(f"bi={models.folders['bi']}", limits=limits) as server:
        yield server


def test_a_body_that_is_too_large_is_refused_before_it_is_read(narrow: Served) -> None:
    with connected(narrow) as opened:
        opened.sendall(b"POST /rank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        opened.sendall(b"Content-Length: 1000000000\r\n\r\n{")
        assert b" 413 " in opened.recv(1000)


def test_a_body_without_a_length_is_cut_off(narrow: Served) -> None:
    with connected(narrow) as opened:
        opened.sendall(b"POST /rank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        opened.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(6):
            opened.sendall(b"1000\r\n" + b"a" * 4096 + b"\r\n")
        assert b" 413 " in opened.recv(1000)


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"POST /rank HT",
        b"POST /rank HTTP/1.1\r\nHost: localhost\r\nX: ",
        b"POST /rank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
    ],
)
def test_a_client_that_sends_too_slowly_is_answered_and_let_go(narrow: Served, begun: bytes) -> None:
    start = time.monotonic()
    with connected(narrow) as opened:
        opened.sendall(begun)
        answer = opened.recv(1000)
        assert b" 408 " in answer
        assert b'"slow"' in answer or b"arrive" in answer
        while opened.recv(1000):
            pass
    assert 0.9 < time.monotonic() - start < 20


def test_headers_without_end_and_what_is_no_http_are_refused(narrow: Served) -> None:
    for sent, status in ((b"GARBAGE\r\n\r\n", b" 400 "), (b"GET / HTTP/1.1\r\nX: " + b"a" * 200_000, b" 431 ")):
        with connected(narrow) as opened:
            opened.sendall(sent)
            assert status in opened.recv(1000)


def test_connections_beyond_the_limit_are_told_to_come_back(narrow: Served) -> None:
    idle = [connected(narrow) for _ in range(4)]
    try:
        with connected(narrow) as further:
            answer = further.recv(1000)
        assert b" 429 " in answer
        assert b"retry-after" in answer
    finally:
        for opened in idle:
            opened.close()


def test_a_full_queue_is_told_to_come_back(narrow: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    batcher = narrow.service.registry.models["bi"].batcher
    monkeypatch.setattr(batcher, "most_waiting", 0)
    status, headers, content = narrow.send("POST", "/v1/embeddings", b'{"input": "a"}')
    assert status == 429
    assert int(headers["retry-after"]) >= 1
    assert json.loads(content)["error"]["code"] == "rate_limit_exceeded"


def test_an_answer_that_takes_too_long_is_given_up(narrow: Served) -> None:
    batcher, release = narrow.service.registry.models["bi"].batcher, threading.Event()
    loop = batcher._loop
    asyncio.run_coroutine_threadsafe(batcher.call(lambda: release.wait(20)), loop)
    try:
        status, content = narrow.ask("POST", "/embed", {"inputs": "a"})
        assert status == 429
        assert "longer than 1 s" in content["error"]
    finally:
        release.set()
    assert narrow.post("/embed", inputs="a")


def resident() -> int:
    """Memory of this process in bytes."""
    give_back()
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * 4096


def test_memory_returns_after_large_requests(served: Served) -> None:
    texts = [f"{number} " * 40 for number in range(9000)]
    body = json.dumps({"model": "bi", "context": "a", "candidates": texts}).encode()
    for _ in range(2):
        assert served.send("POST", "/rank", body)[0] == 200
    before = resident()
    for _ in range(4):
        assert served.send("POST", "/rank", body)[0] == 200
    assert resident() - before < 40 << 20
    assert served.service.bytes_held == 0


def test_the_description_lists_every_route(served: Served) -> None:
    status, _, content = served.send("GET", "/docs")
    assert status == 200
    document = served.ask("GET", "/openapi.json")[1]
    for path in (*ROUTES, "/indexes/{name}/candidates", "/v1/models"):
        assert path in document["paths"]
        assert path.encode() in content
