"""The metrics are the field's own, and do not depend on batches or on how Unicode is composed."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import sacrebleu
import torch

import twofold
from tests import made
from tests.conftest import decoder, encoder, small_model
from twofold.data.files import Row
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.generate.search import GenerateOptions
from twofold.metrics import evaluate, text
from twofold.model import Model
from twofold.model import model as model_module

WRITTEN = [
    "a small boat crosses the quiet lake",
    "two bakers argue about the price of flour .",
    "강가에서 아이가 연을 날린다",
    "the lamp is broken",
]
REFERENCES = [
    "a small boat is crossing the quiet lake",
    "two bakers argue about the price of bread .",
    "강가에서 아이가 연을 날리고 있다",
    "the lamp is broken",
]
KINDS = ["rnn", "attention_rnn", "transformer"]


def test_bleu_and_chrf_are_those_of_sacrebleu() -> None:
    measured = text.compare(WRITTEN, REFERENCES)
    assert measured["bleu"] == sacrebleu.corpus_bleu(WRITTEN, [REFERENCES], force=True).score
    assert measured["chrf"] == sacrebleu.corpus_chrf(WRITTEN, [REFERENCES]).score
    assert 20 < measured["bleu"] < 100


def test_exact_match_is_the_share_of_equal_texts() -> None:
    assert text.compare(WRITTEN, REFERENCES)["exact_match"] == 0.25
    assert text.compare([" the lamp "], ["the lamp"]) == {"bleu": 0.0, "chrf": 100.0, "exact_match": 1.0}
    assert text.compare(REFERENCES, REFERENCES) == pytest.approx({"bleu": 100, "chrf": 100, "exact_match": 1})


def test_both_sides_are_compared_in_composed_form() -> None:
    apart = [unicodedata.normalize("NFD", one) for one in REFERENCES]
    assert apart != REFERENCES
    assert text.compare(WRITTEN, apart) == text.compare(WRITTEN, REFERENCES)
    assert text.compare(apart, REFERENCES)["exact_match"] == 1


def test_each_range_of_lengths_is_judged_by_its_own_rows() -> None:
    lengths = [1, 8, 9, 12, 13, 16, 17, 20, 21, 300]
    written = [WRITTEN[number % 4] for number in range(len(lengths))]
    references = [REFERENCES[number % 3] for number in range(len(lengths))]
    table = text.by_length(written, references, lengths)
    assert [(line["words"], line["rows"]) for line in table] == [
        (words, 2) for words in ("1-8", "9-12", "13-16", "17-20", "21+")
    ]
    for start, line in zip(range(0, len(lengths), 2), table, strict=True):
        expected = text.compare(written[start : start + 2], references[start : start + 2])
        assert line["bleu"] == expected["bleu"]


def test_lengths_that_do_not_occur_are_not_shown() -> None:
    table = text.by_length(WRITTEN, REFERENCES, [14, 14, 2, 15])
    assert [(line["words"], line["rows"]) for line in table] == [("1-8", 1), ("13-16", 3)]


def rows(number: int = 90) -> list[Row]:
    pairs = made.numbers(number // 2, seed=8) + made.reverse(number - number // 2, seed=8)
    return [Row(f"row {place}", pair) for place, pair in enumerate(pairs)]


def token_losses(model: Model, row: Row) -> Iterator[float]:
    """Negative log-probability of each token of the target, read step by step, one row at a time."""
    part: Any = model.decoder()
    with torch.no_grad():
        state = part.start(model.encoder(model.batch([row.values], targets=False)))
        written = model.batch([row.values]).targets["main"].tokens[0]
        for token, following in pairwise(written):
            step = part.step(state, token[None])
            state = step.state
            yield -float(part.output(step.features)[0].double().log_softmax(0)[following])


@pytest.mark.parametrize("kind", KINDS)
def test_perplexity_is_the_exponential_of_the_mean_token_loss(kind: str, tokenizer: TextTokenizer) -> None:
    model = small_model(tokenizer, encoder("rnn"), decoder(kind, label_smoothing=0.2)).eval()
    losses = [loss for row in rows() for loss in token_losses(model, row)]
    measured = evaluate(model.train(), rows(), families=["likelihood"])
    assert model.training
    assert measured.metrics == pytest.approx(
        {"loss": sum(losses) / len(losses), "perplexity": math.exp(sum(losses) / len(losses))}, rel=1e-5
    )


def test_perplexity_does_not_depend_on_the_batches(tokenizer: TextTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model(tokenizer, encoder("transformer"), decoder("transformer"))
    expected = evaluate(model, rows(), families=["likelihood"]).metrics
    for size in (1, 7):
        monkeypatch.setattr(model_module, "LEARN_ROWS", size)
        assert evaluate(model, rows()[::-1], families=["likelihood"]).metrics == pytest.approx(expected, rel=1e-5)


def test_a_model_is_judged_by_what_it_writes(tokenizer: TextTokenizer) -> None:
    model = small_model(tokenizer, encoder("rnn"), decoder("attention_rnn"))
    options = GenerateOptions(beam=2)
    report = evaluate(model, rows(20), options)
    sources, references = ([str(row.values[column]) for row in rows(20)] for column in ("source", "target"))
    written = [prediction.output for prediction in model.predict(sources, options)]
    expected = text.compare(written, references)
    assert {name: report.metrics[name] for name in expected} == expected
    assert set(report.metrics) == {"loss", "perplexity", *expected}
    assert report.examples == 20
    lengths = [len(source.split()) for source in sources]
    assert report.tables == {"bleu_by_length": text.by_length(written, references, lengths)}


def test_examples_are_judged_like_a_file(tokenizer: TextTokenizer) -> None:
    model = small_model(tokenizer, encoder("rnn"), decoder("rnn"))
    assert twofold.evaluate(model, [row.values for row in rows(6)]) == evaluate(model, rows(6))


def test_nothing_to_judge_by_is_one_line(tokenizer: TextTokenizer) -> None:
    with pytest.raises(TwofoldError):
        twofold.evaluate(small_model(tokenizer, encoder("rnn"), decoder("rnn")), [])


def test_a_row_without_a_reference_is_named(tokenizer: TextTokenizer) -> None:
    model = small_model(tokenizer, encoder("rnn"), decoder("rnn"))
    with pytest.raises(TwofoldError, match=r"data\[1\]: no 'target' here"):
        twofold.evaluate(model, [{"source": "one", "target": "1"}, {"source": "two"}])


def test_a_decoder_that_the_model_has_not_is_named(tokenizer: TextTokenizer) -> None:
    model = small_model(tokenizer, encoder("rnn"), decoder("rnn"))
    with pytest.raises(TwofoldError, match="the model has no decoder 'mian'; did you mean 'main'"):
        evaluate(model, rows(2), decoder="mian")
    with pytest.raises(TwofoldError, match="the model has no decoder 'mian'; did you mean 'main'"):
        model.predict("one", decoder="mian")
