"""Every encoder and every decoder is exported and computes what torch computes, or is refused by name."""

from __future__ import annotations

import dataclasses
import json
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests import made
from tests.conftest import decoder, encoder, part_params, small_image_model, small_model, some_image
from tests.rankers import small_ranker
from tests.test_pairs import MEAN_ENCODER, small_pair
from twofold.config import kinds
from twofold.data.files import Row
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.exporting import Exported, export, int8
from twofold.exporting.parity import Parity, agreement, difference
from twofold.exporting.read import read
from twofold.model import Model, Ranker
from twofold.types import Batch, Hidden

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.usefixtures("one_thread")
READS = {"unet": "convnet", "late": "pretrained", "cross": "text_convnet"}
"""Encoders under which decoders are exported; others stand over a Transformer."""
SAMPLES = ["", "a", "🙂", "one hundred and two", "삼백", "tab\tline\x07", "one " * 200]


def model_of(tokenizer: TextTokenizer, reads: str, writes: str) -> Model:
    """A small model whose weights are all drawn at random."""
    if reads == "vit":
        model = small_image_model(tokenizer, encoder(reads), decoder(writes), input={"size": [16, 24]})
    else:
        model = small_pair(tokenizer, encoder(reads), decoder(writes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 10)
    return model.eval()


def alike(done: Exported) -> bool:
    """Whether folder and certificate say that all is as in torch."""
    parity = json.loads((done.out / "parity.json").read_text(encoding="utf-8"))
    assert parity["largest_difference"] == done.parity.largest_difference
    return done.parity.largest_difference <= 1e-5 and done.parity.agreement == 1.0


@pytest.mark.parametrize("reads", part_params(kinds("encoders")))
def test_every_encoder_is_exported(tokenizer: TextTokenizer, reads: str, tmp_path: Path) -> None:
    model = model_of(tokenizer, reads, "label")
    assert alike(export(model, tmp_path / "out"))


@pytest.mark.parametrize("writes", part_params(kinds("decoders")))
def test_every_decoder_is_exported_or_refused_by_name(tokenizer: TextTokenizer, writes: str, tmp_path: Path) -> None:
    if writes == "label":
        pytest.skip("exported over every encoder")
    model = model_of(tokenizer, READS.get(writes, "transformer"), writes)
    if any(task.output.writes_text for task in model.config.tasks.values()):
        with pytest.raises(TwofoldError, match="the decoder 'main' writes text token by token"):
            export(model, tmp_path / "out")
        assert not (tmp_path / "out").exists()
        return
    assert alike(export(model, tmp_path / "out", "openvino" if writes in ("bi", "tags") else "onnx"))


def test_a_cross_encoder_that_compares_is_exported_with_both_of_its_scores(
    tokenizer: TextTokenizer, tmp_path: Path
) -> None:
    model = small_ranker(tokenizer, encoder("pretrained"), decoder("cross", compare={"kind": "bi"})).eval()
    done = export(model, tmp_path / "out")
    assert alike(done)
    assert set(done.parity.graphs) == {"context", "candidate", "score", "pair"}


@pytest.fixture(scope="module")
def exported_ranker(tokenizer: TextTokenizer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Ranker, Path]:
    model, folder = model_of(tokenizer, "pretrained", "poly"), tmp_path_factory.mktemp("poly") / "out"
    assert isinstance(model, Ranker)
    export(model, folder)
    return model, folder


def test_the_folder_ranks_without_twofold_as_the_model_does(exported_ranker: tuple[Ranker, Path]) -> None:
    model, folder = exported_ranker
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    inputs = {}
    for side in ("context", "candidate"):
        session = onnxruntime.InferenceSession(folder / config["graphs"][side]["file"])
        arrays = read(config["graphs"][side]["input"], SAMPLES, folder)
        names = [output.name for output in session.get_outputs()]
        for name, values in zip(names, session.run(names, arrays), strict=True):
            inputs[f"{side}_{name}"] = values
    session = onnxruntime.InferenceSession(folder / "score.onnx")
    np.testing.assert_allclose(session.run(None, inputs)[0], model.similarity(SAMPLES, SAMPLES), rtol=1e-4, atol=1e-4)


def test_the_example_of_the_card_runs_as_it_stands(
    exported_ranker: tuple[Ranker, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, folder = exported_ranker
    card = (folder / "README.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```", card, re.DOTALL)
    assert found is not None
    (folder / "example.py").write_text(found[1], encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "read", raising=False)
    runpy.run_path("example.py")
    shown = float(capsys.readouterr().out.strip(" []\n"))
    question = "how do I list a folder?"
    assert shown == pytest.approx(float(model.similarity(question, question)[0, 0]), abs=1e-4)


def test_masks_of_images_of_any_size_are_those_of_the_model(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    model = model_of(tokenizer, "convnet", "unet")
    export(model, tmp_path / "out")
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx")
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    for size in ((10, 13), (40, 24)):
        image = some_image(*size)
        logits = session.run(None, read(config["graphs"]["model"]["input"], [image], tmp_path))[0]
        expected = model.predict([image])[0].output.pixels
        assert (np.array(logits[0].argmax(0)) == np.asarray(expected)).mean() == 1.0


def test_a_model_with_a_part_of_the_users_own_is_refused_with_its_name(
    tokenizer: TextTokenizer, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(MEAN_ENCODER, encoding="utf-8")
    model = small_model(tokenizer, encoder(str(tmp_path / "mine.py")), decoder("label", pooling="summary"))
    with pytest.raises(TwofoldError, match=r"the part '.*mine\.py' is the user's own"):
        export(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_export_that_differs_is_not_written(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    model = model_of(tokenizer, "transformer", "label")
    forward = model.encoder.forward

    def strange(batch: Batch) -> Hidden:
        hidden = forward(batch)
        return dataclasses.replace(hidden, states=hidden.need("states") * (2 if torch.compiler.is_exporting() else 1))

    model.encoder.forward = strange  # type: ignore[method-assign]
    with pytest.raises(TwofoldError, match=r"--to onnx: differs from torch by .*; nothing is written"):
        export(model, tmp_path / "out")
    assert not list(tmp_path.glob("*out*"))


@pytest.mark.parametrize(("difference", "agreement"), [(2e-5, 1.0), (float("nan"), 1.0), (0.0, 0.9)])
def test_a_certificate_that_fails_is_an_error(difference: float, agreement: float) -> None:
    with pytest.raises(TwofoldError, match="nothing is written"):
        Parity("onnx", "1", "float32", difference, agreement, 4).check()


def test_rankings_agree_where_they_differ_by_ties_alone() -> None:
    theirs = np.array([[1.0, 2.0, 2.0], [0.0, 3.0, 1.0]])
    assert agreement(theirs + np.array([[0.0, 0.0, 1e-7], [0.0, 0.0, 0.0]]), theirs) == 1.0
    assert agreement(np.array([[3.0, 2.0, 2.0], [0.0, 3.0, 1.0]]), theirs) == 0.5


def test_differences_of_infinities_and_shapes_are_infinite() -> None:
    assert difference([1.0, -np.inf], [1.0, -np.inf]) == 0.0
    assert difference([1.0, 0.0], [1.0, -np.inf]) == difference([1.0], [1.0, 2.0]) == np.inf
    assert difference([101.0, 0.0], [100.0, 0.0]) == pytest.approx(0.01)


@pytest.fixture
def rows() -> list[Row]:
    """Rows whose context is their response, which any bi-encoder of one tower ranks first."""
    texts = dict.fromkeys(pair["source"] for pair in made.numbers(20, seed=3))
    return [Row(f"row {number}", {"context": text, "response": text}) for number, text in enumerate(texts)]


def test_int8_is_kept_where_the_right_candidates_are_found_as_before(
    tokenizer: TextTokenizer, rows: list[Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(tokenizer, "transformer", "bi")
    done = export(model, tmp_path / "out", quantize=True, rows=rows)
    assert done.parity.int8 == {"float32": 1.0, "int8": 1.0, "rows": len(rows)}
    assert done.parity.precision == "int8"
    assert 1e-5 < done.parity.largest_difference < 0.5
    monkeypatch.setattr(int8, "MOST_LOST", -0.1)
    with pytest.raises(TwofoldError, match=r"--int8: R@1 falls from 1\.000 to 1\.000"):
        export(model, tmp_path / "worse", quantize=True, rows=rows)
    assert not (tmp_path / "worse").exists()


def test_int8_that_cannot_be_measured_is_refused(tokenizer: TextTokenizer, rows: list[Row], tmp_path: Path) -> None:
    ranker, labels = model_of(tokenizer, "transformer", "bi"), model_of(tokenizer, "transformer", "label")
    with pytest.raises(TwofoldError, match="--int8 needs --rows FILE"):
        export(ranker, tmp_path / "out", quantize=True)
    with pytest.raises(TwofoldError, match="--int8 is for rankers"):
        export(labels, tmp_path / "out", quantize=True, rows=rows)
    with pytest.raises(TwofoldError, match="--int8 is for --to onnx, not for openvino"):
        export(ranker, tmp_path / "out", "openvino", quantize=True, rows=rows)
