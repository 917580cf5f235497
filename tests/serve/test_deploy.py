"""The unit of systemd and the Dockerfile name what there is, hold no secret, and start a server that answers."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import decoder, encoder
from tests.docs.blocks import blocks_of, commands_of, words_of
from tests.docs.mentions import command_of, parses
from tests.rankers import small_ranker
from tests.serve.deploying import DOCKERFILE, ROOT, UNIT, environment_of, instructions, settings_of, started
from tests.serve.processes import running
from twofold.data.tokenizer import TextTokenizer
from twofold.serve.app import ROUTES

PAGE = ROOT / "docs" / "deploying.md"
KEYS = "TWOFOLD_KEY"
EXPOSURE = 2.0
"""Exposure of the unit at most, as `systemd-analyze security` computes it: 0 is closed, 10 open."""
analyze = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(analyze is None, reason="systemd-analyze is not installed")


def unit() -> str:
    return UNIT.read_text(encoding="utf-8")


def docker(name: str) -> list[list[str]]:
    """Words of all instructions of a name."""
    found = instructions(DOCKERFILE.read_text(encoding="utf-8"))
    return [instruction.words for instruction in found if instruction.name == name]


def serving() -> dict[str, list[str]]:
    """Commands that start the server, by file."""
    words = started(settings_of(unit())["ExecStart"][0], environment_of(unit()))
    return {"unit": words, "Dockerfile": docker("ENTRYPOINT")[0] + docker("CMD")[0]}


@pytest.mark.parametrize("file", ["unit", "Dockerfile"])
def test_the_command_that_is_started_exists_with_all_its_options(file: str) -> None:
    program, command, *options = serving()[file]
    assert Path(program).name == "twofold"
    assert command == "serve"
    parses([command, *options])


def test_keys_come_from_the_variable_that_both_files_name() -> None:
    command, _ = command_of(["serve"])
    assert [parameter.envvar for parameter in command.params if parameter.name == "keys"] == [KEYS]
    assert KEYS in unit()
    assert KEYS in DOCKERFILE.read_text(encoding="utf-8")


def test_neither_file_holds_a_secret() -> None:
    assert not [name for name in environment_of(unit()) if re.search("KEY|TOKEN|SECRET|PASSWORD", name)]
    given = [word for name in ("ENV", "ARG") for words in docker(name) for word in words]
    assert given
    assert not [word for word in given if re.search("KEY|TOKEN|SECRET|PASSWORD", word)]
    assert not [word for words in serving().values() for word in words if word.startswith("--key")]


@needs_systemd
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    copied = tmp_path / UNIT.name
    copied.write_text(unit().replace("/opt/twofold/bin/twofold", sys.executable), encoding="utf-8")
    checked = subprocess.run([str(analyze), "verify", str(copied)], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")
    broken = tmp_path / "broken.service"
    broken.write_text(copied.read_text().replace("RestartSec", "RestartSeconds"), encoding="utf-8")
    checked = subprocess.run([str(analyze), "verify", str(broken)], capture_output=True, text=True)
    assert "RestartSeconds" in checked.stderr


@needs_systemd
def test_the_unit_is_closed_to_what_it_does_not_need() -> None:
    security = [str(analyze), "security", "--offline=true", "--json=short", "--no-pager", str(UNIT)]
    told = subprocess.run([*security, f"--threshold={EXPOSURE * 10:.0f}"], capture_output=True, text=True)
    assert told.returncode == 0, told.stdout
    assert len(json.loads(told.stdout)) > 50
    settings = settings_of(unit())
    for name in ("DynamicUser", "NoNewPrivileges", "ProtectHome", "PrivateDevices"):
        assert settings[name] == ["yes"]
    assert settings["ProtectSystem"] == ["strict"]


def test_the_image_installs_torch_first_and_extras_that_there_are() -> None:
    first, second = (words for words in docker("RUN") if words[:2] == ["pip", "install"])
    assert first[-1] == "torch"
    extras = re.fullmatch(r"\.\[(.+)\]", second[-1])
    assert extras
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(extras[1].split(",")) <= set(project["optional-dependencies"])
    assert "serve" in extras[1].split(",")
    for words in (first, second):
        assert words[words.index("--constraint") + 1] == "constraints.txt"


def test_the_image_copies_what_the_package_is_built_of_and_nothing_else() -> None:
    copied = [place for words in docker("COPY") for place in words[:-1]]
    assert {"src", "recipes", "pyproject.toml", "constraints.txt"} <= set(copied)
    assert not [place for place in copied if place.startswith(".") or not (ROOT / place).exists()]


def test_the_image_runs_as_nobody_in_particular() -> None:
    names = [instruction.name for instruction in instructions(DOCKERFILE.read_text(encoding="utf-8"))]
    ((user,),) = docker("USER")
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)
    assert names.index("USER") > max(place for place, name in enumerate(names) if name in ("RUN", "COPY"))


def test_the_health_check_asks_a_public_route() -> None:
    ((*_, code),) = [words[words.index("CMD") + 1 :] for words in health_check()]
    assert code
    place = re.search(r"http://127\.0\.0\.1:(\d+)(/\w+)", DOCKERFILE.read_text(encoding="utf-8"))
    assert place
    assert place[1] == docker("EXPOSE")[0][0]
    assert [route.method for route in ROUTES if route.path == place[2] and route.public] == ["GET"]


def health_check() -> list[list[str]]:
    """Words of the health check, its command as a list."""
    found = instructions(DOCKERFILE.read_text(encoding="utf-8"))
    rests = [instruction.rest.partition("CMD ") for instruction in found if instruction.name == "HEALTHCHECK"]
    return [[*options.split(), "CMD", *json.loads(command)] for options, _, command in rests]


def test_the_page_names_files_that_there_are_and_commands_that_parse() -> None:
    commands = [words_of(line) for block in blocks_of(PAGE) if block.language == "sh" for line in commands_of(block)]
    places = [word for words in commands for word in words if word.startswith("deploy/")]
    assert {"deploy/Dockerfile", "deploy/twofold.service"} <= set(places)
    assert all((ROOT / place).is_file() for place in places)
    ours = [words for words in commands if "twofold" in Path(words[0]).name]
    for words in ours:
        parses(words[1:])


# --- servers that run ---


def with_free_port(words: Sequence[str]) -> list[str]:
    """The same words with a free port, which `running` chooses."""
    place = list(words).index("--port") + 1
    return [*words[:place], "{port}", *words[place + 1 :]]


def checked_by_health_check(python: str, port: int) -> int:
    """Status of the command of the health check."""
    (words,) = health_check()
    _, flag, code = words[words.index("CMD") + 1 :]
    return subprocess.run([python, flag, code.replace(":8000", f":{port}")], capture_output=True).returncode


def test_the_unit_starts_a_server_that_asks_for_its_key_and_ends_when_told(
    tmp_path: Path, tokenizer: TextTokenizer
) -> None:
    small_ranker(tokenizer, encoder("rnn"), decoder("bi")).save_pretrained(tmp_path / "model")
    variables = {**environment_of(unit()), "TWOFOLD_SERVED": f"small={tmp_path / 'model'}", KEYS: "first second"}
    _, *rest = with_free_port(started(settings_of(unit())["ExecStart"][0], variables))
    for name, value in variables.items():
        variables[name] = value.replace("/var/", f"{tmp_path}/var/")
    with running(rest, tmp_path, variables) as server:
        assert server.ask("GET", "/v1/models")[0] == 401
        assert server.ask("GET", "/v1/models", headers={"Authorization": "Bearer first second"})[0] == 401
        assert server.ask("GET", "/v1/models", headers={"Authorization": "Bearer second"})[0] == 200
        assert checked_by_health_check(sys.executable, server.port) == 0
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(int(settings_of(unit())["TimeoutStopSec"][0])) == 0
    assert checked_by_health_check(sys.executable, server.port) == 1


@pytest.mark.bench
def test_the_steps_of_the_image_run_in_a_fresh_folder(tmp_path: Path, tokenizer: TextTokenizer) -> None:
    """Runs COPY and RUN in a folder and a virtual environment of its own, then starts what the image starts.

    TORCH_INDEX: address or folder of torch's builds, where pytorch.org cannot be reached.
    """
    small_ranker(tokenizer, encoder("rnn"), decoder("bi")).save_pretrained(tmp_path / "model")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    binaries = tmp_path / "venv" / "bin"
    variables = {"PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
    variables |= dict.fromkeys(("PYTHONPATH", "VIRTUAL_ENV"), "")
    here = tmp_path

    def inside(place: str) -> str:
        return place.replace("/opt/", f"{tmp_path}/opt/").replace("/var/", f"{tmp_path}/var/")

    for instruction in instructions(DOCKERFILE.read_text(encoding="utf-8")):
        if instruction.name in ("ENV", "ARG"):
            for word in instruction.words:
                name, _, value = word.partition("=")
                given = os.environ.get(name) if instruction.name == "ARG" else None
                variables[name] = given or inside(value)
        elif instruction.name == "WORKDIR":
            here = Path(inside(instruction.words[0]))
            here.mkdir(parents=True, exist_ok=True)
        elif instruction.name == "COPY":
            copy(instruction.words[:-1], here / instruction.words[-1])
        elif instruction.name == "RUN":
            command = inside(instruction.rest).replace("=10001", f"={os.getuid()}")
            subprocess.run(["/bin/sh", "-c", command], cwd=here, env={**os.environ, **variables}, check=True)
    words = [*with_free_port(docker("ENTRYPOINT")[0][1:]), f"small={tmp_path / 'model'}"]
    with running(words, here, {**variables, KEYS: "secret"}, program=[binaries / "twofold"]) as server:
        assert server.ask("GET", "/v1/models")[0] == 401
        assert server.ask("GET", "/v1/models", headers={"Authorization": "Bearer secret"})[0] == 200
        assert server.ask("GET", "/")[0] == 200
        assert checked_by_health_check(str(binaries / "python"), server.port) == 0


def copy(places: Sequence[str], target: Path) -> None:
    """Copies as COPY does: files into a folder, the content of a folder as a folder."""
    for place in places:
        if (ROOT / place).is_dir():
            shutil.copytree(ROOT / place, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / place, target)
