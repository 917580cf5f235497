"""The picture of attention shows every character, or says which ones no font has."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import decoder, encoder, small_model
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.model.model import Looked
from twofold.plot import draw_attention, fonts_for

PRIVATE, UNASSIGNED = "\U000f0123", "\u0378"


def looked(source: list[str], written: list[str]) -> Looked:
    weights = np.random.default_rng(1).dirichlet(np.ones(len(source)), len(written))
    return Looked(source, written, weights.astype(np.float32))


@pytest.mark.parametrize("pieces", [["▁two", "▁hund", "red"], ["▁구만", "▁육백", "입니다"], ["▁é", "ß", "→", "%", "$"]])
def test_a_picture_is_written(tmp_path: Path, pieces: list[str]) -> None:
    path = tmp_path / "pictures" / "attention.png"
    for _ in range(2):
        draw_attention(looked(pieces, ["▁2", "00", "</s>"]), path)
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert os.listdir(path.parent) == ["attention.png"]


@pytest.mark.parametrize(("ending", "start"), [(".svg", b"<?xml"), (".pdf", b"%PDF"), (".PNG", b"\x89PNG")])
def test_the_ending_says_the_format(tmp_path: Path, ending: str, start: bytes) -> None:
    path = tmp_path / f"attention{ending}"
    draw_attention(looked(["▁a"], ["▁b"]), path)
    assert path.read_bytes().startswith(start)


def test_every_piece_is_shown(tmp_path: Path) -> None:
    draw_attention(looked(["▁나무", "▁tree"], ["▁Baum", "</s>"]), tmp_path / "a.svg")
    picture = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert all(f"<!-- {piece} -->" in picture for piece in ("▁나무", "▁tree", "▁Baum", "&lt;/s&gt;"))


def test_a_font_for_hangul_is_found_in_the_package_that_brings_one() -> None:
    from matplotlib import font_manager

    families, missing = fonts_for("tree 나무 뷁")
    assert missing == set()
    assert families[0] == "DejaVu Sans"
    assert "koreanize_matplotlib" in font_manager.findfont(families[1])


def test_one_font_is_enough_for_latin_letters() -> None:
    assert fonts_for("Ein Hund läuft. ▁") == (["DejaVu Sans"], set())


@pytest.mark.parametrize("letter", [PRIVATE, UNASSIGNED], ids=["private", "unassigned"])
def test_a_character_that_no_font_has_is_missing(letter: str) -> None:
    families, missing = fonts_for(f"나무 {letter}")
    assert missing == {letter}
    assert len(families) == 2


@pytest.mark.parametrize("letter", [PRIVATE, UNASSIGNED], ids=["private", "unassigned"])
def test_a_character_that_no_font_has_is_one_warning_and_never_a_box(tmp_path: Path, letter: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        draw_attention(looked([f"▁x{letter}", "▁나무"], [letter, "</s>"]), tmp_path / "a.svg")
    (warning,) = caught
    assert letter in str(warning.message)
    assert "pip install twofold[plot]" in str(warning.message)
    picture = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert "<!-- ▁x? -->" in picture
    assert "<!-- ? -->" in picture
    assert letter not in picture


@pytest.mark.parametrize("name", ["attention.doc", "attention", "png", "attention.png.txt"])
def test_an_ending_that_is_no_picture_is_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(TwofoldError) as caught:
        draw_attention(looked(["▁a"], ["▁b"]), tmp_path / name)
    assert str(caught.value).startswith(f"{tmp_path / name}: a picture ends in one of ")
    assert ".png" in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_a_picture_that_cannot_take_its_place_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken.png").mkdir()
    with pytest.raises(TwofoldError, match=r"taken\.png: could not be written"):
        draw_attention(looked(["▁a"], ["▁b"]), tmp_path / "taken.png")
    assert os.listdir(tmp_path) == ["taken.png"]


@pytest.mark.parametrize("kind", ["attention_rnn", "transformer"])
def test_a_decoder_with_attention_shows_where_it_looked(tmp_path: Path, tokenizer: TextTokenizer, kind: str) -> None:
    model = small_model(tokenizer, encoder("rnn"), decoder(kind))
    shown = model.attention("two hundred", "200")
    assert "".join(shown.source).replace("▁", " ").strip() == "two hundred"
    assert "".join(shown.written).replace("▁", " ").strip() == "200</s>"
    assert shown.weights.shape == (len(shown.written), len(shown.source))
    assert np.allclose(shown.weights.sum(1), 1, atol=1e-5)
    draw_attention(shown, tmp_path / "a.png")
    assert (tmp_path / "a.png").exists()


def test_an_output_of_no_words_can_be_shown(tokenizer: TextTokenizer) -> None:
    shown = small_model(tokenizer, encoder("rnn"), decoder("attention_rnn")).attention("two hundred", "")
    assert shown.written == ["</s>"]


def test_a_decoder_that_sees_one_vector_has_no_attention_to_show(tokenizer: TextTokenizer) -> None:
    model = small_model(tokenizer, encoder("rnn"), decoder("rnn"))
    with pytest.raises(TwofoldError, match="the decoder 'rnn' has no attention to show"):
        model.attention("two hundred", "200")
