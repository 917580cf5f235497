"""A Transformer from text to text answers in CTranslate2 as in torch; everything else is refused."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import decoder, encoder, small_model
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.exporting import ctranslate2, export
from twofold.exporting.read import read

CAN = find_spec("ctranslate2") is not None and find_spec(ctranslate2.CONVERTER) is not None
needs = pytest.mark.skipif(not CAN, reason="ctranslate2 or its converter is not installed")


@needs
def test_a_translator_answers_as_the_model_does(tokenizer: TextTokenizer, tmp_path: Path, one_thread: None) -> None:
    model = small_model(tokenizer, encoder("transformer"), decoder("transformer")).eval()
    done = export(model, tmp_path / "out", "ctranslate2")
    assert done.parity.agreement == 1.0
    about = json.loads((tmp_path / "out" / ctranslate2.READING).read_text(encoding="utf-8"))
    text = "one hundred and two"
    ids = read(about, [text], tmp_path / "out")["tokens"][0].tolist()
    assert ids == model.batch([{"source": text}], targets=False).inputs["input"].tokens[0].tolist()  # type: ignore[attr-defined]


@needs
def test_a_model_that_it_cannot_compute_is_refused(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    model = small_model(tokenizer, encoder("rnn"), decoder("rnn"))
    with pytest.raises(TwofoldError, match="Transformer"):
        export(model, tmp_path / "out", "ctranslate2")
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(find_spec("ctranslate2") is not None, reason="ctranslate2 is installed")
def test_without_the_package_one_line_tells_the_remedy(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    model = small_model(tokenizer, encoder("transformer"), decoder("transformer"))
    with pytest.raises(TwofoldError, match=r"--to ctranslate2 needs ctranslate2: pip install 'twofold\[fast\]'"):
        export(model, tmp_path / "out", "ctranslate2")
