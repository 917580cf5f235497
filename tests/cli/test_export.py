"""`twofold export` as a user meets it: what it writes and tells, and what it refuses in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import twofold
from tests.commands import answer, refusal, run
from tests.conftest import decoder, encoder, small_model, small_recipe, write_jsonl
from tests.test_pairs import EXAMPLES, MEAN_ENCODER
from twofold.data.tokenizer import TextTokenizer

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def saved(tokenizer: TextTokenizer, tmp_path: Path) -> Path:
    small_model(tokenizer, encoder("transformer"), decoder("label")).save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


def test_json_tells_the_certificate(saved: Path, tmp_path: Path) -> None:
    told = answer("export", saved, tmp_path / "out")
    assert (told["out"], told["format"], told["precision"]) == (str(tmp_path / "out"), "onnx", "float32")
    assert told["agreement"] == 1.0
    written = json.loads((tmp_path / "out" / "parity.json").read_text(encoding="utf-8"))
    assert written == {name: value for name, value in told.items() if name != "out"}


def test_the_card_tells_data_and_results_of_the_training(tmp_path: Path) -> None:
    rows = write_jsonl(tmp_path / "rows.jsonl", [{**row, "label": row["label"]} for row in EXAMPLES * 8])
    recipe = small_recipe(rows, "rnn", "label", data={"held_out": 4}, input={"column": "source"})
    recipe["output"] = {"kind": "label", "column": "label"}
    twofold.train(recipe, out=tmp_path / "run")
    twofold.export(tmp_path / "run", tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "- `data.train`: rows.jsonl (" in card
    assert "| accuracy | " in card
    assert str(tmp_path) not in card
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert config["answers"]["main"]["classes"] == ["few", "many"]


def test_what_is_wrong_is_one_line(saved: Path, tmp_path: Path) -> None:
    assert "did you mean 'openvino'" in refusal("export", saved, tmp_path / "out", "--to", "openvin")
    assert "--int8 is for rankers" in refusal("export", saved, tmp_path / "out", "--int8")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").touch()
    assert "is there already; choose another folder" in refusal("export", saved, tmp_path / "out")


def test_a_missing_package_is_one_line_with_its_remedy(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.exporting.find_spec", lambda name: None)
    line = refusal("export", saved, tmp_path / "out")
    assert line.endswith("--to onnx needs onnx, onnxscript, onnxruntime: pip install 'twofold[fast]'")


def test_code_of_the_user_is_refused_without_being_run(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MEAN_ENCODER, encoding="utf-8")
    model = small_model(tokenizer, encoder(str(tmp_path / "mine.py")), decoder("label", pooling="summary"))
    model.save_pretrained(tmp_path / "saved")
    line = refusal("export", tmp_path / "saved", tmp_path / "out")
    assert "the part './code/mine.py' is the user's own" in line
    assert not (tmp_path / "out").exists()


def test_without_json_one_line_tells_it(saved: Path, tmp_path: Path) -> None:
    shown = run("export", saved, tmp_path / "out", "--to", "openvino")
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert f"{tmp_path / 'out'}: openvino in float32; largest difference " in shown.stderr
