"""Every encoder with every decoder learns, or says why the two do not fit; so do parts of the user's own."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import (
    decoder,
    encoder,
    input_of,
    output_of,
    part_params,
    small_audio_model,
    small_image_model,
    small_model,
    some_image,
    some_mask,
    some_sound,
)
from tests.rankers import PAIRS, batch_of, small_ranker
from twofold.config import kinds, structure, unstructure
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders import DecoderConfig, RankingDecoderConfig
from twofold.encoders import EncoderConfig
from twofold.errors import TwofoldError
from twofold.inputs.audio import Spectrogram
from twofold.inputs.image import Images
from twofold.model import Model, ModelConfig, Ranker, Task
from twofold.recipe import Recipe

EXAMPLES: list[dict[str, Any]] = [
    {"source": "one hundred and two", "target": "102", "label": "many", "tags": "B-N I-N I-N I-N"},
    {"source": "seven", "target": "7", "label": "few", "tags": "B-N"},
    {"source": "삼백", "target": "300", "label": "many", "tags": "B-N"},
]
for example, heads in zip(EXAMPLES, ("0 1 2 3", "0", "0"), strict=True):
    example |= {"heads": heads, "relations": " ".join(["root", *["of"] * (len(heads) // 2)])}
SHOWN = [
    {"image": some_image(seed=number), "captions": captions, "mask": some_mask(seed=number), "label": label}
    for number, (captions, label) in enumerate([(["102", "one hundred"], "many"), (["7"], "few"), (["300"], "many")])
]
HEARD = [{**example, "audio": some_sound(seed=number)} for number, example in enumerate(EXAMPLES)]
RANKED = [{**pair, "negatives": ["nine one"]} for pair in PAIRS]
"""Examples that are wrong everywhere, which even a part that sees no order can learn."""

MEAN_ENCODER = '''
"""The mean of the token vectors, and nothing else."""

from dataclasses import dataclass

from torch import nn

from twofold.encoders import EncoderConfig
from twofold.inputs.text import Tokens
from twofold.types import Encoder, Hidden, HiddenSpec


@dataclass(frozen=True)
class Config(EncoderConfig):
    width: int = 8
    """Width of the token vectors."""

    def spec(self):
        return HiddenSpec(summary=self.width)

    def build(self, vocabulary, needs):
        return MeanEncoder(self, vocabulary)


class MeanEncoder(Encoder):
    def __init__(self, config, vocabulary):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary.size, config.width)

    def forward(self, batch):
        read = batch.read(Tokens)
        vectors = self.embedding(read.tokens) * read.mask[..., None]
        return Hidden(mask=read.mask, summary=vectors.sum(1) / read.mask.sum(1, keepdim=True))
'''

PICKY_DECODER = '''
"""Needs what no encoder gives."""

from dataclasses import dataclass

from twofold.decoders import DecoderConfig


@dataclass(frozen=True)
class Config(DecoderConfig):
    def needs(self):
        return frozenset({"smell", "summary"})
'''


@pytest.fixture
def own_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with an encoder that gives only a summary, and a decoder that nothing can please."""
    folder = tmp_path / "my_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "my_part.py").write_text(MEAN_ENCODER)
    (folder / "picky.py").write_text(PICKY_DECODER)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    forget_own_parts()


def forget_own_parts() -> None:
    for name in [name for name in sys.modules if name.startswith("my_package")]:
        del sys.modules[name]


def falls(model: Model) -> bool:
    """Returns True if a few steps of an optimizer on a batch lower its loss."""
    if isinstance(model, Ranker):
        batch = batch_of(model, RANKED, drawn=1)
    else:
        batch = model.batch({Images: SHOWN, Spectrogram: HEARD}.get(model.config.input.gives, EXAMPLES))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    first = model.eval().loss(batch).item()
    assert torch.isfinite(torch.tensor(first))
    model.train()
    for _ in range(12 if isinstance(model, Ranker) else 8):
        optimizer.zero_grad()
        loss = model.loss(batch)
        assert torch.isfinite(loss)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model.eval().loss(batch).item() < 0.95 * first


def small_pair(tokenizer: TextTokenizer, reads: EncoderConfig, writes: DecoderConfig) -> Model:
    """A ranking decoder makes a ranker; what is read is what the output asks for, where the encoder reads that."""
    if isinstance(writes, RankingDecoderConfig):
        return small_ranker(tokenizer, reads, writes)
    if reads.reads is Images:
        return small_image_model(tokenizer, reads, writes)
    if reads.reads is Spectrogram:
        return small_audio_model(tokenizer, reads, writes)
    asked = output_of(writes.output).input
    kind = asked if asked and issubclass(input_of(asked).gives, reads.reads) else reads.input
    return small_model(tokenizer, reads, writes, input={"kind": kind})


def fitting_pair(tokenizer: TextTokenizer, writes: DecoderConfig, *preferred: str) -> Model:
    """A model over the first encoder that gives what the decoder needs, of those that are preferred or of all."""
    for reads in (*preferred, "transformer", *kinds("encoders")):
        with contextlib.suppress(TwofoldError):
            return small_pair(tokenizer, encoder(reads), writes)
    raise AssertionError(f"no encoder fits {writes}")


@pytest.mark.parametrize("reads", part_params(kinds("encoders")))
@pytest.mark.parametrize("writes", kinds("decoders"))
def test_every_pair_learns_or_says_why_not(tokenizer: TextTokenizer, reads: str, writes: str) -> None:
    source, target = encoder(reads), decoder(writes)
    wrong = f"the decoder '{writes}' needs .* the encoder '{reads}' gives"
    fits = target.needs() <= source.gives()
    kind, gives = source.input, source.reads.__name__.lower()
    if kind != "text" and target.output == "ranking":
        fits, wrong = False, f"the encoder '{reads}' reads {gives}, but the input 'text' gives tokens; .* do: {kind}$"
    if kind != "text" and target.output in ("tags", "tree", "tokens"):
        fits = False
        wrong = f"the output '{writes}' needs (words|tokens), but the input '{kind}' gives {gives}; take input: "
    if fits:
        assert falls(small_pair(tokenizer, source, target))
    else:
        with pytest.raises(TwofoldError, match=wrong):
            small_pair(tokenizer, source, target)


@pytest.mark.parametrize("reads", [kind for kind in kinds("encoders") if kind not in ("convnet", "mobilenet", "timm")])
def test_masks_need_maps_and_who_gives_them_is_said(tokenizer: TextTokenizer, reads: str) -> None:
    with pytest.raises(
        TwofoldError, match=f"'unet' needs maps, .* '{reads}' gives .*; these would do: convnet and mobilenet and timm$"
    ):
        small_pair(tokenizer, encoder(reads), decoder("unet"))


@pytest.mark.parametrize("ranks", ["bi", "poly", "cross"])
@pytest.mark.parametrize("reads", ["convnet", "vit"])
def test_an_encoder_of_images_alone_ranks_no_texts(tokenizer: TextTokenizer, reads: str, ranks: str) -> None:
    line = rf"output\.candidate: the encoder '{reads}' reads images, but the input 'text' gives tokens"
    if ranks == "cross":
        line = "the decoder 'cross' reads both sides as one text; take bi, poly or late"
    with pytest.raises(TwofoldError, match=line):
        small_image_model(tokenizer, encoder(reads), decoder(ranks))
    with pytest.raises(TwofoldError, match=line):
        Recipe.of({"data": {"train": "none"}, "encoder": {"kind": reads}, "decoder": {"kind": ranks}})


@pytest.mark.parametrize("reads", ["convnet", "vit"])
def test_an_encoder_of_images_reads_no_text(tokenizer: TextTokenizer, reads: str) -> None:
    with pytest.raises(TwofoldError, match=f"the encoder '{reads}' reads images, but the input 'text' gives tokens"):
        small_model(tokenizer, encoder(reads), decoder("attention_rnn"))


@pytest.mark.parametrize("writes", [["unet", "attention_rnn", "rnn"], ["transformer", "unet"]])
def test_one_encoder_tells_several_decoders_what_a_image_shows(tokenizer: TextTokenizer, writes: list[str]) -> None:
    model = small_image_model(tokenizer, encoder("convnet"), *map(decoder, writes))
    assert falls(model)
    named = dict(zip(model.decoders, writes, strict=True))
    outputs = {kind: model.predict([SHOWN[0]["image"]], decoder=name)[0].output for name, kind in named.items()}
    assert outputs.pop("unet").pixels.shape == (10, 13)
    assert all(isinstance(text, str) for text in outputs.values())


def test_masks_whose_classes_have_no_names_are_refused(tokenizer: TextTokenizer) -> None:
    with pytest.raises(TwofoldError, match=r"classes: name the classes of the masks: output\.classes="):
        small_image_model(tokenizer, encoder("convnet"), decoder("unet"), output={"classes": []})


@pytest.mark.parametrize("ranks", ["bi", "poly", "cross"])
def test_a_ranking_decoder_does_not_write_and_others_do_not_rank(tokenizer: TextTokenizer, ranks: str) -> None:
    with pytest.raises(TwofoldError, match=f"the decoder '{ranks}' ranks, and must be a recipe's only"):
        small_model(tokenizer, encoder("rnn"), decoder(ranks), decoder("attention_rnn"))
    with pytest.raises(TwofoldError, match=f"the decoder '{ranks}' ranks candidates; make a Ranker of it"):
        small_model(tokenizer, encoder("rnn"), decoder(ranks))
    line = "the decoder 'attention_rnn' writes hypotheses, but the output 'ranking' takes candidate scores; these would"
    with pytest.raises(TwofoldError, match=line):
        small_ranker(tokenizer, encoder("rnn"), decoder("attention_rnn"))


@pytest.mark.usefixtures("own_parts")
@pytest.mark.parametrize("ranks", ["bi", "cross"])
def test_an_encoder_of_the_users_own_that_gives_only_a_summary_ranks_by_it(
    tokenizer: TextTokenizer, ranks: str
) -> None:
    reads = encoder("my_package.my_part", width=10)
    with pytest.raises(TwofoldError, match=f"the decoder '{ranks}' needs states, but .* gives summary; these would do"):
        small_ranker(tokenizer, reads, decoder(ranks))
    ranker = small_ranker(tokenizer, reads, decoder(ranks, pooling="summary"))
    assert structure(unstructure(ranker.config), ModelConfig) == ranker.config
    assert falls(ranker)
    with pytest.raises(TwofoldError, match="the decoder 'poly' needs states and summary"):
        small_ranker(tokenizer, reads, decoder("poly", pooling="summary"))


def test_what_would_do_is_said_also_where_the_default_backbone_is_not_at_hand(
    tokenizer: TextTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> dict[str, Any]:
        raise TwofoldError(f"{name}: could not be loaded")

    monkeypatch.setattr("twofold.encoders.pretrained._architecture", missing)
    with pytest.raises(TwofoldError, match=r"needs summary, .* these would do: rnn and text_convnet and transformer"):
        small_model(tokenizer, encoder("pretrained"), decoder("rnn"))


@pytest.mark.usefixtures("own_parts")
@pytest.mark.parametrize("writes", ["attention_rnn", "transformer"])
def test_a_pair_that_does_not_fit_fails_when_built(tokenizer: TextTokenizer, writes: str) -> None:
    with pytest.raises(TwofoldError) as caught:
        small_model(tokenizer, encoder("my_package.my_part"), decoder(writes))
    line = str(caught.value)
    assert "\n" not in line
    assert f"the decoder '{writes}' needs states" in line
    assert "the encoder 'my_package.my_part' gives summary" in line
    would_do = line.partition("these would do: ")[2].split(" and ")
    assert {"rnn", "transformer"} <= set(would_do) <= set(kinds("encoders"))


@pytest.mark.usefixtures("own_parts")
def test_a_need_that_nothing_meets_is_said(tokenizer: TextTokenizer) -> None:
    with pytest.raises(TwofoldError, match=r"'my_package.picky' needs smell and summary.*these would do: none"):
        small_model(tokenizer, encoder("rnn"), decoder("my_package.picky"))


@pytest.mark.usefixtures("own_parts")
def test_a_part_of_the_users_own_learns_in_a_pair_that_fits(tokenizer: TextTokenizer) -> None:
    model = small_model(tokenizer, encoder("my_package.my_part", width=10), decoder("rnn"))
    assert unstructure(model.config)["encoder"] == {"kind": "my_package.my_part", "width": 10}
    assert structure(unstructure(model.config), ModelConfig) == model.config
    assert falls(model)
    assert all(prediction.score < 0 for prediction in model.predict(["seven", "two"]))


@pytest.mark.usefixtures("own_parts")
def test_a_part_of_the_users_own_is_loaded_only_when_allowed(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    model = small_model(tokenizer, encoder("my_package.my_part"), decoder("rnn"))
    model.save_pretrained(tmp_path / "saved")
    forget_own_parts()
    with pytest.raises(TwofoldError, match=r"code outside twofold \(my_package.my_part\)"):
        Model.from_pretrained(tmp_path / "saved")
    assert not any(name.startswith("my_package") for name in sys.modules)
    loaded = Model.from_pretrained(tmp_path / "saved", allow_code=True)
    assert loaded.predict("seven") == model.predict("seven")


def weighed_model(tokenizer: TextTokenizer, weights: dict[str, float], reads: str) -> Model:
    """One encoder under a decoder of each kind, named by it."""
    torch.manual_seed(0)
    tasks = {kind: Task(decoder(kind, dropout=0.0), output_of("text"), weight) for kind, weight in weights.items()}
    config = ModelConfig(input_of("text", max_tokens=30), encoder(reads, dropout=0.0), tasks)
    return Model(config, dict.fromkeys(config.tokenizers(), tokenizer))


@pytest.mark.parametrize("reads", ["rnn", "transformer"])
def test_the_loss_and_gradients_of_several_decoders_are_the_weighted_sum(tokenizer: TextTokenizer, reads: str) -> None:
    weights = {"rnn": 0.5, "attention_rnn": 2.0, "transformer": 1.25}
    model = weighed_model(tokenizer, weights, reads)
    batch = model.batch(EXAMPLES)
    loss = model.loss(batch)
    loss.backward()  # type: ignore[no-untyped-call]
    expected_loss, expected = 0.0, {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    for kind, weight in weights.items():
        # The same weights in a model that has this decoder alone.
        alone = weighed_model(tokenizer, {kind: 1.0}, reads)
        alone.load_state_dict({name: model.state_dict()[name] for name in alone.state_dict()})
        single = alone.loss(alone.batch(EXAMPLES))
        single.backward()  # type: ignore[no-untyped-call]
        expected_loss += weight * single.item()
        for name, value in alone.named_parameters():
            assert value.grad is not None
            expected[name] += weight * value.grad
    assert loss.item() == pytest.approx(expected_loss, rel=1e-5)
    for name, value in model.named_parameters():
        assert value.grad is not None
        torch.testing.assert_close(value.grad, expected[name], atol=1e-5, rtol=1e-4)
