"""A folder of transformers, whose weights may be pickled: read without running any code, and written as safetensors."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from torch import Tensor

from twofold import storage
from twofold.convert.found import AGAIN, MISSING, UNKNOWN, Found, Item, Settings, read_bytes, short
from twofold.errors import TwofoldError

CONFIG = "config.json"
WHOLE = ("model.safetensors", "pytorch_model.bin")
"""What the weights may be called; parts of them are listed in a file of that name with .index.json."""
TOKENIZER = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt"]
TOKENIZER += ["vocab.json", "merges.txt", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model"]


def read(source: Path, settings: Settings) -> Found:
    """The model in a folder of transformers, every tensor under the name that it has."""
    config = storage.read_json(source / CONFIG, AGAIN)
    kind = config.get("model_type", settings.kind)
    if kind is None:
        raise TwofoldError(f"{source / CONFIG}: has no model_type; say --kind bert or --kind gpt2")
    if settings.kind not in (None, kind):
        raise TwofoldError(f"{source}: holds {kind}, and --kind says {settings.kind}; leave --kind away")
    tensors, misfits = weights(source)
    return Found(
        format="transformers",
        config={**config, "model_type": kind},
        tensors=tensors,
        tokenizer={name: read_bytes(source / name, AGAIN) for name in TOKENIZER if (source / name).is_file()},
        misfits=misfits,
    )


def weights(source: Path) -> tuple[dict[str, Tensor], tuple[Item, ...]]:
    """All tensors, and the names that the list of the files and the files themselves do not agree on."""
    for whole in WHOLE:
        listed = source / f"{whole}.index.json"
        if (source / whole).is_file():
            return _apart(_read(source / whole)), ()
        if listed.is_file():
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
    lost = [Item(MISSING, name) for name in sorted(where.keys() - tensors.keys())]
    more = [Item(UNKNOWN, name, tuple(tensors[name].shape)) for name in sorted(tensors.keys() - where.keys())]
    return _apart(tensors), (*lost, *more)


def _read(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        return storage.read_tensors(path, AGAIN)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about versions of pickle, before it fails anyway
            found = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise TwofoldError(f"{path}: no such file; {AGAIN}") from None
    except Exception as error:  # a damaged pickle may raise anything
        remedy = "save its tensors alone, best as model.safetensors; code in it is never run"
        raise TwofoldError(f"{path}: not readable as tensors alone ({short(error)}); {remedy}") from error
    if not isinstance(found, dict) or not found or not all(isinstance(one, Tensor) for one in found.values()):
        raise TwofoldError(f"{path}: does not hold named tensors and nothing else; save the model's state_dict alone")
    return {str(name): value.detach() for name, value in found.items()}


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Each in memory of its own, as safetensors wants it: tied ones are written twice, and nothing is lost."""
    seen: set[int] = set()
    apart = {}
    for name, value in tensors.items():
        memory = value.untyped_storage()
        apart[name] = value.clone() if memory.data_ptr() in seen or memory.nbytes() > value.nbytes else value
        seen.add(memory.data_ptr())
    return apart
