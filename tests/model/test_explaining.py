"""Explanations: what they show adds up to the answer, and says the same as other ways to ask."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import decoder, encoder, small_audio_model, small_image_model, small_model, some_image, some_sound
from tests.rankers import small_ranker
from tests.texts import small_reader
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.generate.search import GenerateOptions
from twofold.model import Ranker

SENTENCE = "two hundred and six"
CONTEXT = ["two hundred", "and six"]
CANDIDATES = ["206", "7", "two hundred", "삼백 six"]
RANKERS: list[tuple[str, dict[str, Any]]] = [
    ("bi", {}),
    ("poly", {}),
    ("poly", {"attention": "scaled"}),
    ("poly", {"attention": "multihead", "heads": 2}),
    ("poly", {"code_kind": "first", "codes": 12}),
    ("late", {}),
    ("late", {"max_vectors": 2}),
    ("cross", {}),
    ("cross", {"compare": {"kind": "poly", "codes": 3}}),
]


def ranker(tokenizer: TextTokenizer, kind: str, settings: dict[str, Any]) -> Ranker:
    return small_ranker(tokenizer, encoder("transformer"), decoder(kind, **settings)).eval()


@pytest.mark.parametrize("kind", ["rnn", "attention_rnn", "transformer"])
@pytest.mark.parametrize("beam", [1, 3])
def test_the_probabilities_of_the_written_tokens_make_up_the_score(
    tokenizer: TextTokenizer, kind: str, beam: int
) -> None:
    model = small_model(tokenizer, encoder("rnn"), decoder(kind)).eval()
    options = GenerateOptions(beam=beam, max_length=29)
    (prediction,) = model.predict([SENTENCE], options)
    explanation = model.explain(SENTENCE, options)
    assert explanation.output == prediction.output
    assert explanation.score == pytest.approx(prediction.score, abs=1e-4)
    assert [choice.token for choice in explanation.choices] == list(explanation.written)
    if len(explanation.written) <= 29:  # the end symbol was generated
        total = sum(math.log(choice.probability) for choice in explanation.choices)
        assert total == pytest.approx(prediction.score, abs=1e-4)
    for choice in explanation.choices:
        probabilities = [probability for _, probability in choice.alternatives]
        assert len(probabilities) == 10
        assert probabilities == sorted(probabilities, reverse=True)
        assert sum(probabilities) <= 1 + 1e-6
    assert bool(explanation.beam) == (beam > 1)


def test_every_layer_and_head_of_a_transformer_is_shown(tokenizer: TextTokenizer) -> None:
    reads, writes = encoder("transformer", layers=2, heads=4), decoder("transformer", layers=3, heads=2)
    explanation = small_model(tokenizer, reads, writes).explain(SENTENCE, written="206", influence=False)
    tokens, written = len(explanation.tokens), len(explanation.written)
    shapes = {attention.name: attention.weights.shape for attention in explanation.attention}
    assert shapes == {
        "cross": (3, 2, written, tokens),
        "decoder": (3, 2, written, written),
        "encoder": (2, 4, tokens, tokens),
    }
    for attention in explanation.attention:
        np.testing.assert_allclose(attention.weights.sum(-1), 1, atol=1e-5)
    self_attention = explanation.attention_of("decoder")
    assert self_attention is not None
    assert self_attention.queries == explanation.written
    assert self_attention.keys == ("<s>", *explanation.written[:-1])
    assert not np.triu(self_attention.weights, 1).any()  # no token sees a later one


def test_the_steps_of_a_beam_lead_to_the_answer(tokenizer: TextTokenizer) -> None:
    model = small_model(tokenizer, encoder("rnn"), decoder("attention_rnn"), seed=4).eval()
    output: Any = model.decoder().output
    with torch.no_grad():
        output.bias = torch.nn.Parameter(torch.zeros(len(tokenizer)))
        output.bias[tokenizer.end] = 2.0
    options = GenerateOptions(beam=3, max_length=6, length_penalty=0.0)
    explanation = model.explain(SENTENCE, options, influence=False)
    finished = [
        (step, place)
        for step, hypotheses in enumerate(explanation.beam)
        for place, hypothesis in enumerate(hypotheses)
        if hypothesis.finished
    ]
    step, place = max(finished, key=lambda at: explanation.beam[at[0]][at[1]].score)
    assert explanation.beam[step][place].score == pytest.approx(explanation.score, abs=1e-5)
    tokens: list[str] = []
    while step >= 0:
        tokens.insert(0, explanation.beam[step][place].token)
        step, place = step - 1, explanation.beam[step][place].parent
    assert tuple(tokens) == explanation.written


@pytest.mark.parametrize("kind", ["rnn", "transformer"])
def test_influence_is_the_change_of_each_tokens_log_probability(tokenizer: TextTokenizer, kind: str) -> None:
    model = small_model(tokenizer, encoder("transformer"), decoder(kind)).eval()
    whole = model.explain(SENTENCE, written="206")
    assert whole.influence is not None
    assert whole.influence.words == ("two", "hundred", "and", "six")
    assert whole.influence.scores == whole.written
    without = model.explain("two and six", written="206", influence=False)
    change = [
        math.log(more.probability) - math.log(less.probability)
        for more, less in zip(whole.choices, without.choices, strict=True)
    ]
    np.testing.assert_allclose(whole.influence.values[1], change, atol=1e-4)


@pytest.mark.parametrize("kind", ["label", "labels", "number"])
def test_influence_on_labels_and_numbers_is_the_change_when_a_word_is_left_out(
    tokenizer: TextTokenizer, kind: str
) -> None:
    model = small_reader(tokenizer, encoder("rnn"), decoder("label"), {"kind": kind}).eval()
    explanation = model.explain(SENTENCE)
    assert explanation.influence is not None
    (whole, without) = model.predict([SENTENCE, "two hundred six"])
    if kind == "number":
        assert explanation.influence.scores == ("number",)
        assert explanation.influence.values[2, 0] == pytest.approx(whole.output - without.output, abs=1e-4)
        return
    assert explanation.influence.scores == ("few", "many")
    (probabilities,) = explanation.probabilities
    assert probabilities.columns == ("few", "many")
    shown = dict(zip(probabilities.columns, probabilities.values[0].tolist(), strict=True))
    before, after = (
        dict([(a.output, a.score), *a.alternatives] if kind == "label" else a.alternatives) for a in (whole, without)
    )
    for place, label in enumerate(probabilities.columns):
        assert shown[label] == pytest.approx(before[label], abs=1e-5)
        assert explanation.influence.values[2, place] == pytest.approx(before[label] - after[label], abs=1e-5)


@pytest.mark.parametrize("kind", ["tags", "tree"])
def test_each_word_has_probabilities_and_an_influence_on_every_other(tokenizer: TextTokenizer, kind: str) -> None:
    model = small_reader(tokenizer, encoder("transformer"), decoder(kind), {}, {"column": "words"}).eval()
    explanation = model.explain(SENTENCE)
    words = tuple(SENTENCE.split())
    for probabilities in explanation.probabilities:
        assert probabilities.rows == words
        np.testing.assert_allclose(probabilities.values.sum(-1), 1, atol=1e-5)
    assert [probabilities.name for probabilities in explanation.probabilities] == (
        ["tags"] if kind == "tags" else ["heads", "relations"]
    )
    assert explanation.influence is not None
    values = explanation.influence.values
    assert values.shape == (4, 4)
    assert np.isnan(values.diagonal()).all()
    if kind == "tags":
        without = model.explain("two hundred six", influence=False).probabilities[0].values
        names = explanation.probabilities[0].columns
        numbers = [names.index(tag) for tag in explanation.output.tags]
        change = explanation.probabilities[0].values[3, numbers[3]] - without[2, numbers[3]]
        assert values[2, 3] == pytest.approx(change, abs=1e-5)
    else:
        headless = [(head - 1, word) for word, head in enumerate(explanation.output.heads) if head]
        assert all(np.isnan(values[place]) for place in headless)  # a head that is left out has no probability


def test_a_mask_has_a_confidence_for_each_pixel(tokenizer: TextTokenizer) -> None:
    model = small_image_model(tokenizer, encoder("convnet"), decoder("unet"), input={"size": [16, 16]}).eval()
    explanation = model.explain(some_image(10, 24))
    assert explanation.confidence is not None
    assert explanation.confidence.shape == explanation.output.pixels.shape == (10, 24)
    assert (explanation.confidence >= 1 / 3).all()  # of three classes the likeliest
    assert (explanation.confidence <= 1).all()


def test_a_sound_is_shown_over_time(tokenizer: TextTokenizer) -> None:
    model = small_audio_model(tokenizer, encoder("spectrogram"), decoder("transformer")).eval()
    explanation = model.explain(some_sound(), GenerateOptions(max_length=3))
    assert explanation.timeline is not None
    assert explanation.influence is None
    assert [attention.name for attention in explanation.attention] == ["cross", "decoder", "encoder"]


@pytest.mark.parametrize(("kind", "settings"), RANKERS)
def test_the_parts_of_a_score_add_up_to_it(tokenizer: TextTokenizer, kind: str, settings: dict[str, Any]) -> None:
    explained = ranker(tokenizer, kind, settings)
    hits = explained.rank(CONTEXT, CANDIDATES, 3)
    explanation = explained.explain(CONTEXT, CANDIDATES, 3, influence=False)
    assert [(candidate.text, candidate.id) for candidate in explanation.candidates] == [(h.text, h.id) for h in hits]
    for candidate, hit in zip(explanation.candidates, hits, strict=True):
        assert candidate.score == pytest.approx(hit.score, abs=1e-4)
        parts = candidate.parts
        if parts.codes is not None:
            total = float((parts.codes.weights * parts.codes.parts).sum()) + parts.codes.constant
            assert total == pytest.approx(hit.score if parts.compared is None else parts.compared, abs=1e-4)
            lengths = parts.codes.attention.sum(-1)
            assert set(np.round(lengths, 4)) <= {0.0, 1.0}  # a code beyond a short context looks nowhere
            assert parts.codes.attention.shape[1] == len(explanation.tokens)
            np.testing.assert_allclose(parts.codes.weights.sum(-1), 1, atol=1e-5)
        if parts.matches is not None:
            best = parts.matches.similarities[range(len(explanation.tokens)), parts.matches.best]
            np.testing.assert_array_equal(best, parts.matches.similarities.max(1))
            assert float(best.sum()) == pytest.approx(hit.score, abs=1e-4)
            covered = sorted(token for tokens in parts.matches.vectors for token in tokens)
            assert covered == list(range(len(candidate.tokens)))


@pytest.mark.parametrize(("kind", "settings"), RANKERS)
def test_influence_on_a_ranking_score_is_its_change(
    tokenizer: TextTokenizer, kind: str, settings: dict[str, Any]
) -> None:
    explained = ranker(tokenizer, kind, settings)
    (candidate,) = [
        candidate for candidate in explained.explain(CONTEXT, CANDIDATES, 4).candidates if candidate.text == "삼백 six"
    ]
    context, response = candidate.context_influence, candidate.candidate_influence
    assert context is not None
    assert response is not None
    assert context.words == ("two", "hundred", "and", "six")
    assert response.words == ("삼백", "six")
    pairs = [(CONTEXT, "삼백 six"), (["two hundred", "six"], "삼백 six"), (CONTEXT, "six")]
    whole, without_and, without_300 = explained.score_pairs(pairs).tolist()
    assert context.values[2, 0] == pytest.approx(whole - without_and, abs=1e-4)
    assert response.values[0, 0] == pytest.approx(whole - without_300, abs=1e-4)


def test_an_explanation_is_json(tokenizer: TextTokenizer) -> None:
    model = small_model(tokenizer, encoder("transformer"), decoder("transformer")).eval()
    content = model.explain(SENTENCE, GenerateOptions(beam=2, max_length=4)).as_dict()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert set(content) == {
        *("input", "output", "score", "tokens", "written", "choices", "beam", "attention", "influence")
    }
    tags = small_reader(tokenizer, encoder("rnn"), decoder("tags"), {}, {"column": "words"}).eval()
    assert tags.explain("one two").as_dict()["influence"]["values"][0][0] is None
    image = small_image_model(tokenizer, encoder("convnet"), decoder("rnn")).eval()
    assert isinstance(image.explain(some_image(), GenerateOptions(max_length=2)).as_dict()["input"], str)
    for kind, settings in RANKERS:
        json.dumps(ranker(tokenizer, kind, settings).explain(CONTEXT, CANDIDATES).as_dict(), allow_nan=False)


def test_an_input_of_one_word_has_no_influence_to_measure(tokenizer: TextTokenizer) -> None:
    model = small_reader(tokenizer, encoder("rnn"), decoder("label")).eval()
    influence = model.explain("two").influence
    assert influence is not None
    assert influence.words == ("two",)
    assert np.isnan(influence.values).all()


def test_a_long_text_is_explained_without_influence_or_refused_in_one_line(tokenizer: TextTokenizer) -> None:
    model = small_reader(tokenizer, encoder("rnn"), decoder("label")).eval()
    text = "two " * 1001
    with (
        pytest.raises(TwofoldError, match=r"explain: 1,001 words, .* set influence=False"),
        pytest.warns(UserWarning, match="cut"),
    ):
        model.explain(text)
    with pytest.warns(UserWarning, match="were cut"):
        assert model.explain(text, influence=False).influence is None


def test_what_cannot_be_explained_is_one_line(tokenizer: TextTokenizer) -> None:
    model = small_reader(tokenizer, encoder("rnn"), decoder("label")).eval()
    with pytest.raises(TwofoldError, match="writes no text; leave out `written`"):
        model.explain(SENTENCE, written="few")
    bi = ranker(tokenizer, "bi", {})
    with pytest.raises(TwofoldError, match="prepared candidates hold vectors without their tokens; give the texts"):
        bi.explain(CONTEXT, bi.prepare(CANDIDATES))  # type: ignore[arg-type]
    guess = small_reader(tokenizer, encoder("transformer"), decoder("tokens")).eval()
    with pytest.raises(TwofoldError, match="a language model for pre-training has no answers"):
        guess.explain(SENTENCE)


def test_nothing_is_recorded_outside_of_an_explanation(tokenizer: TextTokenizer) -> None:
    from twofold import recording

    model = small_model(tokenizer, encoder("transformer"), decoder("transformer")).eval()
    model.explain(SENTENCE, GenerateOptions(max_length=2))
    assert not recording.records_attention()
    with recording.recorded_attention() as record:
        model.predict([SENTENCE], GenerateOptions(max_length=2))
    assert record
