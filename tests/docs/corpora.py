"""A folder for TWOFOLD_DATA: the files that packaged recipes read, in the documented forms, made up and tiny."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests import images, sounds
from tests.made import in_english, in_korean
from tests.texts import COLORS, FILL, KINDS, sentence

ROWS, DEV_ROWS = 36, 12
Rows = Sequence[Mapping[str, Any]]
MakeRow = Callable[[random.Random, int], dict[str, Any]]


def write_corpora(folder: Path) -> Path:
    """All corpora of the recipes, each with a part to learn from and a part to judge by."""
    for part, rows, seed in (("train", ROWS, 1), ("dev", DEV_ROWS, 2)):
        draw = random.Random(seed)
        for corpus, row in TABLES.items():
            write_table(folder / corpus / f"{part}.tsv.gz", [row(draw, number) for number in range(rows)])
        for corpus in ("ud_en_ewt", "ud_ko_kaist"):
            write_text(folder / corpus / f"{part}.conllu.gz", "".join(conllu(draw) for _ in range(rows)))
        for corpus in ("wnut17", "klue_ner"):
            write_text(folder / corpus / f"{part}.conll.gz", "".join(conll(draw) for _ in range(rows)))
        table = [{"audio": f"numbers/{number:03}.wav", "text": _said(number, 3)} for number in range(rows)]
        write_table(folder / "fsdd" / f"numbers_{part}.tsv.gz", table)
    (folder / "camvid").mkdir()
    for corpus in ("ubuntu_irc", "sgd", "chatbot_ko"):
        write_jsonl(folder / corpus / "train_pairs.jsonl.gz", dialogues(ROWS))
        write_jsonl(folder / corpus / "dev.jsonl.gz", candidates(DEV_ROWS))
    images.write_zip(folder / "camvid" / "images.zip", _segmented(range(12), (180, 240), 12))
    images.write_zip(folder / "oxford_pets" / "images.zip", _segmented(range(1, 4), (32, 32), ROWS))
    files = {f"images/{number:03}.jpg": _jpeg(number) for number in range(ROWS)}
    images.write_zip(folder / "flickr8k" / "images.zip", files)
    files = {f"digits/{number:03}.wav": _spoken(_said(number, 1), number) for number in range(ROWS)}
    files |= {f"numbers/{number:03}.wav": _spoken(_said(number, 3), number) for number in range(ROWS)}
    images.write_zip(folder / "fsdd" / "audio.zip", files)
    return folder


def dialogues(rows: int, seed: int = 1) -> list[dict[str, Any]]:
    """Turns that name a number in words, and the reply that repeats it in digits."""
    draw = random.Random(seed)
    numbers = draw.sample(range(100, 90_000), rows)
    return [{"context": ["which number?", in_english(number)], "response": f"it is {number}"} for number in numbers]


def candidates(rows: int) -> list[dict[str, Any]]:
    """Turns with ten replies, of which one is right."""
    pairs = dialogues(rows + 9, seed=3)
    replies = [pair["response"] for pair in pairs]
    return [
        {"context": pairs[row]["context"], "candidates": replies[row : row + 10], "label": 0} for row in range(rows)
    ]


def _labeled(draw: random.Random, number: int) -> dict[str, Any]:
    return {"label": COLORS[number % 3], "text": f"{' '.join(sentence(draw))} {COLORS[number % 3]}"}


def _review(draw: random.Random, number: int) -> dict[str, Any]:
    return {"id": number, "label": number % 2, "document": f"{in_korean(number)} {'좋다' if number % 2 else '나쁘다'}"}


def _flight(draw: random.Random, number: int) -> dict[str, Any]:
    words = sentence(draw)
    return {"intent": COLORS[number % 3], "tokens": " ".join(words), "slots": " ".join(_tag(word) for word in words)}


def _captioned(draw: random.Random, number: int) -> dict[str, Any]:
    _, caption = images.shape(number)
    return {"image": f"{number:03}.jpg", **{f"caption{place}": f"{caption} {FILL[place]}" for place in range(5)}}


def _german(draw: random.Random, number: int) -> dict[str, Any]:
    words = sentence(draw)
    return {"en": " ".join(words), "de": " ".join(reversed(words))}


def _korean(draw: random.Random, number: int) -> dict[str, Any]:
    drawn = draw.randrange(90_000)
    return {"en": in_english(drawn), "ko": in_korean(drawn)}


def _alike(draw: random.Random, number: int) -> dict[str, Any]:
    words = sentence(draw)
    return {"score": number % 6, "sentence1": " ".join(words), "sentence2": " ".join(words[: number % 6] or FILL[:2])}


def _digit(draw: random.Random, number: int) -> dict[str, Any]:
    return {"audio": f"digits/{number:03}.wav", "digit": list(sounds.WORDS).index(_said(number, 1))}


TABLES: dict[str, MakeRow] = {
    "banking77": _labeled,
    "clinc150": _labeled,
    "nsmc": _review,
    "atis": _flight,
    "flickr8k": _captioned,
    "multi30k": _german,
    "enko": _korean,
    "stsb_en": _alike,
    "fsdd": _digit,
    "oxford_pets": lambda draw, number: {"image": f"{number:03}.png", "class": number % 5},
}
"""Row of each table by its number."""


def _tag(word: str) -> str:
    return "O" if word in FILL[:5] else f"B-{KINDS[word]}"


def conll(draw: random.Random) -> str:
    """A sentence with a tag for each word."""
    return "".join(f"{word}\t{_tag(word)}\n" for word in sentence(draw)) + "\n"


def conllu(draw: random.Random) -> str:
    """A sentence as a tree: each word hangs from the one before it."""
    lines = []
    for number, word in enumerate(sentence(draw), start=1):
        relation = "root" if number == 1 else KINDS[word]
        lines.append(f"{number}\t{word}\t{word}\tNOUN\tN+{KINDS[word]}\t_\t{number - 1}\t{relation}\t_\t_\n")
    return "".join(lines) + "\n"


def _said(number: int, words: int) -> str:
    kinds = list(sounds.WORDS)
    return " ".join(kinds[(number + place) % len(kinds)] for place in range(words))


def _spoken(words: str, seed: int) -> bytes:
    return sounds.encoded(sounds.spoken(words, seed))


def _jpeg(number: int) -> bytes:
    return images.encoded(images.shape(number)[0].repeat(4, 0).repeat(4, 1), "jpeg")


def _segmented(classes: range, size: tuple[int, int], rows: int) -> dict[str, bytes]:
    """Images with masks of broad stripes in which every class occurs."""
    stripes = np.arange(size[1]) * len(classes) // size[1] + classes.start
    mask = images.encoded(np.broadcast_to(stripes, size).astype(np.uint8))
    files = {}
    for part, count in (("train", rows), ("dev", 2)):
        for number in range(count):
            files[f"{part}/images/{number:03}.png"] = images.encoded(images.noise(*size, number, 3))
            files[f"{part}/masks/{number:03}.png"] = mask
    return files


def write_table(path: Path, rows: Rows) -> None:
    """A tsv file with a head."""
    lines = ["\t".join(rows[0]), *("\t".join(str(value) for value in row.values()) for row in rows)]
    write_text(path, "\n".join(lines) + "\n")


def write_jsonl(path: Path, rows: Rows) -> None:
    """A JSON object a line."""
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def write_text(path: Path, text: str) -> None:
    """A text file, packed if its name ends in .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = text.encode()
    path.write_bytes(gzip.compress(content, 1) if path.suffix == ".gz" else content)
