"""SentencePiece models of the unigram kind as tokenizers of our own, without the sentencepiece library."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True)
class _Pieces:
    """What a model file holds: for each piece its text, its score and what it is for; and a table of characters."""

    texts: list[str]
    scores: list[float]
    kinds: list[int]
    charsmap: bytes

    def names(self) -> list[str]:
        """The texts; with a space, which no text has once it is normalized, where no text may be taken for them."""
        readable = (NORMAL, USER_DEFINED)
        return [text if kind in readable else f" {text}" for text, kind in zip(self.texts, self.kinds, strict=True)]


def read_sentencepiece(path: Path) -> TextTokenizer:
    """The tokenizer in a `.model` file; each unknown character is a token of its own, an empty text has none."""
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"larger than {LARGEST >> 20} MB")
        pieces = _parse(path.read_bytes())
        names = pieces.names()
        if UNKNOWN not in pieces.kinds or not {f" {START}", f" {END}"} <= set(names):
            raise ValueError(f"it lacks an unknown piece, {START} or {END}")
        unknown, start, end = pieces.kinds.index(UNKNOWN), names.index(f" {START}"), names.index(f" {END}")
        alphabet = _alphabet(pieces)
    except OSError as error:
        raise TwofoldError(f"{path}: cannot be read ({error.strerror}); give a SentencePiece model") from None
    except (ValueError, struct.error) as error:
        raise TwofoldError(f"{path}: not a SentencePiece model of the unigram kind ({error}); give one") from None
    scores = [score * SCALE for score in pieces.scores]
    tokenizer = Tokenizer(models.Unigram(list(zip(names, scores, strict=True)), unknown, False))
    tokenizer.normalizer = _normalizer(pieces.charsmap)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(BLANK, "merged_with_next"),
            # The library would make one token of several unknown characters in a row.
            pre_tokenizers.Split(Regex(_none_of(alphabet)), "isolated"),
        ]
    )
    tokenizer.decoder = decoders.Metaspace(BLANK)
    special = [names[number] for number in (unknown, start, end)]
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special])
    roles = {"pad": special[0], "unknown": special[0], "start": special[1], "end": special[2], "separator": special[2]}
    return TextTokenizer(tokenizer, None, roles, Frame((start,), (end,), (end,)))


def _normalizer(charsmap: bytes) -> normalizers.Normalizer:
    """The model's own table of characters, then no spaces around the text and never two in a row."""
    # The library looks only at characters that are shown as one, and at no more than five bytes of them, where the
    # table may join others, as in decomposed Hangul. Composing before and after makes up for it, but for marks that
    # stand out of Unicode's order above or below one letter, and final consonants that stray behind a syllable.
    table = [normalizers.NFC(), normalizers.Precompiled(charsmap), normalizers.NFC()] if charsmap else []
    return normalizers.Sequence(
        [
            *table,
            normalizers.Replace(Regex(r"\A +"), ""),
            normalizers.Prepend(BLANK),
            normalizers.Replace(Regex(" +"), BLANK),
            normalizers.Replace(Regex(rf"{BLANK}+\z"), ""),
        ]
    )


def _alphabet(pieces: _Pieces) -> set[str]:
    """The characters that pieces are made of; each must be a piece, so that the unknown one never competes."""
    texts = [text for text, kind in zip(pieces.texts, pieces.kinds, strict=True) if kind == NORMAL]
    alphabet = set("".join(texts))
    if not alphabet <= set(texts):
        raise ValueError("some characters are no pieces by themselves")
    return alphabet


def _none_of(characters: set[str]) -> str:
    """A pattern for one character that is none of these."""
    ranges: list[list[int]] = []
    for code in sorted(map(ord, characters)):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    inside = "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges)
    return f"[^{inside}]"


def _parse(content: bytes) -> _Pieces:
    """What the file holds; what could not be done justice to here is refused."""
    texts: list[str] = []
    scores: list[float] = []
    kinds: list[int] = []
    charsmap = b""
    for field, value in _fields(content):
        inner = dict(_fields(_bytes(value))) if field in (1, 2, 3) else {}
        if field == 1:
            kind = inner.get(3, NORMAL)
            if kind not in (NORMAL, UNKNOWN, CONTROL, USER_DEFINED):
                raise ValueError(f"pieces of kind {kind!r}")
            texts.append(_bytes(inner.get(1, b"")).decode())
            scores.append(struct.unpack("<f", _bytes(inner.get(2, b"\0\0\0\0")))[0])
            kinds.append(int(kind))
        elif field == 2 and (inner.get(3, UNIGRAM) != UNIGRAM or inner.get(24) or inner.get(35)):
            raise ValueError("it is of another kind")
        elif field == 3:
            charsmap = _bytes(inner.get(2, b""))
            if not all(inner.get(flag, 1) for flag in (3, 4, 5)):
                raise ValueError("it treats spaces in another way")
    return _Pieces(texts, scores, kinds, charsmap)


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values of the fields of a protocol buffer."""
    at, stop = 0, len(content)
    while at < stop:
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
        if at + size > stop:
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
