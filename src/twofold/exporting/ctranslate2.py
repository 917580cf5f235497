"""CTranslate2: Transformers from text to text."""

from __future__ import annotations

import shutil
import warnings
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from twofold import storage
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.exporting import files, read
from twofold.exporting.job import Job
from twofold.exporting.parity import Parity
from twofold.generate.search import GenerateOptions
from twofold.inputs import INPUT
from twofold.model import Model
from twofold.reading import TEXTS

NEEDS = ("ctranslate2",)
EXTRA = "pip install 'twofold[fast]'"
MAY_BE_INT8 = False
CONVERTER = "twofold.runtime.ctranslate2"
EXAMPLE = """\
import json
from pathlib import Path

import ctranslate2
from read import read
from tokenizers import Tokenizer

source, target = Tokenizer.from_file("source.json"), Tokenizer.from_file("target.json")
about = json.loads(Path("reading.json").read_text(encoding="utf-8"))
ids = read(about, ["how do I list a folder?"])["tokens"][0]
translator = ctranslate2.Translator(".", device="cpu")
pieces = [source.id_to_token(int(token)) for token in ids]
best = translator.translate_batch([pieces], max_decoding_length=about["limit"])[0].hypotheses[0]
print(target.decode([target.token_to_id(piece) for piece in best]))
"""
READING = "reading.json"
"""Settings by which `read.py` reads the source, and the maximum number of tokens that the model generates."""
MOST_TOKENS = 40
"""Length up to which sample answers are compared."""


def write(job: Job, folder: Path) -> Parity:
    """Writes the weights as CTranslate2 reads them, and both tokenizers; returns how its answers compare."""
    if find_spec(CONVERTER) is None:
        raise TwofoldError("--to ctranslate2: this version of twofold has no converter for it; update twofold")
    model: Any = job.model
    import_module(CONVERTER).convert(model, folder)
    target = model.tokenizers[model.decoder_name(None)]
    for name, tokenizer in {"source": model.tokenizers[INPUT], "target": target}.items():
        storage.write_bytes(folder / f"{name}.json", tokenizer.library_json.encode())
    limit = model.outputs[model.decoder_name(None)].spec.limit
    storage.write_json(folder / READING, {**model.input.reading(), "tokenizer": "source.json", "limit": limit})
    shutil.copyfile(str(read.__file__), folder / files.READ)
    most = min(MOST_TOKENS, limit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that long ones are cut
        ours = [prediction.output for prediction in model.predict(_texts(), GenerateOptions(max_length=most))]
    theirs = _translated(folder, model.tokenizers[INPUT], target, most)
    equal = sum(first == second for first, second in zip(ours, theirs, strict=True))
    return Parity(job.format, version("ctranslate2"), "float32", 0.0, equal / len(ours), len(ours)).check()


def _texts() -> list[str]:
    """Sample texts that hold something to read."""
    return [text for text in TEXTS if text.strip() and len(text) < 1000]


def _translated(folder: Path, source: TextTokenizer, target: TextTokenizer, most: int) -> list[str]:
    """Answers by CTranslate2, greedy."""
    library: Any = import_module("ctranslate2")
    about = storage.read_json(folder / READING, "export it again")
    rows = [read.read(about, [text], folder)["tokens"][0].tolist() for text in _texts()]
    pieces = [source.pieces(ids) for ids in rows]
    given = library.Translator(str(folder), device="cpu").translate_batch(pieces, beam_size=1, max_decoding_length=most)
    numbers = {piece: number for number, piece in enumerate(target.pieces(range(len(target))))}
    return [target.decode([numbers[piece] for piece in each.hypotheses[0] if piece in numbers]) for each in given]


def example(model: Model) -> str:
    """Code of the card."""
    return EXAMPLE
