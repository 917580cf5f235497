"""What is served and how: names, one loading of a model, changes of indexes, metrics, the log, and the end."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.serve.processes import running
from tests.serve.serving import Served, serving
from tests.serve.small_set import SmallSet
from twofold.cli import main
from twofold.cli import serve as command
from twofold.errors import TwofoldError
from twofold.index import Index
from twofold.serve.app import ROUTES
from twofold.serve.registry import named
from twofold.serve.settings import Limits

TORCH = ["--runtime", "torch", "--precision", "float32"]


def test_the_model_of_an_index_is_loaded_once(served: Served) -> None:
    registry = served.service.registry
    assert registry.indexes["numbers"].served.model is registry.models["poly"].model
    assert len(registry.batchers) == len(registry.models)


def test_the_model_of_an_index_is_served_without_being_named(models: SmallSet) -> None:
    with serving(str(models.folders["numbers"])) as server:
        assert list(server.service.registry.models) == ["poly"]
        assert server.post("/search", context="one", k=1)["hits"]
        assert server.post("/rank", context="one", candidates=["1"])["hits"]


def test_names_are_those_of_folders_unless_given(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "mine"
    (run / "model").mkdir(parents=True)
    (run / "recipe.yaml").write_text("")
    assert named([str(run), f"other={run}", "default", "owner/name"]) == [
        ("mine", str(run)),
        ("other", str(run)),
        ("default", "default"),
        ("name", "owner/name"),
    ]
    assert named([str(run / "model")]) == [("mine", str(run / "model"))]
    with pytest.raises(TwofoldError, match="taken by"):
        named(["a=default", "a=default-multilingual"])
    with pytest.raises(TwofoldError, match="no name for a model"):
        named(["runs/two words"])


def test_the_state_tells_the_page_what_there_is(served: Served, models: SmallSet) -> None:
    status, state = served.ask("GET", "/playground/state")
    assert status == 200
    by_name = {model["name"]: model for model in state["models"]}
    assert by_name.keys() == models.models.keys()
    assert {name: by_name[name]["tab"] for name in ("poly", "translate", "caption", "with-skips", "tags")} == {
        "poly": "rank",
        "translate": "write",
        "caption": "write",
        "with-skips": "look",
        "tags": "labels",
    }
    assert [each["type"] for each in by_name["caption"]["inputs"]] == ["image"]
    assert state["indexes"] == [{"name": "numbers", "model": "poly", "candidates": 80, "fields": ["lang"]}]
    summary = served.ask("GET", "/models/poly")[1]["summary"]
    assert summary == json.loads(json.dumps(models.models["poly"].summary().as_dict()))


def test_changes_of_an_index_count_once_they_are_answered_for(models: SmallSet, tmp_path: Path) -> None:
    models.index.copy(tmp_path / "copy")
    with serving(f"numbers={tmp_path / 'copy'}") as server:
        path, search = "/indexes/numbers/candidates", {"index": "numbers", "context": "5555", "filter": 'lang = "new"'}
        new = [{"id": f"new{number}", "text": f"5555 {number}", "lang": "new"} for number in range(30)]
        assert server.ask("PUT", path, {"candidates": new})[1] == {"index": "numbers", "changed": 30, "candidates": 110}
        assert len(server.post("/search", **search, k=100)["hits"]) == 30
        with Index(tmp_path / "copy", models.models["poly"]) as other:  # as any other process sees it
            assert {hit.id for hit in other.search("5555", 100, 'lang = "new"')} == {row["id"] for row in new}
        changed = server.ask("PUT", path, {"candidates": [{**new[0], "text": "another"}, new[1]]})[1]
        assert changed["changed"] == 1
        assert server.ask("DELETE", path, {"ids": ["new1", "new2"]})[1]["candidates"] == 108
        assert server.ask("DELETE", path, {"ids": ["new3", "new1"]})[0] == 404
        hits = {hit["id"]: hit["text"] for hit in server.post("/search", **search, k=100)["hits"]}
        assert hits["new0"] == "another"
        assert "new3" in hits
        assert "new1" not in hits


@pytest.mark.parametrize("row", [{"text": "a"}, {"id": True, "text": "a"}, {"id": 1.5, "text": "a"}, {"id": "a"}, "a"])
def test_candidates_without_id_or_text_change_nothing(served: Served, row: Any) -> None:
    asked = {"candidates": [{"id": "x", "text": "y"}, row]}
    status, content = served.ask("PUT", "/indexes/numbers/candidates", asked)
    assert status == 422
    assert "candidates[1]" in content["error"]["message"]
    assert len(served.service.registry.indexes["numbers"].index) == 80


def test_a_search_goes_on_while_an_index_changes(models: SmallSet, tmp_path: Path) -> None:
    models.index.copy(tmp_path / "copy")
    with serving(f"numbers={tmp_path / 'copy'}") as server:
        stop, found = threading.Event(), []

        def ask() -> None:
            while not stop.is_set():
                found.append(len(server.post("/search", context="1234", k=10)["hits"]))

        thread = threading.Thread(target=ask)
        thread.start()
        for number in range(10):
            rows = [{"id": f"n{number}-{place}", "text": f"{number} {place}"} for place in range(20)]
            assert server.ask("PUT", "/indexes/numbers/candidates", {"candidates": rows})[0] == 200
        stop.set()
        thread.join()
        assert set(found) == {10}


def test_metrics_count_requests_and_batches(served: Served) -> None:
    def value(line: str) -> float:
        text = served.send("GET", "/metrics")[2].decode()
        return sum(float(each.rpartition(" ")[2]) for each in text.splitlines() if each.startswith(line))

    right, wrong = (f'twofold_requests_total{{route="/embed",status="{status}"}}' for status in (200, 422))
    before = value(right), value(wrong), value('twofold_batch_requests_count{model="bi"}')
    served.post("/embed", model="bi", inputs="a")
    served.ask("POST", "/embed", {"inputs": ""})
    served.ask("GET", "/a/path/of/my/own/choice")
    assert (value(right), value(wrong)) == (before[0] + 1, before[1] + 1)
    assert value('twofold_batch_requests_count{model="bi"}') == before[2] + 1
    assert b"choice" not in served.send("GET", "/metrics")[2]
    assert value("process_resident_memory_bytes") > 0


@pytest.mark.parametrize("texts", [False, True])
def test_the_access_log_has_texts_only_if_asked_for(
    models: SmallSet, texts: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(f"bi={models.folders['bi']}", log=True, log_texts=texts) as server:
        server.post("/embed", inputs="secret")
        server.ask("POST", "/rank", {"context": "secret"})
    written = capsys.readouterr().err
    right, wrong = (json.loads(line) for line in written.splitlines() if "POST" in line)
    assert (right["path"], right["status"], wrong["status"]) == ("/embed", 200, 422)
    assert right["milliseconds"] > 0
    assert ("secret" in written) is texts


def test_serving_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    for arguments in (["serve"], ["demo", "--serve"]):
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 1
        assert "pip install 'twofold[serve]'" in result.output
        assert result.output.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "99999"], "99999"),
        (["--seconds", "0"], "above 0"),
        (["no/such/model"], "no/such/model"),
        (["--host", "no.such.host.example"], "cannot listen"),
    ],
)
def test_what_cannot_be_served_is_one_line(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(main, ["serve", *arguments])
    assert result.exit_code in (1, 2)
    assert said in result.output
    assert "Traceback" not in result.output


def test_a_signal_ends_the_service_after_what_it_has_accepted(models: SmallSet, tmp_path: Path) -> None:
    arguments: list[str | Path] = ["serve", models.folders["late"], "--port", "{port}", *TORCH]
    texts, answers = [f"{number} and {number}" for number in range(6000)], []
    with running(arguments, tmp_path) as server:
        body = {"context": "one", "candidates": texts, "k": 3}
        thread = threading.Thread(target=lambda: answers.append(server.ask("POST", "/rank", body)))
        thread.start()
        while b'path="/rank"' in server.ask("GET", "/metrics")[1] or not _running(server):
            time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        thread.join()
        assert server.process.wait(60) == 0
    assert answers[0][0] == 200
    assert len(answers[0][1]["hits"]) == 3
    lines = [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]
    assert {"path": "/rank", "status": 200}.items() <= lines[-1].items()


def _running(server: Any) -> bool:
    """Returns True while a request waits beside the one that asks."""
    text = server.ask("GET", "/metrics")[1].decode()
    return "twofold_running_requests 2.0" in text


def test_several_processes_share_a_port_and_are_started_again(models: SmallSet, tmp_path: Path) -> None:
    models.index.copy(tmp_path / "numbers")
    arguments: list[str | Path] = ["serve", tmp_path / "numbers", "--workers", "2", "--port", "{port}", *TORCH]
    with running(arguments, tmp_path) as server:
        first = server.workers
        assert len(first) == 2
        asked = {"index": "numbers", "context": "77", "filter": 'lang = "new"'}
        row = {"id": "new", "text": "77", "lang": "new"}
        assert server.ask("PUT", "/indexes/numbers/candidates", {"candidates": [row]})[0] == 200
        assert all(server.ask("POST", "/search", asked)[1]["hits"] for _ in range(20))
        os.kill(first[0], signal.SIGKILL)
        end = time.monotonic() + 200
        while time.monotonic() < end and (len(server.workers) < 2 or set(server.workers) == set(first)):
            time.sleep(0.1)
        assert len(server.workers) == 2
        assert all(server.ask("POST", "/search", asked)[0] == 200 for _ in range(20))
        assert b"twofold_requests_total" in server.ask("GET", "/metrics")[1]
        workers = server.workers
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
        assert not [number for number in workers if Path(f"/proc/{number}").exists()]
    assert "Fatal" not in server.log.read_text()


def test_the_page_on_serving_lists_every_limit_with_its_default() -> None:
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    for field in dataclasses.fields(Limits):
        said = field.metadata["help"].rstrip(".")
        assert f"| `--{field.name.replace('_', '-')}` | {field.default:,g} | {said} |" in page or (
            f"| `--{field.name.replace('_', '-')}` | {field.default:,} | {said} |" in page
        )


def test_the_page_on_serving_lists_every_route() -> None:
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    for route in ROUTES:
        assert route.path.replace("{name}", "NAME").partition("{")[0] in page, route.path
