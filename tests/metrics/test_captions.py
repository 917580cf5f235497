"""Caption scores are those of the COCO caption evaluation; a model is judged by all that people wrote of an image."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU

import twofold
from tests.conftest import decoder, encoder, small_image_model, some_image
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.generate.search import GenerateOptions
from twofold.metrics import metric_directions
from twofold.metrics.captions import bleu, cider, rouge_l, words
from twofold.model import Model
from twofold.types import Example

VOCABULARY = "a the man's dog runs on in grass red ball two-tone children play don't water 개가 공을 3.5"
EMPTY = {"bleu1": 0, "bleu2": 0, "bleu3": 0, "bleu4": 0}
References = list[list[str]]
CAPTIONS = [["one two", "two one", "three"], ["four"], ["seven hundred", "one"], ["one two three four", "a b c d"]]
SHORT = GenerateOptions(max_length=6)


def made(images: int, seed: int) -> tuple[list[str], References]:
    """Captions that are a reference with some words put wrong, or others altogether; 1 to 5 references an image."""
    draw = np.random.default_rng(seed)

    def sentence() -> list[str]:
        return [str(word) for word in draw.choice(VOCABULARY.split(), size=int(draw.integers(1, 16)))]

    written, references = [], []
    for _ in range(images):
        right = [sentence() for _ in range(int(draw.integers(1, 6)))]
        caption = sentence() if draw.random() < 0.3 else list(right[0])
        for place in np.flatnonzero(draw.random(len(caption)) < 0.2):
            caption[place] = str(draw.choice(VOCABULARY.split()))
        written.append(" ".join(caption))
        references.append([" ".join(one) for one in right])
    return written, references


def by_coco(scorer: Any, written: list[str], references: References) -> Any:
    """Scores of the reference implementation for the same words."""
    right = {place: [" ".join(words(one)) for one in many] for place, many in enumerate(references)}
    return scorer.compute_score(right, {place: [" ".join(words(one))] for place, one in enumerate(written)})[0]


def by_sacrebleu(size: int, written: list[str], references: References) -> float:
    most = max(len(right) for right in references)
    streams = [
        [" ".join(words(right[place])) if place < len(right) else None for right in references] for place in range(most)
    ]
    metric = BLEU(tokenize="none", smooth_method="none", max_ngram_order=size, force=True)
    return float(metric.corpus_score([" ".join(words(one)) for one in written], streams).score)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("A dog, running!", ["a", "dog", "running"]),
        ("The man's T-shirt says “don't”.", ["the", "man", "'s", "t-shirt", "says", "do", "n't"]),
        ("the man 's dogs' toys", ["the", "man", "'s", "dogs", "toys"]),
        ("The girl’s hat at 5 o'clock", ["the", "girl", "'s", "hat", "at", "5", "o'clock"]),
        ("3.5 miles, 1,000 black/white stones.", ["3.5", "miles", "1,000", "black/white", "stones"]),
        ("one -- two... (three)_four", ["one", "two", "three", "four"]),
        ('개가 공을 쫓는다. "안녕!"', ["개가", "공을", "쫓는다", "안녕"]),
        ("'s", ["'s"]),
        (" ... ", []),
        ("", []),
    ],
)
def test_words_are_lower_case_and_without_punctuation(text: str, split: list[str]) -> None:
    assert words(text) == split


def test_words_do_not_depend_on_how_unicode_is_composed() -> None:
    text = "Café 앞의 강아지"
    assert words(unicodedata.normalize("NFD", text)) == words(text) == ["café", "앞의", "강아지"]


@pytest.mark.bench
@pytest.mark.parametrize("seed", [1, 2])
def test_cider_is_that_of_coco(seed: int) -> None:
    from pycocoevalcap.cider.cider import Cider  # type: ignore[import-not-found,import-untyped,unused-ignore]

    cider_of_coco = Cider()
    written, references = made(200, seed)
    written[7] = ""
    score = cider(written, references)
    assert score == pytest.approx(by_coco(cider_of_coco, written, references), abs=1e-9)
    assert 1 < score < 9


@pytest.mark.bench
@pytest.mark.parametrize("seed", [1, 2])
def test_rouge_l_is_that_of_coco(seed: int) -> None:
    from pycocoevalcap.rouge.rouge import Rouge  # type: ignore[import-not-found,import-untyped,unused-ignore]

    rouge_of_coco = Rouge()
    written, references = made(200, seed)
    written[7] = ""
    score = rouge_l(written, references)
    assert score == pytest.approx(by_coco(rouge_of_coco, written, references), abs=1e-9)
    assert 0.1 < score < 0.9


@pytest.mark.bench
@pytest.mark.parametrize("seed", [1, 2])
def test_bleu_is_that_of_coco(seed: int) -> None:
    from pycocoevalcap.bleu.bleu import Bleu  # type: ignore[import-not-found,import-untyped,unused-ignore]

    bleu_of_coco = Bleu()
    written, references = made(200, seed)
    written[7] = ""
    scores = bleu(written, references)
    expected = [100 * score for score in by_coco(bleu_of_coco, written, references)]
    assert list(scores) == ["bleu1", "bleu2", "bleu3", "bleu4"]
    assert list(scores.values()) == pytest.approx(expected, abs=1e-6)
    assert 20 < scores["bleu4"] < 80


@pytest.mark.parametrize("images", [1, 2, 200])
def test_bleu_is_that_of_sacrebleu(images: int) -> None:
    written, references = made(images, seed=3)
    for size in (1, 2, 3, 4):
        expected = by_sacrebleu(size, written, references)
        assert bleu(written, references)[f"bleu{size}"] == pytest.approx(expected, abs=1e-9)


def test_bleu_by_hand() -> None:
    scores = bleu(["a dog runs"], [["a dog sleeps here", "the dog runs far away"]])
    # "a", "dog" and "runs"; "a dog" and "dog runs"; no 3-gram; 3 words where the closest reference has 4
    penalty = math.exp(1 - 4 / 3)
    assert scores == pytest.approx({"bleu1": 100 * penalty, "bleu2": 100 * penalty, "bleu3": 0, "bleu4": 0})


def test_of_two_lengths_as_close_bleu_asks_for_the_shorter() -> None:
    assert bleu(["a b c d"], [["a b c d e", "a b c"]])["bleu1"] == 100


def test_bleu_counts_a_repeated_word_as_often_as_one_reference_has_it() -> None:
    assert bleu(["the the the the"], [["the cat the dog", "one the two three"]])["bleu1"] == pytest.approx(50)


def test_cider_by_hand() -> None:
    # Every n-gram of an image is in that image alone, or, "a", in both and then without weight.
    scores = cider(["a dog", "a bird"], [["a dog"], ["a cat"]])
    # The first is perfect in 1- and 2-grams and has no longer ones; the second has nothing of weight in common.
    assert scores == pytest.approx(10 * (1 + 1) / 4 / 2)


def test_cider_counts_less_the_further_the_length_is_off() -> None:
    scores = cider(["dog dog dog", "a b c d"], [["dog"], ["x"]])
    # Clipped to the one "dog" of the reference, 1 / 3; two pairs of words more than the reference.
    assert scores == pytest.approx(10 / 3 * math.exp(-4 / 72) / 4 / 2)


def test_rouge_l_by_hand() -> None:
    score = rouge_l(["a dog runs fast"], [["a runs dog", "a big dog that runs"]])
    # "a dog" of 3 words and "a dog runs" of 5: the best precision is 3 / 4, the best recall 2 / 3
    assert score == pytest.approx((1 + 1.44) * 3 / 4 * 2 / 3 / (2 / 3 + 1.44 * 3 / 4))


def test_the_same_text_is_perfect() -> None:
    texts = ["a dog runs on grass", "two children play in water", "개가 빨간 공을 쫓는다"]
    references = [[text] for text in texts]
    assert bleu(texts, references) == pytest.approx(dict.fromkeys(EMPTY, 100))
    assert cider(texts, references) == pytest.approx(10)
    assert rouge_l(texts, references) == pytest.approx(1)


def test_one_image_has_no_cider_but_the_other_scores() -> None:
    written, references = ["a dog runs on grass"], [["a dog runs on grass", "a dog"]]
    assert cider(written, references) == 0
    assert rouge_l(written, references) == pytest.approx(1)
    assert bleu(written, references)["bleu4"] == pytest.approx(100)


def test_no_words_score_nothing_on_either_side() -> None:
    for written, references in (
        (["", "..."], [["a dog"], ["a cat", "a bird"]]),
        (["a dog", "a cat"], [[""], ["", "?"]]),
        (["", ""], [[""], ["!"]]),
    ):
        assert bleu(written, references) == EMPTY
        assert cider(written, references) == 0
        assert rouge_l(written, references) == 0


def test_one_empty_caption_lowers_the_means_by_its_share() -> None:
    texts = ["a dog runs on grass", "two children play in water"]
    references = [[text] for text in texts]
    assert cider([texts[0], ""], references) == pytest.approx(5)
    assert rouge_l([texts[0], ""], references) == pytest.approx(0.5)
    assert bleu([texts[0], ""], references)["bleu4"] == pytest.approx(100 * math.exp(1 - 10 / 5))


@pytest.mark.parametrize("score", [bleu, cider, rouge_l])
@pytest.mark.parametrize(
    ("written", "references", "message"),
    [
        ([], [], "0 captions"),
        (["a"], [["a"], ["b"]], "1 captions and references of 2 images"),
        (["a", "b"], [["a"], []], "image 2: its references"),
        (["a"], ["a dog"], "image 1: its references"),
    ],
)
def test_a_set_that_does_not_fit_is_an_error(
    score: Callable[[Any, Any], object], written: Any, references: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        score(written, references)


def captioner(tokenizer: TextTokenizer, **settings: Any) -> Model:
    return small_image_model(tokenizer, encoder("vit", **settings), decoder("transformer")).eval()


def examples() -> list[Example]:
    return [{"image": some_image(seed=seed), "captions": said} for seed, said in enumerate(CAPTIONS)]


@pytest.mark.parametrize("options", [SHORT, GenerateOptions(beam=3, max_length=6)])
def test_a_captioner_is_judged_by_what_it_writes(tokenizer: TextTokenizer, options: GenerateOptions) -> None:
    model = captioner(tokenizer)
    report = twofold.evaluate(model, examples(), options)
    written = [one.output for one in model.predict([one["image"] for one in examples()], options)]
    right = {"cider": cider(written, CAPTIONS), "rouge_l": rouge_l(written, CAPTIONS), **bleu(written, CAPTIONS)}
    assert {name: report.metrics[name] for name in right} == right
    assert set(report.metrics) == {*right, "loss", "perplexity"} == set(metric_directions(model))
    assert report.examples == 4


def test_any_of_the_captions_is_right(tokenizer: TextTokenizer) -> None:
    model = captioner(tokenizer)
    written = [one.output for one in model.predict([one["image"] for one in examples()], SHORT)]
    given = [{**one, "captions": ["four five", own]} for one, own in zip(examples(), written, strict=True)]
    metrics = twofold.evaluate(model, given, SHORT).metrics
    assert metrics["rouge_l"] == pytest.approx(1)
    assert metrics["bleu1"] == pytest.approx(100)


def test_captions_are_judged_without_a_beginning(tokenizer: TextTokenizer) -> None:
    model = captioner(tokenizer, prefix=True)
    report = twofold.evaluate(model, examples(), SHORT)
    written = [one.output for one in model.predict([one["image"] for one in examples()], SHORT)]
    assert report.metrics["rouge_l"] == rouge_l(written, CAPTIONS)


def test_the_loss_counts_every_caption(tokenizer: TextTokenizer) -> None:
    model, total, count = captioner(tokenizer), 0.0, 0
    for example in examples():
        for caption in example["captions"]:
            loss = model.losses(model.batch([{**example, "captions": [caption]}]))["main"]
            total, count = total + float(loss.sum.detach()), count + loss.count
    assert twofold.evaluate(model, examples(), SHORT).metrics["loss"] == pytest.approx(total / count, rel=1e-4)


@pytest.mark.parametrize(
    ("captions", "said"),
    [
        (None, r"data\[1\]: 'captions' is null; fill it or remove the row"),
        ("", r"data\[1\]: 'captions' is empty"),
        ([], r"data\[1\]: 'captions' is empty"),
        (["one", 7], r"data\[1\]: 'captions' is neither a text nor a list of texts"),
    ],
)
def test_a_image_without_captions_is_named(tokenizer: TextTokenizer, captions: Any, said: str) -> None:
    given = [examples()[0], {**examples()[1], "captions": captions}]
    with pytest.raises(TwofoldError, match=said):
        twofold.evaluate(captioner(tokenizer), given, SHORT)
