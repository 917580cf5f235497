"""A user's own part of every kind: a file or a module; saved with the model, and loaded only by who allows it."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import twofold
from tests.recipe.tasks import pairs
from tests.recipe.tasks import recipe as ranking_recipe
from tests.texts import colored, recipe, rows_of, write
from twofold.config import part_config
from twofold.errors import TwofoldError
from twofold.model import Ranker
from twofold.recipe import Recipe, train

PARTS = {
    "inputs": '''"""Texts in reverse."""
from dataclasses import dataclass
from twofold.inputs import text


@dataclass(frozen=True)
class Config(text.Config):
    def build(self, tokenizer):
        plain = super().build(tokenizer)
        return Reversed(self, plain.text, plain.frame)


class Reversed(text.TextInput):
    def batch(self, items, draws=None):
        return super().batch([list(item)[::-1] for item in items], draws)
''',
    "outputs": '''"""Labels in capitals."""
from dataclasses import dataclass, replace
from twofold.outputs import label


@dataclass(frozen=True)
class Config(label.Config):
    def build(self, name, input, tokenizer, spec):
        plain = super().build(name, input, tokenizer, spec)
        return Loud(plain.name, plain.config, plain.spec)


class Loud(label.LabelOutput):
    def answer(self, given, item, raw, begun=()):
        prediction = super().answer(given, item, raw, begun)
        return replace(prediction, output=prediction.output.upper())
''',
    "encoders": '''"""A bag of words."""
from dataclasses import dataclass
from twofold.encoders import EncoderConfig
from twofold.inputs.text import Tokens
from twofold.layers.blocks import make_embedding
from twofold.layers.pooling import masked_mean
from twofold.types import Encoder, Hidden, HiddenSpec


@dataclass(frozen=True)
class Config(EncoderConfig):
    width: int = 16

    def spec(self):
        return HiddenSpec(states=self.width, summary=self.width)

    def build(self, vocabulary, needs):
        return Bag(self, vocabulary)


class Bag(Encoder):
    def __init__(self, config, vocabulary):
        super().__init__()
        self.embedding = make_embedding(vocabulary.size, config.width)

    def forward(self, batch):
        text = batch.read(Tokens)
        states = self.embedding(text.tokens)
        return Hidden(mask=text.mask, states=states, summary=masked_mean(states, text.mask))
''',
    "decoders": '''"""Labels by the largest states."""
from dataclasses import dataclass
from twofold.decoders import label


@dataclass(frozen=True)
class Config(label.Config):
    pooling: str = "max"
''',
}
OWN_LOSS = '''"""The cross-entropy twice."""
from dataclasses import dataclass
from twofold.losses import in_batch


@dataclass(frozen=True)
class Config(in_batch.Config):
    def sum(self, scored):
        return 2 * super().sum(scored)
'''
OWN_METRIC = '''"""The share of answers that are short."""
from twofold.metrics import HIGHER, Report

METRICS = {"short": HIGHER}


def measure(evaluation):
    answers = [str(prediction.output) for prediction in evaluation.predictions()]
    return Report({"short": sum(len(answer) < 5 for answer in answers) / len(answers)}, len(answers))
'''
TEXTS = [str(row["text"]) for row in rows_of(colored, 8, 5)]


def labelling(folder: Path, role: str, kind: str) -> dict[str, Any]:
    """A recipe whose part of one role is the user's own."""
    content = recipe(write(folder, colored, 40), {"source": "text", "target": "label"}, {"kind": "label"}, max_steps=3)
    section = role.removesuffix("s")
    small = {"kind": "transformer", "width": 16, "layers": 1, "heads": 2} if section == "encoder" else {}
    content[section] = {**({} if small else content.get(section, {})), "kind": kind}
    return content


@pytest.mark.parametrize("role", PARTS)
def test_a_part_in_a_file_is_saved_with_the_model_and_needs_leave_to_load(tmp_path: Path, role: str) -> None:
    file = tmp_path / "my_part.py"
    file.write_text(PARTS[role], encoding="utf-8")
    train(Recipe.of(labelling(tmp_path / "data", role, str(file))), tmp_path / "run")
    trained = twofold.load(tmp_path / "run", allow_code=True)
    answers = trained.predict(TEXTS)
    file.unlink()
    shutil.move(tmp_path / "run" / "model", tmp_path / "moved")
    with pytest.raises(TwofoldError, match=r"needs code outside twofold .*allow it with --allow-code"):
        twofold.load(tmp_path / "moved")
    assert twofold.load(tmp_path / "moved", allow_code=True).predict(TEXTS) == answers
    about = json.loads((tmp_path / "moved" / "config.json").read_text())
    assert list(about["code_sha256"]) == ["code/my_part.py"]
    saved = tmp_path / "moved" / "code" / "my_part.py"
    saved.write_text(saved.read_text() + "\n# changed\n", encoding="utf-8")
    with pytest.raises(TwofoldError, match="not the code that the model was saved with"):
        twofold.load(tmp_path / "moved", allow_code=True)


@pytest.mark.parametrize("role", PARTS)
def test_a_part_by_the_name_of_its_module_needs_leave_to_load(
    tmp_path: Path, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / f"own_{role}"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "part.py").write_text(PARTS[role], encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    train(Recipe.of(labelling(tmp_path / "data", role, f"own_{role}.part")), tmp_path / "run")
    with pytest.raises(TwofoldError, match=rf"needs code outside twofold \(own_{role}.part\)"):
        twofold.load(tmp_path / "run")
    assert len(twofold.load(tmp_path / "run", allow_code=True).predict(TEXTS)) == len(TEXTS)
    sys.modules.pop(f"own_{role}.part", None)


def test_a_loss_of_ones_own_is_minimized_saved_and_needs_leave(tmp_path: Path) -> None:
    (tmp_path / "twice.py").write_text(OWN_LOSS, encoding="utf-8")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs(40, 1)), encoding="utf-8")
    losses = {}
    for name, kind in (("plain", "in_batch"), ("own", str(tmp_path / "twice.py"))):
        content = ranking_recipe(tmp_path / "rows.jsonl", train={"max_steps": 1}, losses=[{"kind": kind}])
        train(Recipe.of(content), tmp_path / name)
        lines = [json.loads(line) for line in (tmp_path / name / "log.jsonl").read_text().splitlines()]
        losses[name] = next(line["loss"] for line in lines if "loss" in line)
    assert losses["own"] == pytest.approx(2 * losses["plain"])
    with pytest.raises(TwofoldError, match="--allow-code"):
        twofold.load(tmp_path / "own")
    assert isinstance(twofold.load(tmp_path / "own", allow_code=True), Ranker)


def test_a_metric_of_ones_own_judges_a_training_and_is_saved_with_the_model(tmp_path: Path) -> None:
    (tmp_path / "short.py").write_text(OWN_METRIC, encoding="utf-8")
    given = {"source": "text", "output": {"column": "label", "metrics": [str(tmp_path / "short.py")]}, "held_out": 8}
    content = recipe(write(tmp_path / "data", colored, 40), given, {"kind": "label"}, max_steps=2, best="short")
    train(Recipe.of(content), tmp_path / "run")
    (tmp_path / "short.py").unlink()
    with pytest.raises(TwofoldError, match="--allow-code"):
        twofold.load(tmp_path / "run")
    model = twofold.load(tmp_path / "run", allow_code=True)
    metrics = twofold.evaluate(model, rows_of(colored, 10, 3)).metrics
    assert 0 <= metrics["short"] <= 1
    assert "accuracy" in metrics


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("x = 1\n", "has no `Config` class made from EncoderConfig"),
        ("import no_such_package\n", r"cannot be imported \(ModuleNotFoundError"),
        ("def broken(:\n", r"cannot be imported \(SyntaxError"),
        ("from twofold.decoders.label import Config\n", "has no `Config` class made from EncoderConfig"),
    ],
)
def test_a_file_that_is_no_part_is_one_line(tmp_path: Path, code: str, line: str) -> None:
    (tmp_path / "wrong.py").write_text(code, encoding="utf-8")
    with pytest.raises(TwofoldError, match=line):
        part_config("encoders", str(tmp_path / "wrong.py"))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TwofoldError, match=r"the encoder '.*nowhere.py' cannot be read"):
        part_config("encoders", str(tmp_path / "nowhere.py"))
