"""Results of the Python API are shown on one screen, without arrays or rows that fill it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import twofold
from tests.conftest import decoder, encoder, small_image_model, small_model, some_image
from tests.rankers import PAIRS, small_ranker
from twofold.data.tokenizer import TextTokenizer
from twofold.metrics import Report
from twofold.model import Ranker
from twofold.recipe import Recipe
from twofold.recipe.file import recipe_folder
from twofold.results import Hit, Hits, Mask, Prediction
from twofold.results.shown import ENTRIES, short

LINES, WIDTH = 15, 200
"""Size of a screen."""
TEXTS = [f"{row['response']} {number}" for number, row in enumerate(PAIRS * 20)]


def screen(value: object) -> str:
    """Repr of a value, which fits on a screen."""
    text = repr(value)
    assert len(text.splitlines()) < LINES
    assert max(map(len, text.splitlines())) < WIDTH
    return text


@pytest.fixture
def ranker(tokenizer: TextTokenizer) -> Ranker:
    return small_ranker(tokenizer, encoder("transformer"), decoder("poly")).eval()


def test_a_model_tells_what_it_reads_and_writes_and_how_wide_it_is(tokenizer: TextTokenizer) -> None:
    model = small_model(tokenizer, encoder("transformer", width=24), decoder("rnn"), decoder("label"))
    lines = screen(model).splitlines()
    assert lines[0] == f"Model: {sum(value.numel() for value in model.parameters()):,} parameters on cpu"
    assert [line.split("  ")[1] for line in lines[1:]] == [
        "input",
        "encoder",
        "decoder",
        "output",
        "decoder main1",
        "output main1",
    ]
    assert "text, column source, max_tokens=30" in lines[1]
    assert "states 24, summary 24" in lines[2]
    assert "names=('few', 'many')" in lines[6]


def test_frozen_parameters_are_counted_and_logits_are_shown_by_shape(tokenizer: TextTokenizer) -> None:
    model = small_model(tokenizer, encoder("rnn"), decoder("rnn"))
    outputs = model(model.batch([{"source": "one", "target": "1"}]))
    assert screen(outputs) == f"{{'main': DecoderOutput(logits=Tensor{tuple(outputs['main'].logits.shape)})}}"
    model.encoder.requires_grad_(False)
    frozen = sum(value.numel() for value in model.encoder.parameters())
    assert f"{frozen:,} parameters, {frozen:,} frozen" in screen(model)


def test_a_ranker_tells_both_sides_and_candidates_are_not_listed(ranker: Ranker) -> None:
    text = screen(ranker)
    assert all(word in text for word in ("contexts", "candidates", "poly(codes=3)", "in_batch", "max_tokens=20"))
    assert screen(ranker.prepare(TEXTS)) == (f"Candidates(100 texts, vectors (100, 1, 16); the first is {TEXTS[0]!r})")


def test_hits_are_a_table_of_the_best(ranker: Ranker) -> None:
    hits = ranker.rank("eleven", TEXTS, k=100)
    first, best, *_, last = screen(hits).splitlines()
    assert first.startswith("Hits: 100, exact, ")
    assert hits[0].text in best
    assert f"{hits[0].score:.4g}" in best
    assert last == "  … and 88 more"
    assert screen(Hits([], False, 0.04)) == "Hits: 0, approximate, 0.0 ms"
    assert screen(Hit("a text", 0.5, 3)) == "Hit(text='a text', score=0.5, id=3)"
    assert len(screen(Hit("word " * 1000, 0.5, 3, {"note": "x" * 900}))) < WIDTH


def test_predictions_show_no_pixels(tokenizer: TextTokenizer) -> None:
    model = small_image_model(tokenizer, encoder("convnet"), decoder("unet")).eval()
    text = screen(model.predict([some_image()]))
    assert "input=ndarray(10, 13, 3), output=Mask(10 × 13 pixels: " in text
    assert screen(Mask(np.zeros((4, 5), np.uint8), ("ground", "sky"))) == "Mask(4 × 5 pixels: ground 100%)"
    assert screen(Prediction("a", "b", 0.5)) == "Prediction(input='a', output='b', score=0.5)"


def test_explanations_name_their_parts(tokenizer: TextTokenizer, ranker: Ranker) -> None:
    model = small_model(tokenizer, encoder("transformer"), decoder("attention_rnn")).eval()
    explanation = model.explain("two hundred and six", twofold.GenerateOptions(beam=2, max_length=9))
    text = screen(explanation)
    assert text.startswith("Explanation\n  input      'two hundred and six'\n")
    assert "attention  Attention × " in text
    assert f"weights  ndarray{explanation.attention[0].weights.shape}" in screen(explanation.attention[0])
    ranking = ranker.explain("eleven", TEXTS[:4])
    assert "candidates  CandidateExplanation × 3" in screen(ranking)
    screen(ranking.candidates[0].parts.codes)


@pytest.mark.parametrize("name", sorted(path.stem for path in recipe_folder().glob("*.yaml")))
def test_a_recipe_shows_its_sections(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_DATA", "/data")
    text = screen(Recipe.load(name))
    for section in ("data", "input", "encoder", "decoder", "train"):
        assert f"\n  {section} " in text


def test_a_report_shows_metrics_and_the_size_of_tables() -> None:
    report = Report({"bleu": 35.1234, "exact_match": 0.5}, 1000, {"bleu_by_length": [{"length": "1-5"}] * 7})
    lines = ["Report of 1,000 rows", "  bleu            35.12", "  exact_match     0.5"]
    assert screen(report) == "\n".join([*lines, "  bleu_by_length  table of 7 rows"])
    assert "… and 28 more" in screen(Report(dict.fromkeys(map(str, range(40)), 0.5), 10))


def test_options_show_what_departs_from_the_defaults() -> None:
    assert screen(twofold.GenerateOptions()) == "GenerateOptions()"
    assert screen(twofold.GenerateOptions(beam=5, length_penalty=0.6)) == "GenerateOptions(beam=5, length_penalty=0.6)"


def test_an_index_shows_where_it_is_and_how_large(ranker: Ranker, tmp_path: Path) -> None:
    with twofold.build_index(tmp_path / "index", ranker, TEXTS) as index:
        assert screen(index) == f"Index('{tmp_path / 'index'}', 100 candidates)"
        assert index.get(1) is not None
        assert 1 in index
        assert "no such id" not in index
        assert len(list(index)) == len(index) == len(TEXTS)


def test_long_values_are_cut_to_one_short_line() -> None:
    assert short(list(range(ENTRIES + 1))) == f"({ENTRIES + 1} entries)"
    assert short(np.zeros((3, 4))) == "ndarray(3, 4)"
    assert short([np.zeros(3)]) == "[ndarray(3,)]"
    assert len(short("a\n" * 900)) == 60
