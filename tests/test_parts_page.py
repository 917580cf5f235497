"""The parts that docs/parts.md shows are complete: they are copied from the page, trained and used by their names."""

from __future__ import annotations

import json
import random
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import twofold
from tests.commands import answer, refusal
from tests.conftest import write_jsonl
from tests.made import numbers
from twofold.errors import TwofoldError
from twofold.model.load import load_ranker
from twofold.recipe import Recipe, train

PAGE = (Path(__file__).parents[1] / "docs" / "parts.md").read_text(encoding="utf-8")
SIX = ("coverage", "hinge", "interval", "quantiles", "readings", "smoother")


def blocks() -> dict[str, str]:
    """The files that the page shows, by the names in their first lines."""
    shown = re.findall(r"^```(?:python|yaml)\n# ([\w/]+\.(?:py|yaml))\b.*?\n(.*?)^```", PAGE, re.M | re.S)
    return dict(shown)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with all files of the page, the package among them, and its data."""
    for name, content in blocks().items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    (tmp_path / "forecast" / "__init__.py").touch()
    shutil.copy(tmp_path / "hinge.py", tmp_path / "forecast")
    draw = random.Random(1)
    rows = []
    for _ in range(300):
        level = draw.uniform(-2, 2)
        values = [round(level + draw.gauss(0, 0.3), 3) for _ in range(draw.randint(4, 20))]
        rows.append({"readings": values, "next": level + draw.gauss(0, 0.3)})
    write_jsonl(tmp_path / "readings.jsonl", rows)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "forecast"]:
        del sys.modules[name]


def test_the_page_shows_all_six_parts() -> None:
    assert sorted(Path(name).stem for name in blocks() if Path(name).stem in SIX) == sorted(SIX)


def test_a_package_of_parts_is_trained_and_used_by_nothing_but_their_names(place: Path) -> None:
    train("forecast.yaml", "run")
    assert "needs code outside twofold (forecast." in refusal("evaluate", "run", "readings.jsonl")
    judged = answer("evaluate", "run", "readings.jsonl", "--allow-code", "--json")["metrics"]
    assert judged["coverage"] > 0.6
    assert set(judged) == {"loss", "coverage", "interval_width"}
    shutil.move("run/model", "moved")
    told = answer(
        "predict",
        "moved",
        "1 1.2 0.9 1.1 1 1",
        "0 -1.9 -1.7 -2 -1.6 -1.8 -1.5",
        "--allow-code",
        "--json",
        "--plot",
        "a.png",
    )
    first, second = (prediction["output"] for prediction in told["predictions"])
    assert first["low"] < first["middle"] < first["high"]
    assert second["middle"] < 0 < first["middle"]
    assert (place / "a.png").read_bytes().startswith(b"\x89PNG")
    model = twofold.load("moved", allow_code=True)
    again = model.predict([[1, 1.2, 0.9, 1.1, 1, 1]])[0].output
    assert model(model.batch([{"readings": [1, 1.2, 0.9], "next": 1}]))["main"].logits.shape == (1, 3)
    assert (again.low, again.high) == pytest.approx((first["low"], first["high"]), abs=1e-5)
    assert len(list(map(float, re.findall(r"-?\d+\.\d+", model.outputs["main"].caption(again))))) == 3


def test_what_the_own_input_cannot_read_is_one_line(place: Path) -> None:
    train("forecast.yaml", "run", ["train.max_steps=2"])
    assert refusal("predict", "run", "1 x", "--allow-code") == "input 1: 'readings' must be 1 to 1000 finite numbers"
    with (place / "readings.jsonl").open("a") as file:
        file.write('{"readings": [], "next": 1}\n')
    line = refusal("train", "forecast.yaml", "train.device=cpu", "--out", "again")
    assert line == "readings.jsonl:301: 'readings' must be 1 to 1000 finite numbers"


def test_a_loss_of_the_package_trains_a_ranker(place: Path) -> None:
    rows = write_jsonl(place / "pairs.jsonl", numbers(60, seed=1))
    content = {
        "data": {"train": rows},
        "input": {"column": "source", "max_tokens": 30, "tokenizer": {"size": 90}},
        "output": {"candidate": {"column": "target", "max_tokens": 20}},
        "encoder": {"kind": "transformer", "width": 16, "layers": 1, "heads": 2},
        "decoder": {"kind": "bi"},
        "losses": [{"kind": "forecast.hinge", "margin": 0.5}],
        "train": {
            "max_steps": 20,
            "batch_rows": 16,
            "learning_rate": 3e-3,
            "warmup": 1,
            "log_every": 1,
            "device": "cpu",
        },
    }
    train(Recipe.of(content), "ranker")
    lines = map(json.loads, (place / "ranker" / "log.jsonl").read_text().splitlines())
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < losses[0]
    with pytest.raises(TwofoldError, match=r"forecast\.hinge"):
        twofold.load("ranker")
    assert len(load_ranker("ranker", allow_code=True).rank("one", ["1", "2"])) == 2


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("    def build(self, features, needs):\n        raise RuntimeError('no sensor')\n", "RuntimeError: no sensor"),
        ("    def build(self):\n        pass\n", "TypeError"),
    ],
)
def test_a_part_that_raises_while_it_is_built_is_one_line_with_its_place(place: Path, code: str, said: str) -> None:
    head = "from dataclasses import dataclass\nfrom forecast import smoother\n\n\n@dataclass(frozen=True)\n"
    (place / "broken.py").write_text(f"{head}class Config(smoother.Config):\n{code}", encoding="utf-8")
    line = refusal("train", "forecast.yaml", "encoder={kind: ./broken.py}", "--out", "run")
    assert re.fullmatch(rf"the encoder '.*broken\.py' cannot be built \(\w+\.py:\d+: {said}.*\)", line)


def test_a_module_that_raises_when_it_is_imported_is_one_line(place: Path) -> None:
    (place / "forecast" / "wrong.py").write_text("raise ValueError('not today')\n", encoding="utf-8")
    line = refusal("train", "forecast.yaml", "encoder={kind: forecast.wrong}", "--out", "run")
    assert "the encoder 'forecast.wrong' cannot be imported (ValueError: not today)" in line
