"""Long documents are cut into passages that fit, share tokens, and begin and end where words do."""

from __future__ import annotations

import random
import unicodedata
from itertools import pairwise
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tests import made
from twofold.data.candidates import Candidate, read_candidates
from twofold.data.passages import Span, Split, Splitter
from twofold.data.tokenizer import SPECIAL, TextTokenizer, TokenizerConfig
from twofold.errors import TwofoldError

WORDS = [
    "one",
    "two",
    "seven",
    "hundred",
    "삼백",
    "오십",
    "명이",
    "왔습니다.",
    "don't",
    "stop-me",
    "now,",
    "3.14",
    "it's",
]
SIZES = [(8, 0), (8, 3), (20, 6), (20, 19)]


def byte_tokenizer() -> TextTokenizer:
    """A tokenizer of bytes, as GPT-2 has: a character may be several tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([" ".join(WORDS[:4])], trainer)
    return TextTokenizer(tokenizer)


@pytest.fixture(scope="module", params=["bpe", "unigram", "bytes"])
def tokenizer(request: pytest.FixtureRequest) -> TextTokenizer:
    if request.param == "bytes":
        return byte_tokenizer()
    texts = [row["source"] for row in made.numbers(300, seed=3)]
    return TextTokenizer.train([*texts, " ".join(WORDS), "我们今天去了北京。"], TokenizerConfig(request.param, 300))


def document_of(words: int, seed: int = 0) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=words))


def cut(tokenizer: TextTokenizer, sizes: tuple[int, int], text: str, title: str = "") -> tuple[str, list[Span]]:
    """The text of a document, and its passages."""
    document = Candidate(f"{title} {text}" if title else text, 0, title=title)
    [spans] = Splitter(Split(*sizes), tokenizer).spans([document])
    return document.text, spans


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("title", ["", "seven hundred"])
def test_passages_fit_and_hold_every_word_whole(tokenizer: TextTokenizer, sizes: tuple[int, int], title: str) -> None:
    for words in (1, 9, 40, 300):
        text, spans = cut(tokenizer, sizes, document_of(words, words), title)
        passages = [span.passage(text) for span in spans]
        assert max(map(len, tokenizer.encode(passages))) <= sizes[0]
        for span in spans:
            assert text[span.start : span.stop].strip() == text[span.start : span.stop] != ""
            if sizes[0] == 20:  # no word has so many tokens
                assert set(text[span.start : span.stop].split()) <= set(text.split())
        starts = [0, *(span.start for span in spans[1:])]
        held = set[int]().union(*(range(start, span.stop) for start, span in zip(starts, spans, strict=True)))
        assert all(text[place].isspace() for place in set(range(len(text))) - held)


def test_successive_passages_share_about_the_tokens_asked_for(tokenizer: TextTokenizer) -> None:
    text, spans = cut(tokenizer, (30, 10), document_of(400))
    shared = [text[after.start : before.stop] for before, after in pairwise(spans)]
    counts = list(map(len, tokenizer.encode(shared)))
    assert max(counts) <= 11  # a word may begin with a token of its own when it stands alone
    assert sum(counts) / len(counts) > 5
    text, spans = cut(tokenizer, (30, 0), document_of(400))
    assert all(before.stop <= after.start for before, after in pairwise(spans))


def test_a_short_document_is_one_passage(tokenizer: TextTokenizer) -> None:
    assert cut(tokenizer, (50, 10), " one  two ", "seven")[1] == [Span(0, 0, 16)]
    assert cut(tokenizer, (50, 10), "\x00")[1] == [Span(0, 0, 1)]


def test_a_title_stands_before_every_passage_unless_it_is_long(tokenizer: TextTokenizer) -> None:
    text, spans = cut(tokenizer, (20, 4), document_of(100), "seven hundred")
    assert len(spans) > 3
    assert all(span.passage(text).startswith("seven hundred ") for span in spans)
    assert all("seven hundred " not in text[: span.start][14:] or span.start >= 14 for span in spans)
    text, spans = cut(tokenizer, (20, 4), document_of(100), document_of(20, 1))
    assert {span.title for span in spans} == {0}
    assert spans[0].start == 0


@pytest.mark.parametrize(
    "unit",
    ["👨‍👩‍👧‍👦🇰🇷", unicodedata.normalize("NFD", "각"), "é̂", "👍🏽", "한글"],
    ids=["family", "jamo", "marks", "skin", "hangul"],
)
def test_no_character_is_cut_in_two(tokenizer: TextTokenizer, unit: str) -> None:
    text, spans = cut(tokenizer, (40, 10), unit * 200)
    flags = "\U0001f1f0", "\U0001f1f7"
    for span in spans:
        for place in (span.start, span.stop):
            after = text[place : place + 1]
            assert unicodedata.combining(after or "a") == 0
            assert after not in ("\u200d", "🏽", flags[1])
            assert text[place - 1 : place] != "\u200d"


def test_scripts_without_blanks_are_cut_after_punctuation_and_overlap(tokenizer: TextTokenizer) -> None:
    text, spans = cut(tokenizer, (40, 8), "我们今天去了北京。" * 50)
    assert len(spans) > 5
    assert all(text[span.stop - 1] == "。" for span in spans)
    assert all(after.start < before.stop for before, after in pairwise(spans))


def test_titles_of_rows_are_known_apart_from_their_texts() -> None:
    rows: list[Any] = [{"title": "seven", "text": "one two"}, {"text": "one"}, {"title": 7, "text": "one"}]
    read = [(candidate.text, candidate.title) for candidate in read_candidates(rows)]
    assert read == [("seven one two", "seven"), ("one", ""), ("one", "")]


@pytest.mark.parametrize(
    "wrong", ["100", "100:", ":20", "a:b", "100:20:5", "-100:20", "0:0", "1.5:1", "", (100,), (1, 2, 3)]
)
def test_what_is_no_split_is_refused(wrong: Any) -> None:
    with pytest.raises(TwofoldError, match=r"is not TOKENS:OVERLAP; give two whole numbers, such as 100:20"):
        Split.of(wrong)


@pytest.mark.parametrize("wrong", ["20:20", "20:21"])
def test_passages_cannot_share_all_their_tokens(wrong: str) -> None:
    with pytest.raises(TwofoldError, match=r"passages of 20 tokens cannot share 2\d; share fewer"):
        Split.of(wrong)


def test_a_split_is_written_as_it_is_read() -> None:
    assert Split.of("100:20") == Split.of((100, 20)) == Split(100, 20)
    assert str(Split(100, 20)) == "100:20"
