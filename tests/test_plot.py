"""Figures of attention, influence, trees and masks show every character, or say which ones no font has."""

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
from tests.texts import small_reader
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.generate.search import GenerateOptions
from twofold.plot import SHEET, draw
from twofold.plot.attention import draw_attention
from twofold.plot.figure import fonts_for
from twofold.plot.glances import draw_glances
from twofold.plot.images import Answered, draw_mask, draw_sheet
from twofold.plot.maps import Chosen
from twofold.plot.timelines import draw_over_time
from twofold.plot.trees import arc_levels, draw_trees
from twofold.results import Mask, Timeline, Tree
from twofold.results.explanation import Attention
from twofold.types import HiddenSpec

PRIVATE, UNASSIGNED = "\U000f0123", "\u0378"


def looked(source: list[str], written: list[str], layers: int = 1, heads: int = 1) -> Attention:
    """Cross-attention of some layers and heads."""
    weights = np.random.default_rng(1).dirichlet(np.ones(len(source)), (layers, heads, len(written)))
    return Attention("cross", tuple(written), tuple(source), weights.astype(np.float32))


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
    shown = model.explain("two hundred", written="200").attention_of("cross")
    assert shown is not None
    assert "".join(shown.keys).replace("▁", " ").strip() == "two hundred"
    assert "".join(shown.queries).replace("▁", " ").strip() == "200</s>"
    assert shown.weights.shape[2:] == (len(shown.queries), len(shown.keys))
    assert np.allclose(shown.weights.sum(-1), 1, atol=1e-5)
    draw_attention(shown, tmp_path / "a.png")
    assert (tmp_path / "a.png").exists()


@pytest.mark.parametrize("kind", ["attention_rnn", "transformer"])
def test_the_tokens_that_were_generated_are_drawn_and_not_others_of_the_same_text(
    tmp_path: Path, tokenizer: TextTokenizer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model(tokenizer, encoder("rnn"), decoder(kind), seed=3).eval()
    (prediction,) = model.predict("two hundred", GenerateOptions(sample=True, temperature=3.0, max_length=12))
    assert prediction.tokens is not None
    assert tokenizer.decode(prediction.tokens) == prediction.output
    assert tokenizer.encode([prediction.output])[0] != list(prediction.tokens)  # else this would show nothing
    drawn: list[Attention] = []
    monkeypatch.setattr("twofold.plot.draw_attention", lambda attention, *_: drawn.append(attention))
    draw(model, [prediction], tmp_path / "a.png")
    assert drawn[0].queries == (*tokenizer.pieces(prediction.tokens), "</s>")
    assert drawn[0].weights.shape[2] == len(prediction.tokens) + 1
    text = model.explain("two hundred", written=prediction.output)
    assert text.written == (*tokenizer.pieces(tokenizer.encode([prediction.output])[0]), "</s>")


def test_an_output_of_no_words_can_be_shown(tokenizer: TextTokenizer) -> None:
    shown = small_model(tokenizer, encoder("rnn"), decoder("attention_rnn")).explain("two hundred", written="")
    assert shown.written == ("</s>",)


def test_of_a_decoder_that_sees_one_vector_the_influence_of_words_is_drawn(
    tmp_path: Path, tokenizer: TextTokenizer
) -> None:
    model = small_model(tokenizer, encoder("rnn"), decoder("rnn")).eval()
    predictions = model.predict(["two hundred"], GenerateOptions(max_length=3))
    draw(model, predictions, tmp_path / "a.svg")
    image = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert all(f"<!-- {text} -->" in image for text in ("two", "hundred", "influence", "word left out"))
    with pytest.raises(TwofoldError, match="this model has no cross-attention to draw; it has none"):
        draw(model, predictions, tmp_path / "b.svg", attention=("cross", None, None))


def glances(written: list[str], grid: tuple[int, int] = (3, 4), heads: int = 1) -> Attention:
    """Cross-attention over the positions of an image."""
    weights = np.random.default_rng(1).dirichlet(np.ones(grid[0] * grid[1]), (1, heads, len(written)))
    return Attention("cross", tuple(written), (), weights.astype(np.float32))


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
    draw_glances(Image.fromarray(some_image(*size)), glances([*written, "</s>"]), (3, 4), tmp_path / "a.svg", box)
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert all(f"<!-- w{number}ord -->" in drawn for number in range(words))
    assert drawn.count("<image ") == words + 1  # and the color bar


def test_a_caption_without_a_word_is_drawn_as_nothing(tmp_path: Path) -> None:
    draw_glances(Image.fromarray(some_image(12, 16)), glances(["</s>"]), (3, 4), tmp_path / "a.svg", (0, 0, 16, 12))
    assert "<!-- (nothing) -->" in (tmp_path / "a.svg").read_text(encoding="utf-8")


def test_where_was_looked_is_drawn_over_the_part_that_was_read(tmp_path: Path) -> None:
    """A wide image may have been read in its middle only; the rest stays as it is."""
    white = Image.new("RGB", (160, 40), "white")
    draw_glances(white, glances(["▁one", "</s>"]), (3, 4), tmp_path / "a.png", (60, 0, 100, 40))
    drawn = np.asarray(Image.open(tmp_path / "a.png").convert("RGB")).astype(int)
    colored = np.flatnonzero((np.ptp(drawn, axis=2) > 30).any(0))
    colored = colored[: np.flatnonzero(np.diff(colored) > 20)[0] + 1]  # the color bar stands apart
    middle, width = (colored[0] + colored[-1]) / 2, colored[-1] - colored[0]
    assert width < drawn.shape[1] / 3
    assert colored[0] > width
    assert middle < drawn.shape[1] / 2


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
    """Text of an answer under its image."""
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
    (prediction,) = model.predict([some_image()])
    draw(model, [prediction] * (SHEET + 9), tmp_path / "a.svg")
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
    monkeypatch.setattr("twofold.plot.figure.DRAWN", 20)
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
    weights = np.random.default_rng(2).dirichlet(np.ones(75), (1, 1, 3)).astype(np.float32)
    draw_over_time(timeline, Attention("cross", ("▁two", "▁one", "</s>"), (), weights), tmp_path / "a.svg")
    (bands, above), (looked, below), *_ = drawn
    assert np.array_equal(bands, timeline.values)
    assert np.array_equal(looked, weights[0, 0])
    assert above["extent"][:2] == below["extent"][:2] == (0, 3.0)
    image = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert all(f"<!-- {piece} -->" in image for piece in ("seconds", "▁two", "▁one", "&lt;/s&gt;", "3.0"))


def test_a_sound_of_an_hour_is_drawn_no_finer_than_a_figure_shows(tmp_path: Path) -> None:
    timeline = Timeline(np.zeros((40, 360_000), np.float32), 3600.0)
    looked = Attention("cross", ("▁a", "</s>"), (), np.full((1, 1, 2, 90_000), 1 / 90_000, np.float32))
    draw_over_time(timeline, looked, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_a_map_has_a_title_axes_and_a_color_bar(tmp_path: Path) -> None:
    draw_attention(looked(["▁a", "▁b"], ["▁c", "</s>"], layers=3, heads=4), tmp_path / "a.svg")
    image = (tmp_path / "a.svg").read_text(encoding="utf-8")
    title = "Cross-attention, layer 3 of 3, mean of 4 heads"
    assert all(f"<!-- {text} -->" in image for text in (title, "input token", "written token", "attention weight"))


@pytest.mark.parametrize(
    ("layer", "head", "panels", "title", "named"),
    [
        (1, None, 1, "Cross-attention, layer 1 of 3, mean of 4 heads", []),
        (2, 3, 1, "Cross-attention, layer 2 of 3", []),
        ("all", None, 3, "Cross-attention, mean of 4 heads", ["layer 1", "layer 3"]),
        (None, "all", 4, "Cross-attention, layer 3 of 3", ["layer 3, head 1", "layer 3, head 4"]),
        ("all", "all", 12, "Cross-attention", ["layer 1, head 1", "layer 3, head 4"]),
    ],
)
def test_layers_and_heads_that_are_asked_for_are_drawn_on_one_scale(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    layer: Chosen,
    head: Chosen,
    panels: int,
    title: str,
    named: list[str],
) -> None:
    attention = looked(["▁a", "▁b"], ["▁c", "</s>"], layers=3, heads=4)
    drawn: list[tuple[Any, float]] = []
    shown = Axes.imshow

    def recorded(axes: Axes, values: Any, **settings: Any) -> Any:
        drawn.append((values, settings["vmax"]))
        return shown(axes, values, **settings)

    monkeypatch.setattr(Axes, "imshow", recorded)
    draw_attention(attention, tmp_path / "a.svg", layer, head)
    assert len(drawn) == panels
    assert {scale for _, scale in drawn} == {max(float(values.max()) for values, _ in drawn)}
    weights = attention.weights if layer == "all" else attention.weights[[(layer or 3) - 1]]
    whole = weights.reshape(-1, 2, 2)
    expected = whole if head == "all" else weights.mean(1) if head is None else weights[:, head - 1]
    np.testing.assert_allclose(np.stack([values for values, _ in drawn]), expected)
    image = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert all(f"<!-- {text} -->" in image for text in (title, *named))


def test_all_words_of_an_image_share_one_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scales = []
    shown = Axes.imshow

    def recorded(axes: Axes, values: Any, **settings: Any) -> Any:
        if "vmax" in settings:
            scales.append((settings["vmin"], settings["vmax"]))
        return shown(axes, values, **settings)

    monkeypatch.setattr(Axes, "imshow", recorded)
    image, attention = Image.fromarray(some_image(12, 16)), glances(["▁a", "▁b", "</s>"], heads=2)
    draw_glances(image, attention, (3, 4), tmp_path / "a.svg", (0, 0, 16, 12), head="all")
    assert len(scales) == 4
    assert len(set(scales)) == 1
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert "<!-- attention weight -->" in drawn
    assert "<!-- Cross-attention, layer 1 of 1 -->" in drawn


@pytest.mark.parametrize(
    ("layer", "head", "said"),
    [
        (4, None, "--layer 4: there are 3; give a number from 1 to 3, or all"),
        (0, None, "--layer 0: there are 3"),
        (1, 5, "--head 5: there are 4"),
    ],
)
def test_a_layer_or_head_that_is_not_there_is_one_line(tmp_path: Path, layer: Chosen, head: Chosen, said: str) -> None:
    with pytest.raises(TwofoldError, match=said):
        draw_attention(looked(["▁a"], ["▁b"], layers=3, heads=4), tmp_path / "a.png", layer, head)


def test_more_maps_than_a_figure_holds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TwofoldError, match="288 attention maps are too many for one figure; give --layer or --head a"):
        draw_attention(looked(["▁a"], ["▁b"], layers=24, heads=12), tmp_path / "a.png", "all", "all")


TREE = Tree(("the", "old", "배", "sank", "."), (3, 3, 4, 0, 4), ("det", "amod", "nsubj", "root", "punct"))


def test_a_tree_is_drawn_with_its_words_and_relations(tmp_path: Path) -> None:
    draw_trees([TREE, Tree(("go",), (0,), ("root",))], tmp_path / "a.svg")
    image = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert all(f"<!-- {text} -->" in image for text in (*TREE.words, *TREE.relations, "go"))


def test_an_arc_is_above_the_arcs_that_it_spans() -> None:
    assert arc_levels(TREE.heads) == [2, 1, 1, 3, 1]
    assert arc_levels((0,)) == [1]
    assert arc_levels((2, 0, 2)) == [1, 2, 1]
    crossing = arc_levels((3, 4, 0, 3))
    assert crossing[0] != crossing[1]


def test_trees_of_a_model_are_drawn(tmp_path: Path, tokenizer: TextTokenizer) -> None:
    model = small_reader(tokenizer, encoder("transformer"), decoder("tree"), {}, {"column": "words"}).eval()
    draw(model, model.predict(["one two three", "six"]), tmp_path / "a.svg")
    image = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert all(f"<!-- {word} -->" in image for word in ("one", "two", "three", "six", "root"))


@pytest.mark.parametrize("kind", ["label", "labels", "number"])
def test_of_a_label_or_a_number_the_influence_of_words_is_drawn(
    tmp_path: Path, tokenizer: TextTokenizer, kind: str
) -> None:
    model = small_reader(tokenizer, encoder("transformer"), decoder("label"), {"kind": kind}).eval()
    predictions = model.predict(["one two three"])
    draw(model, predictions, tmp_path / "a.svg")
    image = (tmp_path / "a.svg").read_text(encoding="utf-8")
    names = ("number",) if kind == "number" else ("few", "many")
    assert all(f"<!-- {word} -->" in image for word in ("one", "two", "three", *names))
    draw(model, predictions, tmp_path / "b.svg", attention=("encoder", "all", 1))
    image = (tmp_path / "b.svg").read_text(encoding="utf-8")
    assert "<!-- Self-attention of the encoder -->" in image
    assert "<!-- layer 2, head 1 -->" in image
