"""Folders of transformers and of sentence-transformers, whose weights may be pickled: read without running any code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors.torch import save as as_safetensors
from torch import Tensor

from twofold import storage
from twofold.convert.contents import AGAIN, Contents, Item, Settings, read_bytes
from twofold.errors import TwofoldError
from twofold.model.sentence_misfits import misfits_of
from twofold.model.sentences import (
    ENDLESS,
    LENGTH,
    MODES,
    MODULES,
    PROMPTS,
    Module,
    modes_of,
    read_sentence_folder,
)
from twofold.storage.pickled import apart, read_pickled

CONFIG = "config.json"
WHOLE = ("model.safetensors", "pytorch_model.bin")
"""File names of weights; an .index.json of that name lists the parts of split weights."""
TOKENIZER = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt"]
TOKENIZER += ["vocab.json", "merges.txt", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model"]
POOLING = "1_Pooling"


def read_transformers(source: Path, settings: Settings) -> Contents:
    """Reads the model in a folder of transformers; tensors keep their names."""
    config = storage.read_json(source / CONFIG, AGAIN)
    kind = config.get("model_type", settings.kind)
    if kind is None:
        raise TwofoldError(f"{source / CONFIG}: has no model_type; say --kind bert or --kind gpt2")
    settings.check_kind(source, kind)
    tensors, misfits = _weights(source)
    tokenizer = {name: read_bytes(source / name) for name in TOKENIZER if (source / name).is_file()}
    return Contents("transformers", {**config, "model_type": kind}, tokenizer, tensors, misfits=misfits)


def read_sentences(source: Path, settings: Settings) -> Contents:
    """Reads the network of a folder of sentence-transformers, and the files with its pooling, limit and prompts."""
    folder = read_sentence_folder(source)
    assert folder is not None, MODULES
    network = read_transformers(source / folder.network.path, settings)
    misfits = misfits_of(folder)
    left_out, settings_left_out = [misfit.module for misfit in misfits], {misfit.setting for misfit in misfits}
    modules = [module for module in folder.modules[1:] if module not in left_out]
    if folder.pooling and not any(module.kind == "Pooling" for module in modules):
        modules.insert(0, replace(folder.pooling, about={**folder.pooling.about, "pooling_mode": "mean"}))
    modules = [replace(module, path=POOLING) if module.kind == "Pooling" else module for module in modules]
    about = dict(folder.network.about)
    if not about.get("max_seq_length") and folder.limit < ENDLESS:
        about["max_seq_length"] = folder.limit
    files = {LENGTH: _json(_without(about, settings_left_out))}
    for module in modules:
        files |= _module_files(source, module)
    if folder.about:
        files[PROMPTS] = _json(_without(folder.about, settings_left_out))
    lines = enumerate([replace(folder.network, path=""), *modules])
    files[MODULES] = _json([{"idx": n, "name": str(n), "path": m.path, "type": m.type} for n, m in lines])
    items = tuple(Item(misfit.why, misfit.what) for misfit in misfits)
    return replace(network, format="sentence-transformers", files=files, misfits=(*network.misfits, *items))


def _module_files(source: Path, module: Module) -> dict[str, bytes]:
    """Files of a module: its settings, and its weights as safetensors."""
    about = _flagged(module.about) if module.kind == "Pooling" else module.about
    files = {f"{module.path}/config.json": _json(about)}
    if module.kind == "Dense":
        tensors, _ = _weights(source / module.path)
        contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
        files[f"{module.path}/model.safetensors"] = as_safetensors(contiguous)
    return files


def _flagged(about: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a pooling with the flags of older versions, which all versions read."""
    modes = modes_of(about)
    width = about.get("word_embedding_dimension", about.get("embedding_dimension"))
    flags = {f"pooling_mode_{flag}": mode in modes for mode, flag in MODES.items()}
    return {"word_embedding_dimension": width, **flags, "include_prompt": about.get("include_prompt", True)}


def _without(content: Mapping[str, Any], keys: set[str | None]) -> dict[str, Any]:
    return {key: value for key, value in content.items() if key not in keys}


def _json(content: Any) -> bytes:
    return (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode()


def _weights(source: Path) -> tuple[dict[str, Tensor], tuple[Item, ...]]:
    """Reads all tensors; also returns the names on which the index file and the weight files disagree."""
    for whole in WHOLE:
        if (source / whole).is_file():
            return apart(_read(source / whole)), ()
        if (listed := source / f"{whole}.index.json").is_file():
            return _parts(listed)
    raise TwofoldError(f"{source}: holds no weights that can be read ({' or '.join(WHOLE)}); {AGAIN}")


def _parts(listed: Path) -> tuple[dict[str, Tensor], tuple[Item, ...]]:
    where = storage.read_json(listed, AGAIN).get("weight_map")
    if not isinstance(where, dict) or not all(isinstance(file, str) for file in where.values()):
        raise TwofoldError(f"{listed}: does not list which tensor is in which file (weight_map); {AGAIN}")
    tensors: dict[str, Tensor] = {}
    for file in sorted(set(where.values())):
        if Path(file).name != file:
            raise TwofoldError(f"{listed}: names a file outside of its folder ({file}); {AGAIN}")
        tensors |= _read(listed.with_name(file))
    lost = [Item("missing", name) for name in sorted(where.keys() - tensors.keys())]
    more = [Item("unknown", name, tuple(tensors[name].shape)) for name in sorted(tensors.keys() - where.keys())]
    return apart(tensors), (*lost, *more)


def _read(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        return storage.read_tensors(path, AGAIN)
    return read_pickled(path, AGAIN)
