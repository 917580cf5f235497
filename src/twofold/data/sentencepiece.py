"""SentencePiece models of the unigram kind as tokenizers of our own, without the sentencepiece library."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from twofold.data.tokenizer import Frame, TextTokenizer
from twofold.errors import TwofoldError

BLANK = "▁"
"""What stands for a space inside pieces."""
LARGEST = 64 << 20
"""No such file is larger, in bytes."""
NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
"""What a piece is for, as the format numbers it."""
UNIGRAM = 1
START, END = "<s>", "</s>"
SCALE = 1 << 24
"""Scores times this are whole numbers, which are the same again when they are saved and read."""


class _Piece(NamedTuple):
    """One piece of a model file."""

    text: str
    score: float
    kind: int

    @property
    def name(self) -> str:
        """The text; with a space, which no text has once it is normalized, where no text may be taken for it."""
        return self.text if self.kind in (NORMAL, USER_DEFINED) else f" {self.text}"


def read_sentencepiece(path: Path) -> TextTokenizer:
    """The tokenizer in a `.model` file; each unknown character is a token of its own, an empty text has none."""
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"larger than {LARGEST >> 20} MB")
        pieces, charsmap = _parse(path.read_bytes())
        names, kinds = [piece.name for piece in pieces], [piece.kind for piece in pieces]
        if UNKNOWN not in kinds or not {f" {START}", f" {END}"} <= set(names):
            raise ValueError(f"it lacks an unknown piece, {START} or {END}")
        unknown, start, end = kinds.index(UNKNOWN), names.index(f" {START}"), names.index(f" {END}")
        alphabet = _alphabet(pieces)
    except OSError as error:
        raise TwofoldError(f"{path}: cannot be read ({error.strerror}); give a SentencePiece model") from None
    except (ValueError, struct.error) as error:
        raise TwofoldError(f"{path}: not a SentencePiece model of the unigram kind ({error}); give one") from None
    tokenizer = Tokenizer(models.Unigram([(piece.name, piece.score * SCALE) for piece in pieces], unknown, False))
    tokenizer.normalizer = _normalizer(charsmap)
    # The library would make one token of several unknown characters in a row.
    unknown_characters = pre_tokenizers.Split(Regex(_none_of(alphabet)), "isolated")
    words = pre_tokenizers.Split(BLANK, "merged_with_next")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, unknown_characters])
    tokenizer.decoder = decoders.Metaspace(BLANK)
    special = {"unknown": names[unknown], "start": names[start], "end": names[end]}
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special.values()])
    roles = {"pad": special["unknown"], **special, "separator": special["end"]}
    return TextTokenizer(tokenizer, special=roles, frame=Frame((start,), (end,), (end,)))


def _normalizer(charsmap: bytes) -> normalizers.Normalizer:
    """The model's own table of characters, then no spaces around the text and never two in a row."""
    # The library looks only at characters that are shown as one, and at no more than five bytes of them, where the
    # table may join others, as in decomposed Hangul. Composing before and after makes up for it, but for marks that
    # stand out of Unicode's order above or below one letter, and final consonants that stray behind a syllable.
    table = [normalizers.NFC(), normalizers.Precompiled(charsmap), normalizers.NFC()] if charsmap else []
    spaces = [
        normalizers.Replace(Regex(r"\A +"), ""),
        normalizers.Prepend(BLANK),
        normalizers.Replace(Regex(" +"), BLANK),
        normalizers.Replace(Regex(rf"{BLANK}+\z"), ""),
    ]
    return normalizers.Sequence([*table, *spaces])


def _alphabet(pieces: Sequence[_Piece]) -> set[str]:
    """The characters that pieces are made of; each must be a piece, so that the unknown one never competes."""
    texts = {piece.text for piece in pieces if piece.kind == NORMAL}
    alphabet = set("".join(texts))
    if not alphabet <= texts:
        raise ValueError("some characters are no pieces by themselves")
    return alphabet


def _none_of(characters: set[str]) -> str:
    """A pattern for one character that is none of these."""
    codes = enumerate(sorted(map(ord, characters)))
    # In a run of codes without a gap, each is as far from its place in the order.
    runs = [[code for _, code in run] for _, run in groupby(codes, key=lambda item: item[1] - item[0])]
    inside = "".join(rf"\x{{{run[0]:x}}}-\x{{{run[-1]:x}}}" for run in runs)
    return f"[^{inside}]"


def _parse(content: bytes) -> tuple[list[_Piece], bytes]:
    """The pieces and the table of characters of a file; what could not be done justice to here is refused."""
    pieces, charsmap = [], b""
    for field, value in _fields(content):
        inner = dict(_fields(_bytes(value))) if field in (1, 2, 3) else {}
        if field == 1:
            kind = inner.get(3, NORMAL)
            if kind not in (NORMAL, UNKNOWN, CONTROL, USER_DEFINED):
                raise ValueError(f"pieces of kind {kind!r}")
            (score,) = struct.unpack("<f", _bytes(inner.get(2, b"\0\0\0\0")))
            pieces.append(_Piece(_bytes(inner.get(1, b"")).decode(), score, int(kind)))
        elif field == 2 and (inner.get(3, UNIGRAM) != UNIGRAM or inner.get(24) or inner.get(35)):
            raise ValueError("it is of another kind")
        elif field == 3:
            charsmap = _bytes(inner.get(2, b""))
            if not all(inner.get(flag, 1) for flag in (3, 4, 5)):
                raise ValueError("it treats spaces in another way")
    return pieces, charsmap


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values of the fields of a protocol buffer."""
    at = 0
    while at < len(content):
        tag, at = _number(content, at)
        form = tag & 7
        if form == 0:
            value, at = _number(content, at)
            yield tag >> 3, value
            continue
        if form == 2:
            size, at = _number(content, at)
        elif form in (1, 5):
            size = 8 if form == 1 else 4
        else:
            raise ValueError(f"a field of form {form}")
        if at + size > len(content):
            raise ValueError("it ends too early")
        yield tag >> 3, content[at : at + size]
        at += size


def _number(content: bytes, at: int) -> tuple[int, int]:
    """A whole number of at most ten bytes, and where it ends."""
    if at < len(content) and content[at] < 128:  # as nearly all are
        return content[at], at + 1
    value = 0
    for shift, byte in enumerate(content[at : at + 10]):
        value |= (byte & 127) << 7 * shift
        if byte < 128:
            return value, at + shift + 1
    raise ValueError("it ends too early")


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a field of another form")
    return value
