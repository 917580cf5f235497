"""Folders of sentence-transformers: modules, prompts and length limits."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from twofold import storage
from twofold.data.backbones import clearly
from twofold.encoders import EncoderConfig
from twofold.errors import TwofoldError
from twofold.layers.pooling import ACTIVATIONS, Dense

MODULES, LENGTH, PROMPTS = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"
AGAIN = "copy the folder again"
"""Remedy for missing and damaged files."""
NETWORKS = ("Transformer", "BERT", "RoBERTa", "DistilBERT", "ALBERT", "CamemBERT", "XLMRoBERTa", "XLNet")
"""Names of the module with the network; all but the first are from folders of 2019."""
OLDER_LENGTHS = ("roberta", "distilbert", "albert", "camembert", "xlm-roberta", "xlnet")
MODES = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "lasttoken": "lasttoken"}
MODES |= {"mean_sqrt_len_tokens": "mean_sqrt_len_tokens", "weightedmean": "weightedmean_tokens"}
"""Names of poolings, and the suffixes of their flags in older versions."""
QUERY, DOCUMENT = ("query",), ("document", "passage", "corpus")
"""Prompts that `encode_query` and `encode_document` look for before the default one."""
ENDLESS = 1_000_000
"""Smallest limit that means no limit; tokenizers write a number of thirty digits."""


@dataclass(frozen=True)
class Module:
    """One entry of modules.json, and the settings of its module."""

    path: str
    type: str
    about: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return self.type.rpartition(".")[2]

    @property
    def is_theirs(self) -> bool:
        """True for modules of sentence-transformers itself; the code of others is never run."""
        return self.type.startswith("sentence_transformers.")

    @property
    def is_network(self) -> bool:
        return self.is_theirs and self.kind in NETWORKS

    @property
    def activation(self) -> str:
        """Full name of the torch activation that follows a dense layer."""
        return str(self.about.get("activation_function", "torch.nn.Tanh"))

    def file(self, name: str) -> str:
        """Path of one of its files."""
        return f"{self.path}/{name}" if self.path else name

    def __str__(self) -> str:
        return f"{self.kind} in {self.path}" if self.path else self.kind

    def dense(self) -> Dense:
        """Settings of a dense layer that fits."""
        name = self.activation.rpartition(".")[2]
        activation = next(known for known, kind in ACTIVATIONS.items() if kind.__name__ == name)
        return Dense(self.about["out_features"], activation, self.about.get("bias", True))


@dataclass(frozen=True)
class SentenceFolder:
    """Content of a folder's files."""

    modules: tuple[Module, ...]
    """Modules, the network first."""
    about: Mapping[str, Any]
    """Settings of prompts and similarity."""
    tokenizer: Mapping[str, Any]
    """Content of tokenizer_config.json."""
    config: Mapping[str, Any]
    """Settings of the network itself."""

    @property
    def network(self) -> Module:
        return self.modules[0]

    @property
    def pooling(self) -> Module | None:
        return next(iter(self.of_kind("Pooling")), None)

    def of_kind(self, kind: str) -> list[Module]:
        """Modules of a kind: Pooling, Dense, Normalize."""
        return [module for module in self.modules if module.kind == kind]

    def prompt(self, names: tuple[str, ...]) -> str:
        """Prompt before a text: the first of these that exists, even if empty, or the default one."""
        given = self.about.get("prompts") or {}
        if not isinstance(given, dict):
            return ""
        name = next((name for name in names if name in given), self.about.get("default_prompt_name"))
        return given.get(str(name)) or ""

    @property
    def limit(self) -> int:
        """Maximum number of tokens, from the first file that states one."""
        said = [self.network.about.get("max_seq_length")]
        if not said[0]:
            said = [self.tokenizer.get("model_max_length"), self.config.get("max_position_embeddings")]
        limits = [int(limit) for limit in said if isinstance(limit, int | float) and 0 < limit < ENDLESS]
        return min(limits, default=ENDLESS)


def modes_of(about: Mapping[str, Any]) -> list[str]:
    """Names of the pooling modes, in today's or older form."""
    given = about.get("pooling_mode")
    if given is None:
        return [mode for mode, flag in MODES.items() if about.get(f"pooling_mode_{flag}")] or ["mean"]
    return [str(mode) for mode in given] if isinstance(given, list) else [str(given)]


def read_sentence_folder(folder: str | Path) -> SentenceFolder | None:
    """Reads a folder or hub id; None if it is not one of sentence-transformers."""
    listed = file_of(folder, MODULES)
    if listed is None:
        return None
    modules = [replace(module, about=_about(module, folder)) for module in _modules(listed)]
    network = modules[0]
    if not network.is_network or sum(module.is_network for module in modules) > 1:
        kinds = ", ".join(module.kind if module.is_theirs else module.type for module in modules)
        raise TwofoldError(f"{listed}: must begin with its one Transformer, and has {kinds}")
    files = (PROMPTS, network.file("tokenizer_config.json"), network.file("config.json"))
    return SentenceFolder(tuple(modules), *(_settings(file_of(folder, file)) for file in files))


def say_left_out(encoder: EncoderConfig, prefixes: tuple[str, ...] = ()) -> None:
    """Warns about dense layers and prompts of a sentence-transformers folder that a recipe does not take.

    prefixes: prompts that the recipe itself puts before contexts and candidates, if it ranks
    """
    folder = encoder.folder()
    try:
        sentences = read_sentence_folder(folder) if folder else None
    except TwofoldError as error:  # its network may be whole
        warnings.warn(str(error), stacklevel=3)
        return
    if sentences is None:
        return
    asked = zip((sentences.prompt(QUERY), sentences.prompt(DOCUMENT)), prefixes or ("", ""), strict=True)
    prompts = dict.fromkeys(prompt for prompt, prefix in asked if prompt != prefix and prompt)
    left_out = [*map(str, sentences.of_kind("Dense")), *(f"the prompt {prompt!r}" for prompt in prompts)]
    if left_out:
        remedy = "; input.prompt and output.candidate.prompt set prompts" if prefixes and prompts else ""
        said = f"{folder}: a recipe takes its network alone, without {', '.join(left_out)}{remedy}"
        warnings.warn(said, stacklevel=3)


def file_of(folder: str | Path, file: str, rare: bool = False) -> Path | None:
    """Returns a file of a folder or hub id, or None; `rare` files are looked for without a warning."""
    if Path(folder).is_dir():
        path = Path(folder, file)
        return path if path.is_file() else None
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    with clearly(str(folder)):
        try:
            return Path(hf_hub_download(str(folder), file))
        except LocalEntryNotFoundError:
            if not rare:
                said = f"{folder}: {file} is not in the cache, and the hub cannot be asked for it"
                warnings.warn(said, stacklevel=2)
        except EntryNotFoundError:
            pass
    return None


def _modules(path: Path) -> list[Module]:
    """Reads the modules that a file lists, without their settings."""
    try:
        content = storage.parse_json(path.read_bytes())
        modules = [Module(str(line["path"]), str(line["type"]), {}) for line in content]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise TwofoldError(f"{path}: not a list of modules ({error}); {AGAIN}") from None
    for module in modules:
        if PurePosixPath(module.path).is_absolute() or ".." in PurePosixPath(module.path).parts:
            raise TwofoldError(f"{path}: names a folder outside of its own ({module.path}); {AGAIN}")
    if not modules:
        raise TwofoldError(f"{path}: lists no module; {AGAIN}")
    return modules


def _about(module: Module, folder: str | Path) -> dict[str, Any]:
    """Reads the settings of a module."""
    if not module.is_theirs:
        return {}
    if not module.is_network:
        rare = module.kind in ("Normalize", "Dropout")
        return _settings(file_of(folder, module.file("config.json"), rare))
    path = file_of(folder, module.file(LENGTH))
    # Older versions name the file after the network: sentence_roberta_config.json.
    older = (file_of(folder, module.file(f"sentence_{kind}_config.json"), rare=True) for kind in OLDER_LENGTHS)
    return _settings(path or next(filter(None, older), None))


def _settings(path: Path | None) -> dict[str, Any]:
    return storage.read_json(path, AGAIN) if path else {}
