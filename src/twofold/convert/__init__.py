"""Weights from elsewhere as a folder that `encoder: {kind: pretrained, name: FOLDER}` reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from twofold import storage
from twofold.convert import bert, folder, gpt2, hugging_face, sentences
from twofold.convert.found import Found, Item, Settings, refuse
from twofold.errors import TwofoldError

__all__ = ["Imported", "Item", "Settings", "convert"]

SOURCES = (
    f"{bert.CONFIG} and a checkpoint (Google's BERT), {gpt2.CONFIG} and a checkpoint (OpenAI's GPT-2), "
    f"{hugging_face.CONFIG} and weights (transformers), or {sentences.MODULES} (sentence-transformers)"
)


@dataclass(frozen=True)
class Imported:
    """What was written."""

    format: str
    """Where it comes from: tensorflow-bert, tensorflow-gpt2, transformers or sentence-transformers."""
    kind: str
    """The architecture, as transformers calls it."""
    tensors: int
    parameters: int
    vocabulary: int
    """How many tokens its tokenizer knows."""
    not_read: tuple[Item, ...]
    """What of the source an encoder does not read."""


def convert(source: str | Path, out: str | Path, settings: Settings | None = None) -> Imported:
    """Write weights and tokenizer of the folder `source` to a new folder `out`, which appears whole or not at all."""
    source, out, settings = Path(source), Path(out), settings or Settings()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise TwofoldError(f"{out}: is there already; choose another folder")
    found = _read(source, settings)
    refuse(source, () if settings.allow_mismatch else found.misfits, folder.LEAVE_OUT)
    with storage.new_folder(out) as aside:
        folder.write(aside, found, source)
        tokens, others = folder.check(aside, found, source, settings)
    written = folder.fitting(found, others)
    return Imported(
        format=found.format,
        kind=str(found.config["model_type"]),
        tensors=len(written),
        parameters=sum(value.numel() for value in written.values()),
        vocabulary=tokens,
        not_read=(*found.not_read, *found.misfits, *others),
    )


def _read(source: Path, settings: Settings) -> Found:
    """What a folder holds, whichever of the formats it is in."""
    if not source.is_dir():
        raise TwofoldError(f"{source}: no such folder; SOURCE is a folder with {SOURCES}")
    checkpoints = any(source.glob("*.index"))
    signs = {"bert": bert.CONFIG, "gpt2": gpt2.CONFIG}
    kinds = [kind for kind, file in signs.items() if checkpoints and (source / file).is_file()]
    kind = settings.kind if settings.kind in kinds else next(iter(kinds), None)
    if kind and settings.kind not in (None, kind):
        raise TwofoldError(f"{source}: holds {kind}, and --kind says {settings.kind}; leave --kind away")
    if len(kinds) > 1 and settings.kind is None:
        raise TwofoldError(f"{source}: may hold {' or '.join(kinds)}; say --kind")
    if kind:
        return bert.read(source, settings) if kind == "bert" else gpt2.read(source, settings)
    if (source / sentences.MODULES).is_file():
        return sentences.read(source, settings)
    if (source / hugging_face.CONFIG).is_file():
        return hugging_face.read(source, settings)
    raise TwofoldError(f"{source}: holds nothing that can be imported; it must have {SOURCES}")
