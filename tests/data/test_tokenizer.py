"""Texts come back from their ids, in both kinds of tokenizer, whatever the user has written."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from twofold.data.tokenizer import SPECIAL, TextTokenizer, TokenizerConfig
from twofold.errors import TwofoldError

SENTENCES = [
    "The ferry leaves at seven; nobody waits for it (except the gulls).",
    "She painted the fence blue, then green, then blue again!",
    "Où est le café? Caf\u00e9 in one letter, cafe\u0301 in two.",
    "창가에 둔 화분이 밤사이 조금 더 자랐다.",
    "우리 동네 빵집은 월요일마다 쉽니다, 아마도?",
    "버스를 놓쳐서 20분을 걸었더니 땀이 났어요!",
]
KINDS = get_args(get_type_hints(TokenizerConfig)["kind"])


def trained(kind: str, size: int = 300) -> TextTokenizer:
    texts = [*SENTENCES, "a < b > c / d unk"] * 4
    return TextTokenizer.train(texts, TokenizerConfig(kind=kind, size=size))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", SENTENCES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_text_comes_back_in_composed_form(kind: str, text: str) -> None:
    tokenizer = trained(kind)
    for form in ("NFC", "NFD"):
        (ids,) = tokenizer.encode([unicodedata.normalize(form, text)])
        assert tokenizer.unknown not in ids
        assert tokenizer.decode(ids) == unicodedata.normalize("NFC", text)


@pytest.mark.parametrize("kind", KINDS)
def test_decomposed_hangul_has_the_ids_of_composed_hangul(kind: str) -> None:
    apart = unicodedata.normalize("NFD", SENTENCES[3])
    assert len(apart) > len(SENTENCES[3])
    composed, decomposed = trained(kind).encode([SENTENCES[3], apart])
    assert composed == decomposed


@pytest.mark.parametrize("text", [*SPECIAL, "a</s>", "a <pad> b <sep>c", "<s> a </s>"])
@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_in_the_users_text_are_text_like_any_other(tmp_path: Path, kind: str, text: str) -> None:
    tokenizer = trained(kind)
    tokenizer.save(tmp_path / "tokenizer.json")
    for same in (tokenizer, TextTokenizer.load(tmp_path / "tokenizer.json")):
        (ids,) = same.encode([text])
        assert not {same.pad, same.start, same.end, same.separator, same.unknown} & set(ids)
        assert same.decode(ids) == text


def test_special_tokens_are_left_out_of_what_is_shown() -> None:
    tokenizer = trained("bpe")
    (ids,) = tokenizer.encode([SENTENCES[0]])
    padded = [tokenizer.start, *ids, tokenizer.end, tokenizer.pad, tokenizer.pad]
    assert tokenizer.decode(padded) == SENTENCES[0]


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_joined_are_the_text(kind: str) -> None:
    tokenizer = trained(kind)
    (ids,) = tokenizer.encode([SENTENCES[4]])
    assert "".join(tokenizer.pieces(ids)).replace("▁", " ").strip() == SENTENCES[4]


@pytest.mark.parametrize("kind", KINDS)
def test_a_letter_never_seen_is_the_unknown_token(kind: str) -> None:
    tokenizer = trained(kind)
    (ids,) = tokenizer.encode(["龍"])
    assert tokenizer.unknown in ids


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_tokenizer_is_the_same_when_loaded(tmp_path: Path, kind: str) -> None:
    tokenizer = trained(kind)
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = TextTokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.to_json() == tokenizer.to_json()
    assert len(loaded) == len(tokenizer)
    assert loaded.encode(SENTENCES) == tokenizer.encode(SENTENCES)


def test_the_same_texts_give_the_same_tokenizer() -> None:
    assert trained("bpe").to_json() == trained("bpe").to_json()


@pytest.mark.parametrize("kind", KINDS)
def test_the_vocabulary_is_no_larger_than_asked(kind: str) -> None:
    assert len(trained(kind, 120)) <= 120


@pytest.mark.parametrize("content", [b"", b"not a tokenizer", b"{}", b"\xff"])
def test_a_damaged_tokenizer_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(TwofoldError) as caught:
        TextTokenizer.load(path)
    assert str(caught.value).startswith(f"{path}: not a tokenizer")


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(TwofoldError, match=r"none\.json: no such file"):
        TextTokenizer.load(tmp_path / "none.json")


def test_a_vocabulary_without_room_for_special_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="leaves no room"):
        TokenizerConfig(size=len(SPECIAL))


def test_a_unigram_vocabulary_without_room_for_all_letters_is_refused() -> None:
    with pytest.raises(TwofoldError, match="size"):
        trained("unigram", 10)
