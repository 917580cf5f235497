"""Reads SentencePiece unigram models as tokenizers, without the sentencepiece library."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from twofold.data.protobuf import as_bytes, fields
from twofold.data.tokenizer import Frame, TextTokenizer
from twofold.errors import TwofoldError

BLANK = "▁"
"""Symbol for a space inside pieces."""
LARGEST = 64 << 20
"""Maximum size of a model file, in bytes."""
NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
"""Types of pieces, as numbered by the format."""
UNIGRAM = 1
START, END = "<s>", "</s>"
SCALE = 1 << 24
"""Factor that turns scores into integers, so that saving and loading keeps them exact."""


class _Piece(NamedTuple):
    """Piece of a model file."""

    text: str
    score: float
    kind: int

    @property
    def name(self) -> str:
        """Text of the piece. Special pieces get a space, which no normalized text contains, so that no text matches
        them."""
        return self.text if self.kind in (NORMAL, USER_DEFINED) else f" {self.text}"


def read_sentencepiece(path: Path) -> TextTokenizer:
    """Reads the tokenizer in a `.model` file. Each unknown character is one token; an empty text has no tokens."""
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
    # The library would merge several unknown characters into one token.
    unknown_characters = pre_tokenizers.Split(Regex(_none_of(alphabet)), "isolated")
    words = pre_tokenizers.Split(BLANK, "merged_with_next")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, unknown_characters])
    tokenizer.decoder = decoders.Metaspace(BLANK)
    special = {"unknown": names[unknown], "start": names[start], "end": names[end]}
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special.values()])
    roles = {"pad": special["unknown"], **special, "separator": special["end"]}
    return TextTokenizer(tokenizer, special=roles, frame=Frame((start,), (end,), (end,)))


def _normalizer(charsmap: bytes) -> normalizers.Normalizer:
    """Applies the model's character map, then strips and collapses spaces."""
    # The library looks only at grapheme clusters, and at no more than five bytes of them, where the character map may
    # join others, as in decomposed Hangul. Composing before and after compensates, except for marks that are out of
    # Unicode order around one letter, and for final consonants that stray behind a syllable.
    table = [normalizers.NFC(), normalizers.Precompiled(charsmap), normalizers.NFC()] if charsmap else []
    spaces = [
        normalizers.Replace(Regex(r"\A +"), ""),
        normalizers.Prepend(BLANK),
        normalizers.Replace(Regex(" +"), BLANK),
        normalizers.Replace(Regex(rf"{BLANK}+\z"), ""),
    ]
    return normalizers.Sequence([*table, *spaces])


def _alphabet(pieces: Sequence[_Piece]) -> set[str]:
    """Characters of the pieces; each must be a piece itself, so that the unknown piece never competes."""
    texts = {piece.text for piece in pieces if piece.kind == NORMAL}
    alphabet = set("".join(texts))
    if not alphabet <= texts:
        raise ValueError("some characters are no pieces by themselves")
    return alphabet


def _none_of(characters: set[str]) -> str:
    """Pattern for one character that is none of these."""
    codes = enumerate(sorted(map(ord, characters)))
    # In a run of consecutive codes, code minus index is constant.
    runs = [[code for _, code in run] for _, run in groupby(codes, key=lambda place: place[1] - place[0])]
    inside = "".join(rf"\x{{{run[0]:x}}}-\x{{{run[-1]:x}}}" for run in runs)
    return f"[^{inside}]"


def _parse(content: bytes) -> tuple[list[_Piece], bytes]:
    """Parses the pieces and the character map of a file; refuses models that cannot be reproduced exactly."""
    pieces, charsmap = [], b""
    for field, value in fields(content):
        inner = dict(fields(as_bytes(value))) if field in (1, 2, 3) else {}
        if field == 1:
            kind = inner.get(3, NORMAL)
            if kind not in (NORMAL, UNKNOWN, CONTROL, USER_DEFINED):
                raise ValueError(f"pieces of kind {kind!r}")
            (score,) = struct.unpack("<f", as_bytes(inner.get(2, b"\0\0\0\0")))
            pieces.append(_Piece(as_bytes(inner.get(1, b"")).decode(), score, int(kind)))
        elif field == 2 and (inner.get(3, UNIGRAM) != UNIGRAM or inner.get(24) or inner.get(35)):
            raise ValueError("it is of another kind")
        elif field == 3:
            charsmap = as_bytes(inner.get(2, b""))
            if not all(inner.get(flag, 1) for flag in (3, 4, 5)):
                raise ValueError("it treats spaces in another way")
    return pieces, charsmap
