"""Weights from elsewhere as a folder that `encoder: {kind: pretrained, name: FOLDER}` reads."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tokenizers import Tokenizer

from twofold import storage
from twofold.convert import hugging_face, tensorflow
from twofold.convert.contents import Contents, Item, Settings, Why, refuse
from twofold.data.backbones import clearly
from twofold.encoders.pretrained import CONSTANTS, SAFELY, Config, PretrainedEncoder, is_on_top
from twofold.errors import SeveralErrors, TwofoldError
from twofold.model.load import load
from twofold.model.sentences import MODULES
from twofold.types import Vocabulary

__all__ = ["Imported", "Item", "Settings", "convert"]

PUBLISHED = {
    "bert": (tensorflow.BERT_CONFIG, tensorflow.read_bert),
    "gpt2": (tensorflow.GPT2_CONFIG, tensorflow.read_gpt2),
}
"""Files that identify a format, each with the function that reads it."""
SOURCES = (
    f"{tensorflow.BERT_CONFIG} and a checkpoint (Google's BERT), {tensorflow.GPT2_CONFIG} and a checkpoint (OpenAI's "
    f"GPT-2), {hugging_face.CONFIG} and weights (transformers), or {MODULES} (sentence-transformers)"
)
WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"
LEAVE_OUT = "--allow-mismatch leaves out what does not fit"


@dataclass(frozen=True)
class Imported:
    """Result of a conversion."""

    format: str
    """Format of the source: tensorflow-bert, tensorflow-gpt2, transformers or sentence-transformers."""
    kind: str
    """Architecture, by its name in transformers."""
    tensors: int
    parameters: int
    vocabulary: int
    """Vocabulary size of the tokenizer."""
    not_read: tuple[Item, ...]
    """Tensors, settings and modules of the source that an encoder does not read."""


def convert(source: str | Path, out: str | Path, settings: Settings | None = None) -> Imported:
    """Writes weights and tokenizer of the folder `source` to a new folder `out`, which appears whole or not at all."""
    source, out, settings = Path(source), Path(out), settings or Settings()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise TwofoldError(f"{out}: is there already; choose another folder")
    contents = _read(source, settings)
    refuse(source, () if settings.allow_mismatch else contents.misfits, LEAVE_OUT)
    with storage.new_folder(out) as aside:
        _write(aside, contents, source)
        with _named(aside, source):
            return _check(aside, contents, source, settings)


def _read(source: Path, settings: Settings) -> Contents:
    """Reads a folder in any of the formats."""
    if not source.is_dir():
        raise TwofoldError(f"{source}: no such folder; SOURCE is a folder with {SOURCES}")
    checkpoints = any(source.glob("*.index"))
    kinds = [kind for kind, (file, _) in PUBLISHED.items() if checkpoints and (source / file).is_file()]
    if len(kinds) > 1 and settings.kind is None:
        raise TwofoldError(f"{source}: may hold {' or '.join(kinds)}; say --kind")
    if kinds:
        kind = settings.kind if settings.kind in kinds else kinds[0]
        settings.check_kind(source, kind)
        return PUBLISHED[kind][1](source, settings)
    if (source / MODULES).is_file():
        return hugging_face.read_sentences(source, settings)
    if (source / hugging_face.CONFIG).is_file():
        return hugging_face.read_transformers(source, settings)
    raise TwofoldError(f"{source}: holds nothing that can be imported; it must have {SOURCES}")


def _write(folder: Path, contents: Contents, source: Path) -> None:
    """Fills a new folder."""
    storage.write_json(folder / "config.json", dict(contents.config))
    storage.write_tensors(folder / WEIGHTS, contents.tensors, {"format": "pt"})
    files = {**contents.files, **(contents.tokenizer if TOKENIZER in contents.tokenizer else {})}
    for name, content in files.items():
        storage.write_bytes(folder / name, content)
    if TOKENIZER not in contents.tokenizer:
        _make_tokenizer(folder, contents, source)


def _make_tokenizer(folder: Path, contents: Contents, source: Path) -> None:
    """Makes tokenizer.json from the tokenizer files of the source, by transformers."""
    from transformers import AutoTokenizer

    if not contents.tokenizer:
        raise TwofoldError(f"{source}: has no tokenizer (tokenizer.json, or vocab.txt); copy its files there")
    with TemporaryDirectory() as name, clearly(str(source), "its tokenizer's files may be damaged"):
        for file, content in {**contents.tokenizer, "config.json": json.dumps(dict(contents.config)).encode()}.items():
            Path(name, file).write_bytes(content)
        tokenizer: Any = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        tokenizer.save_pretrained(folder)
    if not (folder / TOKENIZER).is_file():
        raise TwofoldError(
            f"{source}: has no fast tokenizer ({TOKENIZER}); load and save the tokenizer once with transformers"
        )


def _check(folder: Path, contents: Contents, source: Path, settings: Settings) -> Imported:
    """Reads the folder as an encoder will; where mismatches are allowed, unknown tensors are left out.

    A tensor that the encoder needs and the source lacks is always an error: it would be drawn at random.
    """
    encoder = Config(name=str(folder)).settled()
    built = encoder.build(Vocabulary(1, 1, 0, 0, 0, 0), frozenset(["states"]))
    lost, others = _loading(folder, contents, built, source)
    refuse(source, lost, "the encoder cannot do without")
    unknown = {item.name: item for item in others if item.why == "unknown"}
    refuse(source, () if settings.allow_mismatch else unknown.values(), LEAVE_OUT)
    written = {name: value for name, value in contents.tensors.items() if name not in unknown}
    if unknown:
        storage.write_tensors(folder / WEIGHTS, written, {"format": "pt"})
    tokens = _check_tokens(folder, contents, built, source, settings)
    encoder.own_tokenizer()
    encoder.fill(built)
    if contents.format == "sentence-transformers":
        load(folder)
    numbers = sum(value.numel() for value in written.values())
    not_read = (*contents.not_read, *contents.misfits, *others)
    return Imported(contents.format, str(contents.config["model_type"]), len(written), numbers, tokens, not_read)


def _loading(folder: Path, contents: Contents, built: PretrainedEncoder, source: Path) -> tuple[list[Item], list[Item]]:
    """Names of the encoder's tensors that are missing, and of tensors that are unexpected."""
    from transformers import AutoModel

    how: dict[str, Any] = {**SAFELY, "use_safetensors": True, "output_loading_info": True}
    with clearly(str(source), "its architecture may need another version of transformers"):
        model, info = AutoModel.from_pretrained(str(folder), ignore_mismatched_sizes=True, **how)
    needed = {name: tuple(value.shape) for name, value in built.backbone.state_dict().items()}

    def here(name: str) -> str:
        return name if name in needed else name.removeprefix("encoder.")  # where it is one of two halves

    lost = [Item("missing", name, needed[here(name)]) for name in sorted(info["missing_keys"]) if here(name) in needed]
    for name, shape, expected in sorted(info["mismatched_keys"]):
        if here(name) in needed:
            lost.append(Item("another shape", name, tuple(shape), tuple(expected)))
    others = []
    for name in sorted(info["unexpected_keys"]):
        why: Why = "head" if is_on_top(name, contents.tensors, model.base_model_prefix) else "unknown"
        shape = tuple(contents.tensors[name].shape) if name in contents.tensors else None
        others.append(Item("constant" if name.endswith(CONSTANTS) else why, name, shape))
    return lost, others


def _check_tokens(folder: Path, contents: Contents, built: PretrainedEncoder, source: Path, settings: Settings) -> int:
    """Vocabulary size of the tokenizer; each token must have an embedding."""
    with clearly(str(source), "its tokenizer may be damaged"):
        tokens: int = max(Tokenizer.from_file(str(folder / TOKENIZER)).get_vocab().values(), default=-1) + 1
    rows: int = built.backbone.get_input_embeddings().num_embeddings
    differ = f"{source}: its tokenizer knows {tokens} tokens, its weights {rows}"
    if tokens > rows:
        raise TwofoldError(f"{differ}; give it the tokenizer that it was trained with")
    if contents.exact and tokens < rows and not settings.allow_mismatch:
        raise TwofoldError(f"{differ}; --allow-mismatch takes them together all the same")
    return tokens


@contextmanager
def _named(folder: Path, source: Path) -> Iterator[None]:
    """Makes errors and warnings name the source in place of the folder that is being written."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            yield
        except TwofoldError as error:
            raise SeveralErrors(str(error).replace(str(folder), str(source)).splitlines()) from error
    for warning in said:
        warnings.warn(str(warning.message).replace(str(folder), str(source)), warning.category, stacklevel=4)
