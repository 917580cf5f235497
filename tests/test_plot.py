"""The image of attention shows every character, or says which ones no font has; masks are drawn and written."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from PIL import Image

from tests.conftest import (
    CLASSES,
    decoder,
    encoder,
    input_of,
    output_of,
    small_image_model,
    small_model,
    some_image,
    some_mask,
)
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.generate.search import GenerateOptions
from twofold.plot import (
    SHEET,
    Answered,
    draw,
    draw_attention,
    draw_glances,
    draw_mask,
    draw_over_time,
    draw_sheet,
    fonts_for,
)
from twofold.results import AttentionMap, Mask, Timeline
from twofold.types import HiddenSpec

PRIVATE, UNASSIGNED = "\U000f0123", "\u0378"


def looked(source: list[str], written: list[str]) -> AttentionMap:
    weights = np.random.default_rng(1).dirichlet(np.ones(len(source)), len(written))
    return AttentionMap(source, written, weights.astype(np.float32))


@pytest.mark.parametrize("pieces", [["▁two", "▁hund", "red"], ["▁구만", "▁육백", "입니다"], ["▁é", "ß", "→", "%", "$"]])
def test_a_image_is_written(tmp_path: Path, pieces: list[str]) -> None:
    path = tmp_path / "images" / "attention.png"
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
    image = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert all(f"<!-- {piece} -->" in image for piece in ("▁나무", "▁tree", "▁Baum", "&lt;/s&gt;"))


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
    assert "pip install 'twofold[plot]'" in str(warning.message)
    image = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert "<!-- ▁x? -->" in image
    assert "<!-- ? -->" in image
    assert letter not in image


@pytest.mark.parametrize("name", ["attention.doc", "attention", "png", "attention.png.txt"])
def test_an_ending_that_is_no_image_is_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(TwofoldError) as caught:
        draw_attention(looked(["▁a"], ["▁b"]), tmp_path / name)
    assert str(caught.value).startswith(f"{tmp_path / name}: an image ends in one of ")
    assert ".png" in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_a_image_that_cannot_take_its_place_leaves_nothing_behind(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("kind", ["attention_rnn", "transformer"])
def test_the_tokens_that_were_generated_are_drawn_and_not_others_of_the_same_text(
    tmp_path: Path, tokenizer: TextTokenizer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model(tokenizer, encoder("rnn"), decoder(kind), seed=3).eval()
    (found,) = model.predict("two hundred", GenerateOptions(sample=True, temperature=3.0, max_length=12))
    assert found.tokens is not None
    assert tokenizer.decode(found.tokens) == found.output
    assert tokenizer.encode([found.output])[0] != list(found.tokens)  # else this would show nothing
    drawn: list[AttentionMap] = []
    monkeypatch.setattr("twofold.plot.draw_attention", lambda looked, path: drawn.append(looked))
    draw(model, [found], tmp_path / "a.png")
    assert drawn[0].written == [*tokenizer.pieces(found.tokens), "</s>"]
    assert drawn[0].weights.shape[0] == len(found.tokens) + 1
    text = model.attention("two hundred", found.output)
    assert text.written == [*tokenizer.pieces(tokenizer.encode([found.output])[0]), "</s>"]


def test_an_output_of_no_words_can_be_shown(tokenizer: TextTokenizer) -> None:
    shown = small_model(tokenizer, encoder("rnn"), decoder("attention_rnn")).attention("two hundred", "")
    assert shown.written == ["</s>"]


def test_a_decoder_that_sees_one_vector_has_no_attention_to_show(tokenizer: TextTokenizer) -> None:
    model = small_model(tokenizer, encoder("rnn"), decoder("rnn"))
    with pytest.raises(TwofoldError, match="the decoder 'rnn' has no attention to show"):
        model.attention("two hundred", "200")


def glances(written: list[str], grid: tuple[int, int] = (3, 4)) -> AttentionMap:
    weights = np.random.default_rng(1).dirichlet(np.ones(grid[0] * grid[1]), len(written))
    return AttentionMap([], written, weights.astype(np.float32).reshape(-1, *grid))


SIZES = [(1, 1), (1, 300), (300, 1), (12, 16), (31, 9)]


@pytest.mark.parametrize("size", SIZES)
def test_a_mask_is_drawn_over_a_image_of_any_shape(tmp_path: Path, size: tuple[int, int]) -> None:
    image = Image.fromarray(some_image(*size))
    draw_mask(image, Mask(some_mask(*size) % 3, ("ground", "sky", "나무")), tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as drawn:
        assert max(drawn.size) < 10_000
        assert len(np.unique(np.asarray(drawn.convert("RGB")).reshape(-1, 3), axis=0)) > 3


def test_the_classes_that_a_mask_shows_are_named_beside_it(tmp_path: Path) -> None:
    mask = Mask(np.array([[0, 2], [2, 3]], np.uint8), ("ground", "sky", "나무", "$\\frac$"))
    draw_mask(Image.fromarray(some_image(2, 2)), mask, tmp_path / "a.svg")
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert "<!-- 나무 -->" in drawn
    assert "<!-- ground -->" in drawn
    assert "<!-- $\\frac$ -->" in drawn
    assert "<!-- sky -->" not in drawn


@pytest.mark.parametrize("count", [1, 20, 21, 200])
def test_any_number_of_classes_can_be_drawn(tmp_path: Path, count: int) -> None:
    pixels = (np.arange(240).reshape(12, 20) % count).astype(np.uint8)
    draw_mask(Image.fromarray(some_image(12, 20)), Mask(pixels, tuple(map(str, range(count)))), tmp_path / "a.png")
    assert os.listdir(tmp_path) == ["a.png"]


@pytest.mark.parametrize(("size", "words"), [*((size, 3) for size in SIZES), ((12, 16), 1), ((12, 16), 13)])
def test_the_image_is_drawn_once_for_each_word(tmp_path: Path, size: tuple[int, int], words: int) -> None:
    written = [piece for number in range(words) for piece in (f"▁w{number}", "ord")]
    box = (0.0, 0.0, float(size[1]), float(size[0]))
    draw_glances(Image.fromarray(some_image(*size)), glances([*written, "</s>"]), tmp_path / "a.svg", box)
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert all(f"<!-- w{number}ord -->" in drawn for number in range(words))
    assert drawn.count("<image ") == words


def test_a_caption_without_a_word_is_drawn_as_nothing(tmp_path: Path) -> None:
    draw_glances(Image.fromarray(some_image(12, 16)), glances(["</s>"]), tmp_path / "a.svg", (0, 0, 16, 12))
    assert "<!-- (nothing) -->" in (tmp_path / "a.svg").read_text(encoding="utf-8")


def test_where_was_looked_is_drawn_over_the_part_that_was_read(tmp_path: Path) -> None:
    """Of a wide image only the middle may have been read; the rest stays as it is."""
    white = Image.new("RGB", (160, 40), "white")
    draw_glances(white, glances(["▁one", "</s>"]), tmp_path / "a.png", (60, 0, 100, 40))
    drawn = np.asarray(Image.open(tmp_path / "a.png").convert("RGB")).astype(int)
    colored = np.flatnonzero((np.ptp(drawn, axis=2) > 30).any(0))
    middle, width = (colored[0] + colored[-1]) / 2, colored[-1] - colored[0]
    assert middle == pytest.approx(drawn.shape[1] / 2, rel=0.1)
    assert width < drawn.shape[1] / 3


def test_long_names_of_classes_stay_inside_the_figure(tmp_path: Path) -> None:
    names = tuple(f"quite_a_long_name_of_a_class_{number}" for number in range(26))
    pixels = np.arange(26, dtype=np.uint8).reshape(2, 13)
    draw_mask(Image.new("RGB", (13, 2), "white"), Mask(pixels, names), tmp_path / "a.png")
    drawn = np.asarray(Image.open(tmp_path / "a.png").convert("L"))
    below = drawn[drawn.shape[0] // 2 :]
    assert (below[:, [0, -1]] == 255).all()


@pytest.mark.parametrize("kind", ["unet", "attention_rnn", "transformer"])
def test_whatever_a_model_made_of_a_image_is_drawn(tmp_path: Path, tokenizer: TextTokenizer, kind: str) -> None:
    model = small_image_model(tokenizer, encoder("convnet"), decoder(kind)).eval()
    for given in (some_image(), Image.fromarray(some_image())):
        (prediction,) = model.predict([given], GenerateOptions(max_length=5))
        draw(model, [prediction], tmp_path / "a.png")
        assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", ["unet", "rnn"])
def test_several_images_are_drawn_beside_each_other(tmp_path: Path, tokenizer: TextTokenizer, kind: str) -> None:
    model = small_image_model(tokenizer, encoder("convnet"), decoder(kind)).eval()
    given = [some_image(*size) for size in [(12, 16), (31, 9), (16, 16)]]
    draw(model, model.predict(given, GenerateOptions(max_length=5)), tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text(encoding="utf-8").count("<image ") == 3


def answered(kind: str, answer: Any) -> Answered:
    """What an output shows of an answer under its image."""
    output = output_of(kind).build("main", input_of("image").build(None), None, HiddenSpec())
    return Answered(Image.fromarray(some_image()), output.caption(answer))


@pytest.mark.parametrize(
    ("kind", "answer", "shown"),
    [("label", "a dog runs", "a dog runs"), ("labels", ["cat", "dog"], "cat, dog"), ("labels", [], "(nothing)")],
)
def test_what_was_written_of_a_image_stands_under_it(tmp_path: Path, kind: str, answer: Any, shown: str) -> None:
    draw_sheet([answered(kind, answer), answered("label", "끝"), answered("number", 4.5)], tmp_path / "a.svg")
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert all(f"<!-- {text} -->" in drawn for text in (shown, "끝", "4.5"))


def test_the_classes_of_all_masks_of_a_sheet_are_named_once(tmp_path: Path) -> None:
    pixels = [np.full((4, 4), number, np.uint8) for number in (0, 2, 2)]
    masks = [Mask(one, ("ground", "sky", "나무")) for one in pixels]
    draw_sheet([Answered(Image.fromarray(some_image(4, 4)), "", mask) for mask in masks], tmp_path / "a.svg")
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert [drawn.count(f"<!-- {name} -->") for name in masks[0].names] == [1, 0, 1]


def test_a_sheet_ends_somewhere(tmp_path: Path, tokenizer: TextTokenizer) -> None:
    model = small_image_model(tokenizer, encoder("convnet"), decoder("unet")).eval()
    (one,) = model.predict([some_image()])
    draw(model, [one] * (SHEET + 9), tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text(encoding="utf-8").count("<image ") == SHEET


def test_one_image_of_a_decoder_without_attention_is_shown_with_its_caption(
    tmp_path: Path, tokenizer: TextTokenizer
) -> None:
    model = small_image_model(tokenizer, encoder("convnet"), decoder("rnn")).eval()
    (prediction,) = model.predict(some_image(), GenerateOptions(max_length=5))
    draw(model, [prediction], tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text(encoding="utf-8").count("<image ") == 1


def test_a_large_image_and_its_mask_are_reduced_alike_before_they_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.plot.DRAWN", 20)
    drawn: list[tuple[int, ...]] = []

    def imshow(axes: Axes, shown: Any, *given: Any, **settings: Any) -> Any:
        drawn.append(np.asarray(shown).shape[:2])
        return plain(axes, shown, *given, **settings)

    plain = Axes.imshow
    monkeypatch.setattr(Axes, "imshow", imshow)
    for height, width in ((41, 63), (20, 9), (100, 1)):
        image = Image.fromarray(some_image(height, width))
        draw_mask(image, Mask(some_mask(height, width) % 3, CLASSES), tmp_path / "a.png")
        first, second, mask = drawn[-3:]
        assert first == second == mask
        assert max(mask) < 40


def test_what_has_a_time_is_drawn_above_when_each_piece_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[Any, dict[str, Any]]] = []
    shown = Axes.imshow

    def recorded(axes: Axes, values: Any, **settings: Any) -> Any:
        drawn.append((values, settings))
        return shown(axes, values, **settings)

    monkeypatch.setattr(Axes, "imshow", recorded)
    timeline = Timeline(np.random.default_rng(1).random((5, 300), np.float32), 3.0)
    weights = np.random.default_rng(2).dirichlet(np.ones(75), 3).astype(np.float32)
    draw_over_time(timeline, AttentionMap([], ["▁two", "▁one", "</s>"], weights, timeline), tmp_path / "a.svg")
    (bands, above), (looked, below) = drawn
    assert np.array_equal(bands, timeline.values)
    assert np.array_equal(looked, weights)
    assert above["extent"][:2] == below["extent"][:2] == (0, 3.0)
    image = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert all(f"<!-- {piece} -->" in image for piece in ("seconds", "▁two", "▁one", "&lt;/s&gt;", "3.0"))


def test_a_sound_of_an_hour_is_drawn_no_finer_than_a_figure_shows(tmp_path: Path) -> None:
    timeline = Timeline(np.zeros((40, 360_000), np.float32), 3600.0)
    looked = AttentionMap([], ["▁a", "</s>"], np.full((2, 90_000), 1 / 90_000, np.float32), timeline)
    draw_over_time(timeline, looked, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000
