"""SentencePiece models are read as what they are, or refused in one line."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from twofold.data.sentencepiece import CONTROL, NORMAL, UNKNOWN, read_sentencepiece
from twofold.errors import TwofoldError

PIECES = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
PIECES += [(letter, -9.0, NORMAL) for letter in "▁abcr"] + [("▁a", -4.0, NORMAL), ("bra", -6.5, NORMAL)]


def field(number: int, value: bytes | int) -> bytes:
    """A short field of a protocol buffer."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


def content(pieces: list[tuple[str, float, int]] = PIECES, kind: int = 1, normalizer: bytes = b"") -> bytes:
    inner = [
        field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + field(3, use) for text, score, use in pieces
    ]
    return b"".join(field(1, one) for one in inner) + field(2, field(3, kind)) + field(3, normalizer)


def write(folder: Path, whole: bytes) -> Path:
    path = folder / "some.model"
    path.write_bytes(whole)
    return path


def test_a_text_is_cut_into_the_likeliest_pieces(tmp_path: Path) -> None:
    tokenizer = read_sentencepiece(write(tmp_path, content()))
    (ids,) = tokenizer.encode([" abra  cab "])
    assert tokenizer.pieces(ids) == ["▁a", "bra", "▁", "c", "a", "b"]
    assert tokenizer.decode([tokenizer.start, *ids, tokenizer.end]) == "abra cab"


def test_each_unknown_character_is_a_token_of_its_own(tmp_path: Path) -> None:
    tokenizer = read_sentencepiece(write(tmp_path, content()))
    assert tokenizer.encode(["axyb"]) == [[8, tokenizer.unknown, tokenizer.unknown, 5]]


def test_a_cut_file_is_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    whole = content()
    for length in range(0, len(whole) - len(field(2, field(3, 1)) + field(3, b"")), 5):
        with pytest.raises(TwofoldError, match="not a SentencePiece model of the unigram kind"):
            read_sentencepiece(write(tmp_path, whole[:length] + b"\x0a"))


@pytest.mark.parametrize(
    ("whole", "reason"),
    [
        (content(kind=2), "it is of another kind"),
        (content(normalizer=field(4, 0)), "it treats spaces in another way"),
        (content([*PIECES, ("<0x00>", 0.0, 6)]), "pieces of kind 6"),
        (content([*PIECES, ("za", -7.0, NORMAL)]), "some characters are no pieces by themselves"),
        (content(PIECES[1:]), "it lacks an unknown piece, <s> or </s>"),
        (b"\x80" * 50, "it ends too early"),
        (b"\x08\x01", "a field of another form"),
        (b"hello", "a field of form 4"),
    ],
)
def test_what_cannot_be_done_justice_to_is_refused(whole: bytes, reason: str, tmp_path: Path) -> None:
    with pytest.raises(TwofoldError, match=reason) as caught:
        read_sentencepiece(write(tmp_path, whole))
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TwofoldError, match=r"none.model: cannot be read \(No such file"):
        read_sentencepiece(tmp_path / "none.model")
