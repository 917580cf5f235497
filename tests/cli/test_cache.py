"""The cache folder is shown and emptied by kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import small_recipe, write_jsonl
from twofold.cli import main
from twofold.data.cache import cache_folder
from twofold.recipe import train


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    with pytest.raises(SystemExit) as ended:
        main(["cache", *arguments, "--json"])
    assert not ended.value.code
    content: dict[str, object] = json.loads(capsys.readouterr().out)
    return content


def test_the_cache_tells_what_it_holds_and_is_emptied_by_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"source": f"one {number}", "target": str(number)} for number in range(20)]
    train(small_recipe(write_jsonl(tmp_path / "rows.jsonl", rows)), tmp_path / "run")
    capsys.readouterr()
    about = printed(capsys, "info")
    assert about["folder"] == str(cache_folder())
    data = about["data"]
    assert isinstance(data, dict)
    assert data["entries"] == 1
    assert data["bytes"] > 100
    assert printed(capsys, "clear", "engines") == {"removed": {"engines": 0}}
    assert printed(capsys, "clear") == {"removed": {"data": 1, "engines": 0, "rankers": 0}}
    assert printed(capsys, "info")["data"] == {"entries": 0, "bytes": 0}


def test_an_empty_cache_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "clear")["removed"] == {"data": 0, "engines": 0, "rankers": 0}


def test_an_unknown_kind_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["cache", "clear", "everything"])
    assert ended.value.code == 2
    assert "engines" in capsys.readouterr().err
