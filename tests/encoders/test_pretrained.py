"""Backbones of transformers: the states, frames and settings are those of transformers itself."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertForMaskedLM,
    GPT2LMHeadModel,
    RobertaForMaskedLM,
    T5EncoderModel,
    T5ForConditionalGeneration,
)

from tests.encoders.tiny_backbones import FAMILIES, POSITIONS, TEXTS, save
from tests.rankers import ranker_config
from twofold.config import structure
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders import DecoderConfig
from twofold.encoders import EncoderConfig
from twofold.encoders.pretrained import Config, PretrainedEncoder
from twofold.inputs import INPUT
from twofold.inputs.text import Tokens, make_joined_tokens, make_tokens
from twofold.model import Ranker
from twofold.types import Batch, Vocabulary

STATES = frozenset(["states"])
FRAMES = {
    "bert": (["[CLS]"], ["[SEP]"], ["[SEP]"]),
    "distilbert": (["[CLS]"], ["[SEP]"], ["[SEP]"]),
    "electra": (["[CLS]"], ["[SEP]"], ["[SEP]"]),
    "mpnet": (["<s>"], ["</s>", "</s>"], ["</s>"]),
    "roberta": (["<s>"], ["</s>", "</s>"], ["</s>"]),
    "t5": ([], ["</s>"], ["</s>"]),
}
FUSED = ["bert", "distilbert", "electra", "gpt2", "roberta"]
every_family = pytest.mark.parametrize("family", FAMILIES)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {family: save(family, tmp_path_factory.mktemp(family)) for family in FAMILIES}


def settings(folder: Path, **given: Any) -> Config:
    settled = structure({"kind": "pretrained", "name": str(folder), **given}, EncoderConfig).settled()
    assert isinstance(settled, Config)
    return settled


def vocabulary_of(tokenizer: TextTokenizer, limit: int = POSITIONS) -> Vocabulary:
    return Vocabulary(len(tokenizer), limit, tokenizer.pad, tokenizer.unknown, tokenizer.start, tokenizer.end)


def load(folder: Path, **given: Any) -> tuple[TextTokenizer, PretrainedEncoder]:
    config = settings(folder, **given)
    tokenizer = config.own_tokenizer()
    encoder = config.build(vocabulary_of(tokenizer), STATES).eval()
    config.fill(encoder)
    return tokenizer, encoder


def alone(tokenizer: TextTokenizer, texts: list[str] = TEXTS) -> Tokens:
    return make_tokens([tokenizer.frame.around(ids) for ids in tokenizer.encode(texts)], vocabulary_of(tokenizer))


def in_pairs(tokenizer: TextTokenizer) -> Tokens:
    ids = tokenizer.encode(TEXTS)
    joined = [tokenizer.frame.joining(*both) for both in ((ids[2], ids[0]), (ids[0], ids[2]))]
    return make_joined_tokens(joined, vocabulary_of(tokenizer))


def reference(folder: Path) -> Any:
    kind: Any = T5EncoderModel if folder.name.startswith("t5") else AutoModel
    return kind.from_pretrained(folder).eval()


def states_of(encoder: PretrainedEncoder, read: Tokens) -> Tensor:
    return encoder(Batch({INPUT: read})).need("states")


def runs(encoder: PretrainedEncoder, read: Tokens) -> tuple[Tensor, Tensor]:
    """The states of two readings while learning."""
    encoder.train()
    return states_of(encoder, read), states_of(encoder, read)


@every_family
@torch.no_grad()
def test_states_are_those_of_transformers_on_each_text_alone(family: str, folders: dict[str, Path]) -> None:
    tokenizer, encoder = load(folders[family])
    theirs, their_tokenizer = reference(folders[family]), AutoTokenizer.from_pretrained(folders[family])
    batch = alone(tokenizer)
    for tokens, mask, states, text in zip(batch.tokens, batch.mask, states_of(encoder, batch), TEXTS, strict=True):
        ids = their_tokenizer(text)["input_ids"]
        assert tokens[mask].tolist() == (ids if family in FRAMES else [0, *ids])
        expected = theirs(input_ids=tokens[mask][None]).last_hidden_state[0]
        torch.testing.assert_close(states[mask], expected, atol=1e-5, rtol=1e-5)


@every_family
@torch.no_grad()
def test_states_are_those_of_transformers_on_a_pair_of_texts(family: str, folders: dict[str, Path]) -> None:
    tokenizer, encoder = load(folders[family])
    theirs, their_tokenizer = reference(folders[family]), AutoTokenizer.from_pretrained(folders[family])
    batch = in_pairs(tokenizer)
    ours = states_of(encoder, batch)
    for row, (first, second) in enumerate([(TEXTS[2], TEXTS[0]), (TEXTS[0], TEXTS[2])]):
        given = their_tokenizer(first, second, return_tensors="pt", return_token_type_ids=encoder.takes_segments)
        if family not in FRAMES:  # it would join them without anything between
            given = {"input_ids": batch.tokens[row][batch.mask[row]][None]}
        assert batch.tokens[row][batch.mask[row]].tolist() == given["input_ids"][0].tolist()
        expected = theirs(**given).last_hidden_state[0]
        torch.testing.assert_close(ours[row][batch.mask[row]], expected, atol=1e-5, rtol=1e-5)


@every_family
@torch.no_grad()
def test_padding_changes_nothing(family: str, folders: dict[str, Path]) -> None:
    tokenizer, encoder = load(folders[family])
    batch = alone(tokenizer, TEXTS[:1])
    more = POSITIONS - batch.tokens.shape[1]
    longer = Tokens(F.pad(batch.tokens, (0, more), value=tokenizer.pad), F.pad(batch.mask, (0, more)))
    states = states_of(encoder, longer)[:, : batch.tokens.shape[1]]
    torch.testing.assert_close(states, states_of(encoder, batch), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", FRAMES)
def test_the_frame_is_what_the_tokenizer_itself_does(family: str, folders: dict[str, Path]) -> None:
    theirs = AutoTokenizer.from_pretrained(folders[family])
    frame = settings(folders[family]).own_tokenizer().frame
    names = tuple(theirs.convert_ids_to_tokens(list(ids)) for ids in (frame.before, frame.between, frame.after))
    assert names == FRAMES[family]


def test_where_the_tokenizer_puts_nothing_an_empty_text_is_still_something(folders: dict[str, Path]) -> None:
    tokenizer, encoder = load(folders["gpt2"])
    frame = tokenizer.frame
    assert (frame.before, frame.between, frame.after) == ((tokenizer.start,), (tokenizer.separator,), ())
    assert states_of(encoder, alone(tokenizer, [""])).isfinite().all()


@every_family
@torch.no_grad()
def test_segments_are_used_by_those_that_know_two(family: str, folders: dict[str, Path]) -> None:
    tokenizer, encoder = load(folders[family])
    batch = in_pairs(tokenizer)
    with_them, without = states_of(encoder, batch), states_of(encoder, Tokens(batch.tokens, batch.mask))
    changed = not torch.equal(with_them, without)
    assert changed == encoder.takes_segments == (family in ("bert", "electra"))


@every_family
@torch.no_grad()
def test_the_spec_says_who_reads_from_left_to_right(family: str, folders: dict[str, Path]) -> None:
    tokenizer, encoder = load(folders[family])
    batch = alone(tokenizer, TEXTS[:1])
    changed = batch.tokens.clone()
    changed[0, -2] = tokenizer.encode(["o"])[0][-1]
    first, other = states_of(encoder, batch)[0, 0], states_of(encoder, Tokens(changed, batch.mask))[0, 0]
    assert torch.equal(first, other) == settings(folders[family]).spec().causal == (family == "gpt2")


def test_a_reader_told_to_be_a_decoder_reads_from_left_to_right(folders: dict[str, Path]) -> None:
    config = settings(folders["bert"])
    assert config.architecture is not None
    assert Config(config.name, architecture={**config.architecture, "is_decoder": True}).spec().causal


@every_family
def test_dropout_takes_effect(family: str, folders: dict[str, Path]) -> None:
    tokenizer, encoder = load(folders[family], dropout=0.5)
    first, second = runs(encoder, alone(tokenizer))
    assert not torch.allclose(first, second)


@pytest.mark.parametrize("family", [*(one for one in FRAMES if one != "t5"), "gpt2"])  # T5 has one share for all
def test_dropout_of_the_attention_takes_effect(family: str, folders: dict[str, Path]) -> None:
    tokenizer, encoder = load(folders[family], dropout=0.0, attention_dropout=0.5)
    first, second = runs(encoder, alone(tokenizer))
    assert not torch.allclose(first, second)


@every_family
def test_without_dropout_learning_and_reading_give_the_same(family: str, folders: dict[str, Path]) -> None:
    tokenizer, encoder = load(folders[family], dropout=0.0)
    batch = alone(tokenizer)
    read = states_of(encoder, batch)
    torch.testing.assert_close(runs(encoder, batch)[0], read, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("family", FUSED)
def test_attention_is_fused_and_has_no_dropout_of_its_own(
    family: str, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[float] = []
    fused = F.scaled_dot_product_attention

    def watched(*tensors: Any, **given: Any) -> Tensor:
        shares.append(given["dropout_p"])
        return fused(*tensors, **given)

    monkeypatch.setattr(F, "scaled_dot_product_attention", watched)
    tokenizer, encoder = load(folders[family])
    states_of(encoder.train(), alone(tokenizer))
    assert shares == [0.0, 0.0]


@every_family
def test_every_parameter_gets_a_gradient(family: str, folders: dict[str, Path]) -> None:
    tokenizer, encoder = load(folders[family])
    states_of(encoder, in_pairs(tokenizer)).square().sum().backward()  # type: ignore[no-untyped-call]
    still = [name for name, value in encoder.named_parameters() if value.grad is None or not value.grad.any()]
    # What a softmax sees only as the same amount on all sides changes nothing.
    assert [name for name in still if not name.endswith(("key.bias", "k_lin.bias", "attn.k.bias"))] == []
    assert not [name for name in still if encoder.get_parameter(name).grad is None]


@every_family
def test_a_saved_ranker_needs_the_folder_no_more(family: str, folders: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / family
    shutil.copytree(folders[family], folder)
    config = settings(folder)
    decoder = structure({"kind": "cross", "pooling": "mean"}, DecoderConfig)
    settled = ranker_config(config, decoder, max_context=16, max_candidate=16)
    ranker = Ranker(settled, {INPUT: config.own_tokenizer()}).eval()
    ranker.start_from()
    before = ranker.rank(TEXTS[0], TEXTS[1:])
    ranker.save_pretrained(tmp_path / "saved")
    shutil.rmtree(folder)
    loaded = Ranker.from_pretrained(tmp_path / "saved")
    assert loaded.tokenizer.frame == ranker.tokenizer.frame
    assert list(loaded.rank(TEXTS[0], TEXTS[1:])) == list(before)


@every_family
def test_symbols_in_the_users_text_are_text_like_any_other(family: str, folders: dict[str, Path]) -> None:
    theirs: Any = AutoTokenizer.from_pretrained(folders[family])
    tokenizer = settings(folders[family]).own_tokenizer()
    text = "".join(f"{token} a{token} " for token in theirs.all_special_tokens).strip()
    assert set(theirs(text, add_special_tokens=False)["input_ids"]) & set(theirs.all_special_ids)
    (ids,) = tokenizer.encode([text])
    assert not set(ids) & set(theirs.all_special_ids)
    framed = [*tokenizer.frame.before, *ids, *tokenizer.frame.after]
    assert tokenizer.decode(framed).replace(" ", "").lower() == theirs.decode(ids).replace(" ", "").lower()


@pytest.mark.parametrize(
    ("family", "head"),
    [
        ("bert", BertForMaskedLM),
        ("gpt2", GPT2LMHeadModel),
        ("roberta", RobertaForMaskedLM),
        ("t5", T5ForConditionalGeneration),
        ("t5", T5EncoderModel),
    ],
)
@torch.no_grad()
def test_weights_saved_with_another_head_or_none_are_found(
    family: str, head: Any, folders: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / family
    shutil.copytree(folders[family], folder)
    head.from_pretrained(folders[family]).save_pretrained(folder)
    capfd.readouterr()
    tokenizer, encoder = load(folder)
    assert capfd.readouterr() == ("", "")
    batch = alone(tokenizer)
    _, straight = load(folders[family])
    assert torch.equal(states_of(encoder, batch), states_of(straight, batch))


@torch.no_grad()
def test_weights_of_half_precision_are_read_as_whole_ones(folders: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(folders["bert"], tmp_path / "half")
    copy.deepcopy(reference(folders["bert"])).half().save_pretrained(tmp_path / "half")
    tokenizer, encoder = load(tmp_path / "half")
    assert {value.dtype for value in encoder.parameters()} == {torch.float32}
    _, whole = load(folders["bert"])
    batch = alone(tokenizer)
    torch.testing.assert_close(states_of(encoder, batch), states_of(whole, batch), atol=0.01, rtol=0.01)
