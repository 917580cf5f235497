"""Sentences beyond the limit: read in windows, every word is answered, and a tree is still one tree."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.conftest import decoder, encoder, small_model
from tests.texts import small_reader, without_dropout
from twofold.data.conll import check_tree
from twofold.data.files import Row
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.inputs import INPUT
from twofold.inputs.text import Tokens
from twofold.inputs.words import Words
from twofold.metrics import evaluate
from twofold.model import Model
from twofold.outputs.tree import MOST_TREE_WORDS, TreeOutput
from twofold.results import Tree
from twofold.types import Batch, Encoder, Hidden

LONG = ["one", "thousandseven", "two"] * 40
LIMIT = 30
WINDOWS = r"^1 of 1 sentences is longer than 30 tokens and is read in overlapping windows$"


class Alone(Encoder):
    """Every token by itself; its summary is the mean."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size, 6)
        self.longest = 0
        self.batches = 0

    def forward(self, batch: Batch) -> Hidden:
        read = batch.read(Tokens)
        self.longest = max(self.longest, int(read.mask.sum(1).max()))
        self.batches += 1
        states = self.embedding(read.tokens)
        summary = (states * read.mask[..., None]).sum(1) / read.mask.sum(1, keepdim=True)
        return Hidden(read.mask, states, summary)


@pytest.fixture
def unheard() -> Iterator[None]:
    """Ignores the warning about long sentences, which is no matter here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*overlapping windows")
        yield


def tagger(tokenizer: TextTokenizer, reads: str = "transformer", **settings: Any) -> Model:
    how = without_dropout(encoder(reads, **settings)), decoder("tags", dropout=0.0)
    return small_reader(tokenizer, *how, {"names": ["B-N", "I-N", "O"]})


def parser(tokenizer: TextTokenizer, **settings: Any) -> Model:
    how = without_dropout(encoder("transformer")), decoder("tree", width=8, relation_width=4, dropout=0.0)
    return small_reader(tokenizer, *how, {"names": ["left", "root"]}, settings)


def backwards(words: list[str]) -> Row:
    """Each word hangs from the one behind it."""
    heads = [*range(2, len(words) + 1), 0]
    relations = ["left"] * (len(words) - 1) + ["root"]
    return Row("rows:1", {"text": words, "tags": ["O"] * len(words), "heads": heads, "relations": relations})


@pytest.mark.usefixtures("unheard")
def test_windows_of_tokens_that_see_no_neighbour_give_the_states_of_one_pass(
    tokenizer: TextTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.inputs.words.READ_TOKENS", 100)
    source, reads = tagger(tokenizer).input, Alone(len(tokenizer))
    read = source.batch(source.items([Row("", {"text": sentence}) for sentence in (LONG, ["one"], LONG[:50])]))
    assert isinstance(read, Words)
    assert read.windows is not None
    whole = reads(Batch({INPUT: replace(read, windows=None)}))
    reads.longest = reads.batches = 0
    stitched = read.encode(reads, Batch({INPUT: read}))
    assert reads.longest <= LIMIT
    assert reads.batches == -(-len(read.windows.rows) // (100 // LIMIT))
    assert torch.equal(stitched.mask, read.mask)
    assert torch.equal(stitched.need("states")[read.mask], whole.need("states")[read.mask])
    torch.testing.assert_close(stitched.need("summary")[1], whole.need("summary")[1])


def test_a_short_sentence_has_the_same_states_beside_a_long_one(tokenizer: TextTokenizer) -> None:
    model, words = tagger(tokenizer).eval(), LONG[:9]
    alone = model.predict([words])[0]
    with pytest.warns(UserWarning, match=r"^1 of 2 sentences is longer than 30 tokens"):
        beside = model.predict([words, LONG])[0]
    assert alone.output == beside.output
    assert alone.score == pytest.approx(beside.score, abs=1e-5)


@pytest.mark.parametrize("reads", ["transformer", "rnn", "text_convnet"])
def test_every_word_of_a_long_sentence_gets_a_tag(tokenizer: TextTokenizer, reads: str) -> None:
    with pytest.warns(UserWarning, match=WINDOWS):
        (prediction,) = tagger(tokenizer, reads).predict([LONG])
    assert prediction.output.words == tuple(LONG)
    tags = prediction.output.tags
    assert len(tags) == len(LONG)
    assert all(last != "O" for last, tag in zip(("O", *tags), tags, strict=False) if tag == "I-N")


def test_no_window_is_longer_than_the_positions_that_an_encoder_has(tokenizer: TextTokenizer) -> None:
    model = tagger(tokenizer, positions="learned")
    with pytest.raises((IndexError, RuntimeError)):
        model.encoder(Batch({INPUT: Tokens(torch.ones(1, LIMIT + 2).long(), torch.ones(1, LIMIT + 2).bool())}))
    with pytest.warns(UserWarning, match=WINDOWS):
        assert len(model.predict([LONG])[0].output.tags) == len(LONG)


@pytest.mark.usefixtures("unheard")
def test_the_tree_of_a_long_sentence_is_one_tree(tokenizer: TextTokenizer) -> None:
    for words in (LONG, ["g" * 400] * 9, [*LONG[:30], "g" * 400, *LONG]):
        (prediction,) = parser(tokenizer).predict([words])
        assert isinstance(prediction.output, Tree)
        assert len(prediction.output.heads) == len(prediction.output.relations) == len(words)
        assert check_tree(prediction.output.heads) is None
        assert [head == 0 for head in prediction.output.heads] == [
            name == "root" for name in prediction.output.relations
        ]


def test_a_word_of_400_pieces_is_answered_and_said_to_be_cut(tokenizer: TextTokenizer) -> None:
    said = r"^1 word is longer than a whole sentence may be and cut to 14 tokens$"
    with pytest.warns(UserWarning, match=said):
        (prediction,) = tagger(tokenizer).predict([["one", "g" * 400, "two"]])
    assert len(prediction.output.tags) == 3
    both = r"^2 of 3 sentences are longer than 30 tokens and are read in overlapping windows; 6 words are longer than"
    with pytest.warns(UserWarning, match=both):
        tagger(tokenizer).predict([["g" * 400] * 3, ["g" * 400] * 3, ["one"]])


@pytest.mark.parametrize("of", ["tags", "tree"])
def test_an_evaluation_counts_every_word_of_a_long_sentence(tokenizer: TextTokenizer, of: str) -> None:
    model = tagger(tokenizer) if of == "tags" else parser(tokenizer)
    row = backwards(LONG)
    with pytest.warns(UserWarning, match=WINDOWS):
        batch = model.batch([row.values])
    assert model.counts(batch)["main"] == len(LONG)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        report = evaluate(model, [row])
        (prediction,) = model.predict([LONG])
    assert [str(one.message) for one in said if "windows" in str(one.message)] == [
        "1 of 1 sentences is longer than 30 tokens and is read in overlapping windows"
    ]
    if of == "tree":
        right = sum(head == gold for head, gold in zip(prediction.output.heads, row.values["heads"], strict=True))
        assert report.metrics["uas"] == pytest.approx(right / len(LONG))
    assert report.metrics["loss"] > 0


@pytest.mark.usefixtures("unheard")
def test_a_label_beside_tags_is_told_from_the_whole_sentence(tokenizer: TextTokenizer) -> None:
    for pooling in ("mean", "summary", "first", "max", "attention"):
        parts = without_dropout(encoder("transformer")), decoder("tags"), decoder("label", pooling=pooling)
        model = small_model(tokenizer, *parts)
        row = Row("rows:1", {"source": LONG, "tags": ["O"] * len(LONG), "label": "few"})
        assert model.predict([LONG], decoder="main1")[0].output in ("few", "many")
        report = evaluate(model, [row])
        assert {"main.loss", "main1.loss", "main1.accuracy"} <= set(report.metrics)


@pytest.mark.usefixtures("unheard")
def test_a_sentence_of_5000_words_is_tagged_and_a_tree_of_too_many_refused(tokenizer: TextTokenizer) -> None:
    assert len(tagger(tokenizer).predict([LONG * 42])[0].output.tags) == 5040
    docs = (Path(__file__).parents[2] / "docs/text.md").read_text(encoding="utf-8")
    assert f"more than {MOST_TREE_WORDS:,} words (1 GiB) is refused" in docs
    said = r"^input 2: 3,664 words; a tree takes memory .* of 3,663 words 1 GiB, which is the most; cut the sentence"
    with pytest.raises(TwofoldError, match=said):
        parser(tokenizer).predict([["one"], ["one"] * (MOST_TREE_WORDS + 1)])


def test_gold_heads_beyond_the_cut_do_not_count_in_training_and_do_in_an_evaluation(tokenizer: TextTokenizer) -> None:
    output, row = parser(tokenizer).outputs["main"], backwards(LONG)
    assert isinstance(output, TreeOutput)
    (learned,), (judged,) = output.encode([row]).ids, output.values([row])
    assert len(judged) == 2 * len(LONG) > len(learned)
    assert learned[-2] < 0
    assert min(judged) >= 0


def test_a_long_sentence_is_refused_if_the_recipe_says_so(tokenizer: TextTokenizer) -> None:
    with pytest.raises(TwofoldError, match=r"^input 1: \d+ tokens, the limit is 29; cut the sentence in two"):
        parser(tokenizer, too_long="refuse").predict([LONG])
