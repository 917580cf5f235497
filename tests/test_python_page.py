"""The Python blocks of docs/python.md run as they stand, one after another, on a few rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests import made
from tests.conftest import small_recipe, write_jsonl

PAGE = Path(__file__).parent.parent / "docs" / "python.md"
TEXTS = ["Use os.listdir to list a folder.", "Free some space.", "Call len.", "Wait."]


def test_the_blocks_of_the_page_run_and_its_loss_is_that_of_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = made.numbers(40, seed=1)
    recipe = small_recipe(write_jsonl(tmp_path / "rows.jsonl", rows), source="source", target="target")
    known: dict[str, Any] = {"texts": TEXTS, "rows": rows, "recipe": recipe}
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), known)
        if "ready" in known and "hits" in known:
            assert known["hits"][0].text == known["many"][0][0].text == TEXTS[0]
            assert int(np.argmax(known["scores"])) == 0
    torch.testing.assert_close(known["loss"], known["model"].loss(known["batch"]))
    assert (tmp_path / "runs" / "mine_tuned").is_dir()
    assert "Index('answers.index', 4 candidates)" in capsys.readouterr().out
