"""A folder of sentence-transformers: its network, and the modules that make one vector of a text's states."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors.torch import save as as_safetensors

from twofold.convert import hugging_face
from twofold.convert.found import Found, Item, Settings
from twofold.errors import TwofoldError
from twofold.model.sentence_folder import (
    ENDLESS,
    LENGTH,
    MODULES,
    PROMPTS,
    SentenceFolder,
    in_folder,
    read_sentence_folder,
)
from twofold.model.sentence_modules import MODES, Module, modes_of

__all__ = ["MODULES", "read"]

POOLING = "1_Pooling"


def read(source: Path, settings: Settings) -> Found:
    """The network, with the files that tell what becomes of its states, how much it reads, and its prompts."""
    folder = read_sentence_folder(str(source), in_folder(source))
    if folder is None:
        raise TwofoldError(f"{source}: has no {MODULES}")
    found = hugging_face.read(source / folder.network.path, settings)
    misfits = folder.misfits()
    left_out = [misfit.module for misfit in misfits if misfit.module]
    settings_left_out = {misfit.setting for misfit in misfits}
    files = {LENGTH: _json(_without(_length(folder), settings_left_out))}
    lines = [replace(folder.network, path="")]
    for module in folder.modules[1:]:
        if module not in left_out:
            lines.append(_kept(module))
            files |= _files(source, lines[-1], module)
    if not any(module.kind == "Pooling" for module in lines) and folder.pooling:
        pooling = replace(folder.pooling, path=POOLING, about={**folder.pooling.about, "pooling_mode": "mean"})
        lines.insert(1, pooling)
        files |= _files(source, pooling, pooling)
    if folder.about:
        files[PROMPTS] = _json(_without(folder.about, settings_left_out))
    files[MODULES] = _json([{"idx": n, "name": str(n), "path": m.path, "type": m.type} for n, m in enumerate(lines)])
    items = tuple(Item(misfit.why, misfit.what) for misfit in misfits)
    return replace(found, format="sentence-transformers", files=files, misfits=(*found.misfits, *items))


def _kept(module: Module) -> Module:
    return replace(module, path=POOLING) if module.kind == "Pooling" else module


def _files(source: Path, kept: Module, module: Module) -> dict[str, bytes]:
    """The settings of a module, and its weights, whichever way they were saved."""
    about = _flagged(kept.about) if kept.kind == "Pooling" else kept.about
    files = {f"{kept.path}/config.json": _json(about)}
    if kept.kind == "Dense":
        tensors, _ = hugging_face.weights(source / module.path)
        files[f"{kept.path}/model.safetensors"] = as_safetensors(
            {name: one.contiguous() for name, one in tensors.items()}
        )
    return files


def _without(content: Mapping[str, Any], keys: set[str | None]) -> dict[str, Any]:
    return {key: value for key, value in content.items() if key not in keys}


def _flagged(about: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a pooling with the flags of older versions, which all versions read."""
    modes = modes_of(about)
    width = about.get("word_embedding_dimension", about.get("embedding_dimension"))
    flags = {f"pooling_mode_{flag}": mode in modes for mode, flag in MODES.items()}
    return {"word_embedding_dimension": width, **flags, "include_prompt": about.get("include_prompt", True)}


def _length(folder: SentenceFolder) -> dict[str, Any]:
    """The settings of the network's module, with the most tokens that it reads, wherever that was said."""
    about = dict(folder.network.about)
    if not about.get("max_seq_length") and folder.limit < ENDLESS:
        about["max_seq_length"] = folder.limit
    return about


def _json(content: Any) -> bytes:
    return (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode()
