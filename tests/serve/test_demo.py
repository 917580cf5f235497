"""`twofold demo --serve` ends with its three rankers, and an index of all functions, open in the playground."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.serve.serving import serving
from tests.serve.small_set import SmallSet
from twofold.cli import demo, main
from twofold.cli import serve as command
from twofold.serve.settings import Settings

TEXTS = [f"{number} and {number * 7}" for number in range(30)]


def test_the_rankers_of_the_demo_are_served_while_their_folder_is_there(
    models: SmallSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: dict[str, Any] = {}

    def trained(folder: Path, temporary: Path) -> list[str]:
        for name in demo.RANKERS:
            models.models[name].save_pretrained(folder / name)
        return TEXTS

    def start(settings: Settings) -> None:
        with serving(*settings.served) as server:
            answers["models"] = [model["name"] for model in server.ask("GET", "/playground/state")[1]["models"]]
            answers["hits"] = server.post("/search", index="functions", context="seven", k=3)["hits"]
        answers["port"] = settings.port

    monkeypatch.setattr(demo, "_train_and_compare", trained)
    monkeypatch.setattr(command, "start", start)
    monkeypatch.setenv("TWOFOLD_PRECISION", "float32")
    result = CliRunner().invoke(main, ["demo", "--serve", "--port", "8765"])
    assert result.exit_code == 0, result.output
    assert answers["models"] == ["bi", "poly", "cross"]
    assert {hit["text"] for hit in answers["hits"]} <= set(TEXTS)
    assert len(answers["hits"]) == 3
    assert answers["port"] == 8765
