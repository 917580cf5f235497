"""Hostile requests for a server: each is refused in the form of its route's convention, or answered, and costs nothing.

`attacks(count, seed)` gives the named ones first, then as many of random changes of right requests as are wanted.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import io
import json
import random
import re
import struct
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image

from tests.serve.clients import Connection
from twofold.serve.app import ROUTES

LATE = 90.0
"""Seconds within which every request has its answer."""
TOGETHER = 16
"""Requests that are open at a time."""
GOOD = {"refused", "answered", "closed"}
"""Right outcomes; `closed` is a connection that the server ends before a huge body has been sent."""
FORMS: dict[str, Callable[[Any], Any]] = {
    "twofold": lambda body: set(body["error"]) == {"message", "type", "place"} and body["error"]["message"],
    "openai": lambda body: set(body["error"]) == {"message", "type", "param", "code"} and body["error"]["message"],
    "cohere": lambda body: body["message"],
    "text-embeddings-inference": lambda body: set(body) == {"error", "error_type"} and body["error"],
}
"""Checks of an error's body; each returns the message."""
CONVENTIONS = [
    (route.method, re.compile(re.sub(r"\{.+?\}", "[^/]+", route.path)), route.convention.name) for route in ROUTES
]


@dataclass(frozen=True)
class Attack:
    """Hostile request."""

    name: str
    path: str
    body: bytes
    method: str = "POST"
    headers: tuple[str, ...] = ("Content-Type: application/json",)
    key: bool = True
    """Sends the key."""
    refused: bool = True
    """True if an answer of status 200 would be wrong."""
    raw: bytes | None = None
    """Bytes that are sent instead of a request."""
    pause: float = 0.0
    """Seconds between two bytes."""
    huge: bool = False
    """The server may close the connection before it has read everything."""


def right_requests() -> dict[str, Any]:
    """A request to each route that a model of the small set answers."""
    image, sound = base64.b64encode(png(8, 8)).decode(), base64.b64encode(wave()).decode()
    candidates = ["one", "two and 7", "삼백"]
    return {
        "/v1/embeddings": {"input": ["one", "two"], "model": "bi", "encoding_format": "float", "dimensions": 4},
        "/v2/rerank": {"query": "one", "documents": candidates, "model": "poly", "top_n": 2},
        "/v1/rerank": {"query": "one", "documents": [{"text": "two"}], "model": "cross", "max_tokens_per_doc": 5},
        "/embed": {"inputs": ["one", "two"], "model": "bi", "truncate": True, "normalize": True},
        "/rerank": {"query": "one", "texts": candidates, "model": "late", "raw_scores": True, "return_text": True},
        "/similarity": {"inputs": {"source_sentence": "one", "sentences": ["two", "3"]}, "model": "bi"},
        "/predict": {"model": "label", "input": "one and two", "options": {}},
        "/predict ": {"model": "with-skips", "input": {"image": image}},
        "/predict  ": {"model": "transcribe", "input": {"audio": sound}, "options": {"beam": 2, "max_length": 5}},
        "/rank": {"model": "bi", "context": "one", "candidates": candidates, "k": 2, "then": [["cross", 2]]},
        "/search": {"index": "numbers", "context": ["one", "7"], "k": 3, "filter": 'lang = "en"', "exclude": ["n1"]},
        "/generate": {"model": "translate", "input": "one", "options": {"beam": 2, "max_length": 5}, "prefix": []},
        "/next": {"model": "translate", "input": "one", "prefix": ["1"], "top": 3},
        "/explain": {"model": "poly", "context": "one", "candidates": candidates, "k": 2, "influence": True},
        "/explain ": {"model": "tree", "input": ["one", "two"]},
        "/": {"inputs": ["one"], "model": "bi"},
        "PUT /indexes/numbers/candidates": {"candidates": [{"id": "n3", "text": "3 and 21", "lang": "ko"}]},
        "DELETE /indexes/numbers/candidates": {"ids": ["nothing of this name"]},
    }


def png(height: int, width: int, rows: int | None = None) -> bytes:
    """A black PNG; with `rows`, one that promises more than it holds."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checked = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checked)

    line = b"\0" * (3 * width + 1)
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(line) for _ in range(height if rows is None else rows)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def wave(samples: int = 1_000, rate: int = 4000) -> bytes:
    """A short WAV."""
    head = b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, rate, 2 * rate, 2, 16)
    data = b"data" + struct.pack("<I", 2 * samples) + b"\0\0\0\x20\0\0\0\xe0" * (samples // 4)
    return b"RIFF" + struct.pack("<I", len(head) + len(data)) + head + data


def _post(name: str, path: str, content: Any, **settings: Any) -> Attack:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    method, _, place = path.strip().rpartition(" ")
    return Attack(name, place, body, method or "POST", **settings)


def named() -> Iterator[Attack]:
    """Attacks that people know by name."""
    yield from _malformed()
    yield from _too_much()
    yield from _texts()
    yield from _files()
    yield from _filters()
    yield from _numbers()
    yield from _protocol()


def _malformed() -> Iterator[Attack]:
    bodies = {
        "an empty body": b"",
        "a text that is no JSON": b"hello",
        "an open brace": b"{",
        "single quotes": b"{'input': 'one'}",
        "a comma too many": b'{"input": "one",}',
        "JSON after JSON": b'{"input": "one"} {"input": "two"}',
        "a list": b'["one"]',
        "a number": b"7",
        "null": b"null",
        "a byte order mark and rubbish": b"\xef\xbb\xbf\xff\xfe",
        "UTF-16": '{"input": "one"}'.encode("utf-16"),
        "bytes that are no UTF-8": b'{"input": "\xff\xfe\x80"}',
        "NaN": b'{"input": NaN}',
        "deep nesting of lists": b"[" * 100_000,
        "deep nesting of objects": b'{"input":' * 50_000 + b"1" + b"}" * 50_000,
        "a long number": b'{"input": ' + b"9" * 100_000 + b"}",
        "zeros": b"\0" * 1000,
    }
    for path in right_requests():
        for name, body in bodies.items():
            yield _post(name, path, body)
    nested: Any = "one"
    for _ in range(900):
        nested = [nested]
    for path, fields in right_requests().items():
        yield _post("nested lists in a field", path, dict.fromkeys(fields, nested))


def _too_much() -> Iterator[Attack]:
    many = ["one"] * 100_000
    yield _post("100,000 texts", "/v1/embeddings", {"input": many, "model": "bi"})
    yield _post("100,000 texts", "/embed", {"inputs": many, "model": "bi"})
    yield _post("100,000 documents", "/v2/rerank", {"query": "one", "documents": many, "model": "bi"})
    yield _post("100,000 texts", "/rerank", {"query": "one", "texts": many, "model": "bi"})
    yield _post("100,000 candidates", "/rank", {"context": "one", "candidates": many, "model": "bi"})
    yield _post("100,000 sentences", "/similarity", {"inputs": {"source_sentence": "one", "sentences": many}})
    yield _post("100,000 inputs", "/predict", {"batch": many, "model": "label"})
    rows = [{"id": number, "text": "one"} for number in range(100_000)]
    yield _post("100,000 candidates", "PUT /indexes/numbers/candidates", {"candidates": rows})
    yield _post("100,000 ids", "DELETE /indexes/numbers/candidates", {"ids": list(range(100_000))})
    huge = b'{"input": "' + b"a" * (20 << 20) + b'"}'
    for path in ("/v1/embeddings", "/predict", "/search", "/"):
        yield _post("a body of 20 MB", path, huge, huge=True)
    yield _post("a word of a million letters", "/v1/embeddings", {"input": "a" * 1_000_000}, refused=False)
    yield _post("a million words", "/rank", {"context": "one " * 250_000, "candidates": ["one"]}, refused=False)
    words = "one " * 20_000
    yield _post(
        "influence of 20,000 words",
        "/explain",
        {"model": "bi", "context": words, "candidates": ["one"], "influence": True},
    )


def _texts() -> Iterator[Attack]:
    texts = {
        "an empty text": ("", False),
        "blanks": ("   \n\t ", False),
        "NUL": ("one\0two", True),
        "a lone surrogate": ("one \ud800 two", True),
        "a surrogate that ends": ("\udfff", True),
        "characters that turn the line": ("\u202eone\u2066", False),
        "a byte order mark": ("\ufeffone", False),
        "a private character": ("\U0010ffff", False),
        "marks without a letter": ("\u0301" * 500, False),
        "special tokens": ("[CLS] [SEP] [MASK] <s> </s> <pad>", False),
        "SQL": ("'; DROP TABLE candidates; --", False),
        "a script": ("<script>alert(1)</script>", False),
        "a format": ("%s%n{0}{__class__}${HOME}", False),
        "a path": ("../../../../etc/passwd", False),
        "lines of a log": ('one\n{"status": 200}\r\n', False),
    }
    for path, fields in right_requests().items():
        for name, (text, refused) in texts.items():
            changed = {field: _with_text(value, text) for field, value in fields.items() if field != "model"}
            model = {"model": fields["model"]} if "model" in fields else {}
            yield _post(name, path, {**changed, **model}, refused=refused)
            if model:
                yield _post(f"{name} as the name of a model", path, {**fields, "model": text})


def _with_text(value: Any, text: str) -> Any:
    """The same value with another text wherever one stands."""
    if isinstance(value, str):
        return text
    if isinstance(value, list):
        return [_with_text(each, text) for each in value]
    return {name: _with_text(each, text) for name, each in value.items()} if isinstance(value, dict) else value


def _files() -> Iterator[Attack]:
    small = io.BytesIO()
    Image.new("RGB", (9, 9)).save(small, "JPEG")
    bomb = png(30_000, 30_000, rows=2_000)
    files = {
        "a text file": b"this is no image\n" * 50,
        "an empty file": b"",
        "a decompression bomb": bomb,
        "an image that promises more than it holds": png(2_000, 2_000, rows=1),
        "half an image": small.getvalue()[: len(small.getvalue()) // 2],
        "an image of no pixels": png(0, 0),
        "a page": b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>",
        "a program": b"\x7fELF" + b"\0" * 500,
        "a sound that promises more than it holds": wave()[:44] + b"\0" * 9,
        "a sound of a rate of 0": wave(rate=0),
        "a header of a sound": b"RIFF\xff\xff\xff\xffWAVEfmt \xff\xff\xff\xff",
        "a pickle": b"\x80\x04\x95\x1f\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x8c\x06system\x93.",
    }
    models = {"with-skips": "image", "caption": "image", "transcribe": "audio"}
    for model, noun in models.items():
        for name, content in files.items():
            text = base64.b64encode(content).decode()
            # A file that ends early may be read as far as it goes.
            kept = "promises more" in name or (noun == "audio" and "a sound" in name)
            for path in ("/predict", "/explain", "/generate"):
                yield _post(f"{name} as {noun}", path, {"model": model, "input": {noun: text}}, refused=not kept)
        for value in (
            "/etc/passwd",
            "file:///etc/passwd",
            "http://127.0.0.1/",
            "../../x.png",
            "not base64!",
            "",
            None,
            7,
        ):
            for given in (value, {noun: value}, {"path": value}, {noun: value, "path": value}, [value]):
                yield _post(f"{value!r} as {noun}", "/predict", {"model": model, "input": given})
    form = (
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="../../etc/passwd"\r\n\r\nno image\r\n--x--\r\n'
    )
    kind = ("Content-Type: multipart/form-data; boundary=x",)
    yield Attack("a form with a file that is a text", "/predict", form, headers=kind)
    yield Attack("a form that does not end", "/predict", form[:-6], headers=kind)
    yield Attack("a form without a boundary", "/predict", form, headers=("Content-Type: multipart/form-data",))
    part = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\na\r\n'
    yield Attack("a form of 10,000 files", "/predict", part * 10_000 + b"--x--\r\n", headers=kind)
    yield Attack("a form with a header without an end", "/predict", b"--x\r\n" + b"A" * 100_000, headers=kind)


MAY_BE_LARGE = ("top_n", "max_tokens_per_doc")
"""Numbers that are no more than a limit."""
FILTERS = (
    "1=1; DROP TABLE candidates",
    "' OR 1=1 --",
    'lang = "en"; DELETE FROM candidates',
    'lang = "en" UNION SELECT 1',
    "(" * 10_000,
    "not " * 10_000 + 'lang = "en"',
    'lang = "en" or ' * 5_000 + 'lang = "en"',
    "lang",
    "=",
    "lang = ",
    "sqlite_master = 1",
    "load_extension('x')",
    'lang like "%"; --',
    "lang = 1e999",
    'lang = "\0"',
    "a.b.c = 1",
    "lang in (select text from candidates)",
    "\u2028",
    '"' * 999,
)
ELSEWHERE = (
    "/../../etc/passwd",
    "/page/../../../../etc/passwd",
    "/page/%2e%2e/%2e%2e/etc/passwd",
    "/page//etc/passwd",
    "/page/%00",
    "/models/..%2f..%2fetc%2fpasswd",
    "/models/\u00e9",
    "/" + "a" * 60_000,
    "/page/" + "../" * 999,
    "/v1/models/%ff%fe",
    "//",
    "/%",
    "/indexes/..%2fx/candidates",
    "/page/index.html%00.js",
    "/nothing?" + "a=1&" * 9_999,
)


def _filters() -> Iterator[Attack]:
    for text in FILTERS:
        harmless = text in ("lang = 1e999", FILTERS[6])
        yield _post(
            f"SQL as a filter ({text[:30]!r})",
            "/search",
            {"index": "numbers", "context": "one", "filter": text},
            refused=not harmless,
        )
    for name in ("../../etc", "numbers/../numbers", "", "\0", "a" * 5_000, "numbers; DROP TABLE x"):
        yield _post("a path as the name of an index", "/search", {"index": name, "context": "one"})


def _numbers() -> Iterator[Attack]:
    wrong: tuple[Any, ...] = (0, -1, 10**9, 10**30, 1.5, 1e308, 1e-308, True, "7", [], {})
    for path, fields in right_requests().items():
        for name in ("k", "top_n", "dimensions", "top", "max_tokens_per_doc"):
            if name in fields:
                for value in wrong:
                    yield _post(
                        f"{name} = {value!r}",
                        path,
                        {**fields, name: value},
                        refused=not (name in MAY_BE_LARGE and isinstance(value, int)),
                    )
    generate = right_requests()["/generate"]
    for name in (
        "beam",
        "n_best",
        "length_penalty",
        "max_length",
        "temperature",
        "top_k",
        "top_p",
        "seed",
        "no_repeat",
    ):
        for value in wrong:
            options = {"max_length": 5, name: value, **({"sample": True} if name.startswith("t") else {})}
            yield _post(f"options.{name} = {value!r}", "/generate", {**generate, "options": options}, refused=False)
    yield _post("an option that there is not", "/generate", {**generate, "options": {"eval": "1"}})
    for prefix in (["no such token"], [10**9], [-1], [1.5], [None], ["1"] * 100_000, "text"):
        yield _post("a wrong beginning", "/generate", {**generate, "prefix": prefix})
    yield _post("ids of tokens", "/v1/embeddings", {"input": [[1, 2, 3]], "model": "bi"})
    yield _post("ids of tokens", "/v1/embeddings", {"input": [1, 2, 3], "model": "bi"})
    yield _post("stages that go on", "/rank", {**right_requests()["/rank"], "then": [["cross", 2]] * 5_000})


def _protocol() -> Iterator[Attack]:
    good = json.dumps({"input": "one", "model": "bi"}).encode()
    path = "/v1/embeddings"
    keys = (
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Basic c2VjcmV0",
        "secret",
        "bearer \u00e9",
        "Bearer " + "a" * 50_000,
        "Bearer secret secret",
        "Bearer \tsecre",
    )
    for key in keys:
        yield Attack(
            "a wrong key", path, good, headers=("Content-Type: application/json", f"Authorization: {key}"), key=False
        )
    for route in ROUTES:
        place = route.path.replace("{name}", "bi").replace("{name:path}", "index.html")
        if not route.public:
            yield Attack("no key", place, good, route.method, key=False)
        for method in ("TRACE", "PATCH", "BREW", "OPTIONS"):
            yield Attack("a method that there is not", place, good, method)
    for kind in (
        "text/plain",
        "application/xml",
        "application/x-www-form-urlencoded",
        "image/png",
        "*/*",
        "\u00e9",
        "",
    ):
        yield Attack("another type", path, good, headers=(f"Content-Type: {kind}",))
    yield Attack("no type", path, good, headers=())
    for packing in ("gzip", "br", "deflate", "identity, gzip"):
        given = ("Content-Type: application/json", f"Content-Encoding: {packing}")
        yield Attack("a packed body", path, zlib.compress(good), headers=given)
    for place in ELSEWHERE:
        yield Attack("a path to elsewhere", place, b"", "GET")
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAuthorization: Bearer secret\r\n"
    )
    raws = {
        "rubbish": b"\x16\x03\x01\x02\x00\x01\x00" * 20,
        "no version": b"GET /\r\n\r\n",
        "a wrong length": f"{head}Content-Length: -1\r\n\r\n".encode() + good,
        "two lengths": f"{head}Content-Length: 3\r\nContent-Length: 5\r\n\r\n".encode() + good,
        "a length and chunks": f"{head}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".encode(),
        "a chunk of a wrong size": f"{head}Transfer-Encoding: chunked\r\n\r\nzz\r\none\r\n0\r\n\r\n".encode(),
        "10,000 headers": (head + "".join(f"X-{number}: 1\r\n" for number in range(10_000)) + "\r\n").encode(),
        "a header of a megabyte": f"{head}X: {'a' * (1 << 20)}\r\n\r\n".encode(),
        "a line without an end": b"GET /" + b"a" * (1 << 20),
        "a body that stops": f"{head}Content-Length: 5000\r\n\r\n".encode() + good,
        "an upgrade": b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    }
    for name, raw in raws.items():
        yield Attack(name, path, b"", raw=raw, huge=True, refused=False)
    for name, raw in {
        "slow headers": head.encode(),
        "a slow body": f"{head}Content-Length: 90\r\n\r\n".encode() + good,
    }.items():
        yield Attack(f"a client that sends {name}", path, b"", raw=raw, pause=0.2, huge=True)


def random_changes(seed: int) -> Iterator[Attack]:
    """Right requests with random changes of their bytes, or of their values, without end."""
    draw = random.Random(seed)
    rights = list(right_requests().items())
    values: Sequence[Any] = (
        None,
        0,
        -1,
        1.5,
        10**20,
        True,
        "",
        "one",
        [],
        {},
        [[]],
        [None],
        {"a": 1},
        ["one"] * 50,
        "a" * 3_000,
        {"text": 1},
        [{}],
    )
    while True:
        path, fields = draw.choice(rights)
        content = copy.deepcopy(fields)
        if draw.random() < 0.4:
            raw = bytearray(json.dumps(content).encode())
            for _ in range(draw.randint(1, 4)):
                place = draw.randrange(len(raw))
                change = draw.randrange(3)
                if change == 0:
                    raw[place] = draw.randrange(256)
                elif change == 1:
                    del raw[place : place + draw.randint(1, 9)]
                else:
                    raw[place:place] = bytes(draw.randrange(256) for _ in range(draw.randint(1, 6)))
                raw = raw or bytearray(b"{")
            yield _post("changed bytes", path, bytes(raw), refused=False)
            continue
        for _ in range(draw.randint(1, 3)):
            name = draw.choice([*content, "extra", "model"])
            if draw.random() < 0.2 and name in content:
                del content[name]
            else:
                content[name] = copy.deepcopy(draw.choice(values))
            if not content:
                break
        yield _post("changed values", path, content, refused=False)


def attacks(count: int, seed: int = 1) -> list[Attack]:
    """So many attacks: all that have names, then random ones."""
    found = list(named())
    changed = random_changes(seed)
    while len(found) < count:
        found.append(next(changed))
    return found


@dataclass
class Ending:
    """End of an attack."""

    outcomes: Counter[str]
    """Number of requests of each outcome; a wrong one is told with the attack's name."""
    longest_pause: float
    """Longest time in seconds that a request for `/health` waited meanwhile."""

    @property
    def wrong(self) -> dict[str, int]:
        return {outcome: count for outcome, count in self.outcomes.items() if outcome not in GOOD}


async def attack(port: int, given: Sequence[Attack], key: str) -> Ending:
    """Sends attacks, several at a time."""
    ending = Ending(Counter(), 0.0)
    limit = asyncio.Semaphore(TOGETHER)

    async def send(each: Attack) -> None:
        async with contextlib.nullcontext() if each.pause else limit:
            outcome = await outcome_of(port, each, key)
        right = outcome in GOOD
        ending.outcomes[outcome if right else f"{each.name} to {each.method} {each.path[:60]}: {outcome}"] += 1

    async def watch() -> None:
        connection = Connection(port)
        while not done.is_set():
            start = time.monotonic()
            await connection.ask("GET", "/health")
            ending.longest_pause = max(ending.longest_pause, time.monotonic() - start)
            await asyncio.sleep(0.1)
        connection.close()

    done = asyncio.Event()
    watching = asyncio.ensure_future(watch())
    await asyncio.gather(*map(send, given))
    done.set()
    await watching
    return ending


async def outcome_of(port: int, each: Attack, key: str) -> str:
    """Outcome of an attack."""
    try:
        async with asyncio.timeout(LATE):
            status, headers, body = await exchange(port, each, key)
    except TimeoutError:
        return f"no answer in {LATE:g} s"
    except (OSError, asyncio.IncompleteReadError, ValueError) as error:
        return "closed" if each.huge else f"no answer: {error!r}"
    if status >= 500:
        return f"status {status}: {body[:300]!r}"
    if status < 400:
        return f"answered with {status}" if each.refused else "answered"
    if each.method == "HEAD" or each.raw is not None:
        return "refused"
    return fault_of_error(each, headers, body) or "refused"


def fault_of_error(each: Attack, headers: bytes, body: bytes) -> str | None:
    """Fault in the body of an error: it has the form of its convention, and its message is one line."""
    if b"application/json" not in headers.lower():
        return f"an error that is no JSON: {body[:200]!r}"
    try:
        content = json.loads(body)
        message = FORMS[convention_of(each)](content)
    except (ValueError, KeyError, TypeError) as error:
        return f"an error in another form ({error!r}): {body[:200]!r}"
    if not isinstance(message, str) or not message or "\n" in message or len(message) > 2_000:
        return f"a message that is not one line: {body[:200]!r}"
    return None


def convention_of(each: Attack) -> str:
    """Name of the convention in whose form an error must be."""
    if each.method == "BREW":  # an unknown method ends the reading before the path
        return "twofold"
    fits = [(method, name) for method, path, name in CONVENTIONS if path.fullmatch(each.path.partition("?")[0])]
    return dict(fits).get(each.method) or next((name for _, name in fits), "twofold")


async def exchange(port: int, each: Attack, key: str) -> tuple[int, bytes, bytes]:
    """Sends a request and reads its answer: status, headers, body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    sending = asyncio.ensure_future(_send(writer, each, key))
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0].strip()
        body = await reader.readexactly(int(length)) if length and each.method != "HEAD" else b""
        return int(head.split(b" ", 2)[1]), head, body
    finally:
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError, OSError):
            await sending
        writer.close()


async def _send(writer: asyncio.StreamWriter, each: Attack, key: str) -> None:
    sent = each.raw
    if sent is None:
        lines = [f"{each.method} {each.path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(each.body)}"]
        lines += [*each.headers, *([f"Authorization: Bearer {key}"] if each.key else [])]
        sent = "\r\n".join([*lines, "", ""]).encode() + each.body
    if not each.pause:
        writer.write(sent)
        await writer.drain()
        if b"a body that stops" in each.name.encode():
            writer.write_eof()
        return
    for place in range(len(sent)):
        writer.write(sent[place : place + 1])
        await asyncio.sleep(each.pause)
