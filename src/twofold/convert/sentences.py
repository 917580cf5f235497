"""A folder of sentence-transformers: its network, and how it makes one vector of a text's states."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from twofold import storage
from twofold.convert import hugging_face
from twofold.convert.found import AGAIN, Found, Item, Settings, read_bytes
from twofold.errors import TwofoldError

MODULES, LENGTH, PROMPTS = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"
POOLING = "1_Pooling"
NETWORKS = ("Transformer", "BERT", "RoBERTa", "DistilBERT", "ALBERT", "CamemBERT", "XLMRoBERTa", "XLNet")
"""What the module with the network is called; all but the first in folders of 2019."""
HARMLESS = ("Normalize", "Dropout")
"""Vectors are brought to length one anyway, and nothing is dropped outside of a training."""
MODES = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "lasttoken": "lasttoken"}
MODES |= {"mean_sqrt_len_tokens": "mean_sqrt_len_tokens", "weightedmean": "weightedmean_tokens"}
"""Ways to reduce states by their names of today, and what the flags of older versions end in."""
KNOWN = ("cls", "mean", "max")
"""Those that rankers here have."""
ENDLESS = 1_000_000
"""From here on a limit means none: tokenizers write a number of thirty digits."""


@dataclass(frozen=True)
class Module:
    """One line of modules.json."""

    number: int
    path: str
    type: str

    @property
    def kind(self) -> str:
        return self.type.rpartition(".")[2]


def read(source: Path, settings: Settings) -> Found:
    """The network, with the files that tell how its states are reduced and how much it reads."""
    modules = _modules(source / MODULES)
    networks = [module for module in modules if module.kind in NETWORKS]
    if len(networks) != 1 or networks[0] is not modules[0]:
        kinds = ", ".join(module.kind for module in modules)
        raise TwofoldError(f"{source / MODULES}: must begin with its one Transformer, and has {kinds}")
    network = source / networks[0].path
    found = hugging_face.read(network, settings)
    length, strange = _length(network, found)
    files, misfits = {LENGTH: _json(length)}, [*found.misfits, *strange]
    kept = [dataclasses.replace(networks[0], path="")]
    for module in modules[1:]:
        about = _settings(source / module.path / "config.json")
        wrong = _misfit(module, about)
        misfits += wrong
        if not wrong:
            path = POOLING if module.kind == "Pooling" else module.path
            kept.append(dataclasses.replace(module, path=path))
            files[f"{path}/config.json"] = _json(_flagged(about) if module.kind == "Pooling" else about)
    if not any(module.kind == "Pooling" for module in modules):
        misfits.append(Item("module", "no Pooling, so that nothing tells how states are reduced"))
    if (source / PROMPTS).is_file():
        files[PROMPTS] = read_bytes(source / PROMPTS, AGAIN)
        prompt = _settings(source / PROMPTS).get("default_prompt_name")
        misfits += [Item("setting", f"the prompt '{prompt}', which it puts before each text")] if prompt else []
    files[MODULES] = _json([{"idx": n, "name": str(n), "path": m.path, "type": m.type} for n, m in enumerate(kept)])
    return dataclasses.replace(found, format="sentence-transformers", files=files, misfits=tuple(misfits))


def _modules(path: Path) -> list[Module]:
    try:
        content = json.loads(read_bytes(path, AGAIN))
        found = [Module(int(one["idx"]), str(one["path"]), str(one["type"])) for one in content]
    except (ValueError, TypeError, KeyError) as error:
        raise TwofoldError(f"{path}: not a list of modules ({error}); {AGAIN}") from None
    for module in found:
        if PurePosixPath(module.path).is_absolute() or ".." in PurePosixPath(module.path).parts:
            raise TwofoldError(f"{path}: names a folder outside of its own ({module.path}); {AGAIN}")
    if not found:
        raise TwofoldError(f"{path}: lists no module; {AGAIN}")
    return sorted(found, key=lambda module: module.number)


def _misfit(module: Module, about: Mapping[str, Any]) -> list[Item]:
    """What of a module a ranker here would do otherwise."""
    if module.kind == "Pooling":
        modes = _modes(about)
        name = f"Pooling by {' and '.join(modes) or 'nothing'}; known are {', '.join(KNOWN)}"
        return [] if len(modes) == 1 and modes[0] in KNOWN else [Item("module", name)]
    return [] if module.kind in HARMLESS else [Item("module", f"{module.kind} in {module.path}")]


def _modes(about: Mapping[str, Any]) -> list[str]:
    """How states are reduced, as today's or older versions write it."""
    given = about.get("pooling_mode")
    if given is None:
        return [mode for mode, flag in MODES.items() if about.get(f"pooling_mode_{flag}")]
    return [str(mode) for mode in given] if isinstance(given, list) else [str(given)]


def _flagged(about: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a pooling with the flags of older versions, which all versions read."""
    modes = _modes(about)
    width = about.get("word_embedding_dimension", about.get("embedding_dimension"))
    flags = {f"pooling_mode_{flag}": mode in modes for mode, flag in MODES.items()}
    return {"word_embedding_dimension": width, **flags, "include_prompt": about.get("include_prompt", True)}


def _length(network: Path, found: Found) -> tuple[dict[str, Any], list[Item]]:
    """The settings of the network's module, with the most tokens that it reads, wherever that was said."""
    named = sorted(network.glob("sentence_*_config.json"))
    about = _settings(named[0]) if named else {}
    tokenizer = _parsed(found.tokenizer.get("tokenizer_config.json"))
    said = [tokenizer.get("model_max_length"), found.config.get("max_position_embeddings")]
    limits = [int(limit) for limit in said if isinstance(limit, int | float) and 0 < limit < ENDLESS]
    if not about.get("max_seq_length") and limits:
        about["max_seq_length"] = min(limits)
    strange = []
    if about.get("do_lower_case") and not _lowers(tokenizer, _parsed(found.tokenizer.get("tokenizer.json"))):
        strange.append(Item("setting", "do_lower_case, which its tokenizer does not do"))
    task = about.get("transformer_task", "feature-extraction")
    if task != "feature-extraction":
        strange.append(Item("setting", f"transformer_task {task}"))
    return about, strange


def _lowers(about: Mapping[str, Any], whole: Mapping[str, Any]) -> bool:
    normalizer = json.dumps(whole.get("normalizer"))
    return bool(about.get("do_lower_case")) or '"lowercase": true' in normalizer or '"Lowercase"' in normalizer


def _settings(path: Path) -> dict[str, Any]:
    return storage.read_json(path, AGAIN) if path.is_file() else {}


def _parsed(content: bytes | None) -> dict[str, Any]:
    """What a JSON file holds; nothing where it is damaged, which is said when the tokenizer is made."""
    try:
        found = json.loads(content or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _json(content: Any) -> bytes:
    return (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode()
