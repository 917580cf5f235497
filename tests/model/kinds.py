"""Small models of every kind, with rows that they learn from and one input that they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tests.conftest import (
    decoder,
    encoder,
    input_of,
    small_audio_model,
    small_image_model,
    small_model,
    some_image,
    some_mask,
    some_sound,
)
from tests.rankers import PAIRS, small_ranker
from tests.texts import small_reader
from twofold.data.tokenizer import TextTokenizer
from twofold.inputs.text import Config as TextConfig
from twofold.model import Model, ModelConfig, Ranker, Task
from twofold.outputs.ranking import Config as RankingOutput

SENTENCES = [
    {"text": "one hundred and two", "target": "102", "label": "many", "tags": "B-N I-N I-N I-N", "mark": 2.0},
    {"text": "seven", "target": "7", "label": "few", "tags": "B-N", "mark": -1.0},
    {"text": "three nine", "target": "39", "label": "many", "tags": "B-N O", "mark": 0.5},
]
for sentence, heads in zip(SENTENCES, ("0 1 2 3", "0", "0 1"), strict=True):
    sentence |= {"heads": heads, "relations": " ".join(["root", *["of"] * (len(heads) // 2)])}
SHOWN = [
    {"image": some_image(seed=number), "captions": captions, "mask": some_mask(seed=number)}
    for number, captions in enumerate([["102", "one hundred"], ["7"], ["300"]])
]
HEARD = [{**row, "audio": some_sound(seed=number)} for number, row in enumerate(SENTENCES)]
RANKED = [{**pair, "negatives": ["nine one"]} for pair in PAIRS]
SOUGHT = [{"context": pair["response"], "image": some_image(seed=number)} for number, pair in enumerate(PAIRS)]


@dataclass(frozen=True)
class Kind:
    """A kind of model: how it is built, what it learns from and what it reads."""

    build: Callable[[TextTokenizer], Model]
    rows: Sequence[Mapping[str, Any]]
    given: Any
    candidates: Sequence[Any] = ()
    """Rankers: what it chooses from."""

    def __call__(self, tokenizer: TextTokenizer) -> Model:
        return self.build(tokenizer).eval()


def _reads(kind: str, output: Mapping[str, Any] | None = None) -> Kind:
    """A Transformer under a decoder that reads `text`."""
    reads, column = encoder("transformer"), "words" if kind in ("tags", "tree") else "text"
    rows = [{**row, "words": row["text"]} for row in SENTENCES]
    build = lambda tokenizer: small_reader(tokenizer, reads, decoder(kind), output, {"column": column})  # noqa: E731
    return Kind(build, rows, "one two")


def _writes(reads: str, kind: str) -> Kind:
    build = lambda tokenizer: small_model(  # noqa: E731
        tokenizer, encoder(reads), decoder(kind), input={"column": "text"}
    )
    return Kind(build, SENTENCES, "one two")


def _ranks(kind: str, settings: Mapping[str, Any] | None = None, **further: Any) -> Kind:
    def build(tokenizer: TextTokenizer) -> Ranker:
        return small_ranker(tokenizer, encoder("transformer"), decoder(kind, **(settings or {})), **further)

    return Kind(build, RANKED, "eleven", [str(pair["response"]) for pair in PAIRS])


def _images_for_texts(tokenizer: TextTokenizer) -> Ranker:
    """Texts are read by a Transformer, images by a network of the same width."""
    torch.manual_seed(0)
    contexts = TextConfig(column="context", max_tokens=30)
    task = Task(decoder("bi"), RankingOutput(candidate=input_of("image")))
    images = encoder("convnet", widths=[8, 16], norm="group")
    config = ModelConfig(contexts, encoder("transformer"), {"main": task}, candidate_encoder=images)
    return Ranker(config, {"input": tokenizer})


NUMBER = {"kind": "number", "column": "mark", "mean": 0.25, "deviation": 2.0}
LABELS = {"kind": "labels", "column": "label"}
WRITERS = {
    "text, rnn": _writes("rnn", "rnn"),
    "text, attention_rnn": _writes("rnn", "attention_rnn"),
    "text, transformer": _writes("transformer", "transformer"),
    "captions": Kind(
        lambda tokenizer: small_image_model(tokenizer, encoder("convnet"), decoder("transformer")),
        SHOWN,
        some_image(seed=5),
    ),
    "audio → text": Kind(
        lambda tokenizer: small_audio_model(tokenizer, encoder("spectrogram"), decoder("attention_rnn")),
        HEARD,
        some_sound(seed=5),
    ),
}
READERS = {
    "label": _reads("label"),
    "labels": _reads("label", LABELS),
    "number": _reads("label", NUMBER),
    "tags": _reads("tags"),
    "tree": _reads("tree"),
    "tokens": _reads("tokens"),
    "mask": Kind(
        lambda tokenizer: small_image_model(tokenizer, encoder("convnet"), decoder("unet")), SHOWN, some_image(seed=5)
    ),
    "audio → label": Kind(
        lambda tokenizer: small_audio_model(tokenizer, encoder("spectrogram"), decoder("label")),
        HEARD,
        some_sound(seed=5),
    ),
}
RANKERS = {
    "bi": _ranks("bi", two_towers=True),
    "poly": _ranks("poly"),
    "late": _ranks("late"),
    "cross": _ranks("cross"),
    "cross that compares": _ranks("cross", {"pooling": "both", "compare": {"kind": "poly"}}),
    "images for texts": Kind(_images_for_texts, SOUGHT, "eleven", [row["image"] for row in SOUGHT]),
}
KINDS = {**WRITERS, **READERS, **RANKERS}
"""Every kind of model by a name for tests."""
