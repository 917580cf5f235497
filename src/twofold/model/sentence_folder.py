"""A folder of sentence-transformers: its modules, and what a ranker must do to give the same vectors and scores."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Protocol

from twofold import storage
from twofold.encoders import EncoderConfig
from twofold.errors import TwofoldError
from twofold.layers.pooling import PoolingKind
from twofold.model.sentence_modules import POOLINGS, Misfit, Module, modes_of, module_misfits, network_misfits
from twofold.outputs.ranking import LEAST

MODULES, LENGTH, PROMPTS = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"
AGAIN = "copy the folder again"
"""What helps where a file is missing or damaged."""
OLDER_LENGTHS = ("roberta", "distilbert", "albert", "camembert", "xlm-roberta", "xlnet")
READ_BY_ENCODER = ("t5", "mt5", "umt5", "longt5", "switch_transformers")
"""Architectures of two halves of which sentence-transformers takes the encoder alone."""
QUERY, DOCUMENT = ("query",), ("document", "passage", "corpus")
"""The prompts that `encode_query` and `encode_document` look for, before the default one."""
ENDLESS = 1_000_000
"""From here on a limit means none: tokenizers write a number of thirty digits."""


class Find(Protocol):
    """Where a file of the folder is, if it is there; one that is rarely there is looked for without a word."""

    def __call__(self, file: str, rare: bool = False) -> Path | None: ...


def in_folder(folder: Path) -> Find:
    """Finds the files of a folder on the disk."""

    def find(file: str, rare: bool = False) -> Path | None:
        return folder / file if (folder / file).is_file() else None

    return find


@dataclass(frozen=True)
class SentenceFolder:
    """What the files of a folder say."""

    name: str
    modules: tuple[Module, ...]
    """The network first."""
    about: Mapping[str, Any]
    """Prompts and the similarity."""
    tokenizer: Mapping[str, Any]
    """tokenizer_config.json"""
    config: Mapping[str, Any]
    """The network's own settings."""

    @property
    def network(self) -> Module:
        return self.modules[0]

    @property
    def pooling(self) -> Module | None:
        return next((module for module in self.modules if module.kind == "Pooling"), None)

    @property
    def pooling_kind(self) -> PoolingKind:
        assert self.pooling is not None
        return POOLINGS[modes_of(self.pooling.about)[0]]

    @property
    def dense(self) -> list[Module]:
        return [module for module in self.modules if module.kind == "Dense"]

    @property
    def normalizes(self) -> bool:
        return any(module.kind == "Normalize" for module in self.modules)

    @property
    def similarity(self) -> Literal["dot", "cosine"]:
        return "dot" if self.about.get("similarity_fn_name") == "dot" else "cosine"

    @property
    def lowercase(self) -> bool:
        return bool(self.network.about.get("do_lower_case"))

    def prompt(self, names: tuple[str, ...]) -> str:
        """What is put before a text: the first of these prompts that there is, be it empty, or the default one."""
        given = self.about.get("prompts") or {}
        if not isinstance(given, dict):
            return ""
        name = next((name for name in names if name in given), self.about.get("default_prompt_name"))
        return given.get(str(name)) or ""

    @property
    def limit(self) -> int:
        """The most tokens that it reads, wherever that was said."""
        said = [self.network.about.get("max_seq_length")]
        if not said[0]:
            said = [self.tokenizer.get("model_max_length"), self.config.get("max_position_embeddings")]
        limits = [int(limit) for limit in said if isinstance(limit, int | float) and 0 < limit < ENDLESS]
        return min(limits, default=ENDLESS)

    def misfits(self) -> list[Misfit]:
        """All that would change the vectors or scores without a word."""
        prompted = bool(self.prompt(QUERY) or self.prompt(DOCUMENT))
        settings = {**network_misfits(self.network.about), **self._settings()}
        found = [Misfit("setting", text, setting=key) for key, text in settings.items()]
        for module in self.modules[1:]:
            found += [Misfit("module", text, module) for text in module_misfits(module, prompted)]
        if self.pooling is None:
            found.append(Misfit("module", "no Pooling, so that nothing tells how states are reduced"))
        return found + self._order()

    def check_widths(self, width: int) -> None:
        """Refuse modules that do not take what the one before them gives; `width` is that of the network's states."""
        for module in self.modules[1:]:
            asked = width
            if module.kind == "Pooling":
                asked = module.about.get("embedding_dimension", module.about.get("word_embedding_dimension", width))
            if module.kind == "Dense":
                asked = module.about["in_features"]
            if asked != width:
                raise TwofoldError(
                    f"{self.name}: {module} reads vectors of width {asked}, and is given {width}; {AGAIN}"
                )
            width = module.dense().width if module.kind == "Dense" else width

    def _settings(self) -> dict[str, str]:
        """What does not fit of the settings of the whole, by key."""
        about, prompts, default = self.about, self.about.get("prompts") or {}, self.about.get("default_prompt_name")
        misfits = {}
        if about.get("model_type") not in (None, "SentenceTransformer"):
            misfits["model_type"] = f"model_type {about['model_type']}, which makes no single vector of a text"
        if about.get("similarity_fn_name") in ("euclidean", "manhattan"):
            misfits["similarity_fn_name"] = f"the similarity {about['similarity_fn_name']}; known are cosine and dot"
        if about.get("truncate_dim") is not None:
            misfits["truncate_dim"] = f"truncate_dim {about['truncate_dim']}, which cuts vectors"
        if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
            misfits["prompts"] = "prompts that are not texts by name"
        elif default is not None and str(default) not in prompts:
            misfits["default_prompt_name"] = f"the default prompt '{default}', which is not among its prompts"
        if self.config.get("is_encoder_decoder") and self.config.get("model_type") not in READ_BY_ENCODER:
            misfits["config"] = f"the architecture {self.config.get('model_type')}, whose decoder's states it reads"
        if self.limit < LEAST:
            misfits["max_seq_length"] = f"max_seq_length {self.limit}, too few tokens for a text"
        if self.tokenizer.get("truncation_side", "right") != "right":
            misfits["truncation_side"] = "truncation_side left, which keeps the end of a long text"
        return misfits

    def _order(self) -> list[Misfit]:
        """The pooling follows the network, dense layers follow the pooling, and lengths are changed last."""
        ranks = {"Pooling": 1, "Dense": 2, "Normalize": 3}
        places = [(ranks[module.kind], module) for module in self.modules[1:] if module.kind in ranks]
        return [
            Misfit("module", f"{module}, which stands before {later}", module)
            for (rank, module), (next_rank, later) in pairwise(places)
            if next_rank < rank or rank == next_rank == 1
        ]


def read_sentence_folder(name: str, find: Find) -> SentenceFolder | None:
    """What the files of a folder or of a hub id say; nothing where it is not one of sentence-transformers."""
    listed = find(MODULES)
    if listed is None:
        return None
    modules = _modules(listed, find)
    if not modules[0].is_network or sum(module.is_network for module in modules) > 1:
        kinds = ", ".join(module.kind if module.is_theirs else module.type for module in modules)
        raise TwofoldError(f"{listed}: must begin with its one Transformer, and has {kinds}")
    inner = f"{modules[0].path}/" if modules[0].path else ""
    files = (PROMPTS, f"{inner}tokenizer_config.json", f"{inner}config.json")
    about, tokenizer, config = (_settings(find(file)) for file in files)
    return SentenceFolder(name, tuple(modules), about, tokenizer, config)


def say_left_out(encoder: EncoderConfig, prefixes: tuple[str, ...] = ()) -> None:
    """Warn of what a recipe does not take from a folder of sentence-transformers: its dense layers and its prompts.

    prefixes: what the recipe itself puts before contexts and candidates, where it ranks
    """
    folder = encoder.folder()
    try:
        sentences = read_sentence_folder(str(folder), in_folder(folder)) if folder else None
    except TwofoldError as error:  # its network may be whole
        warnings.warn(str(error), stacklevel=3)
        return
    if sentences is None:
        return
    asked = zip((sentences.prompt(QUERY), sentences.prompt(DOCUMENT)), prefixes or ("", ""), strict=True)
    prompts = dict.fromkeys(prompt for prompt, prefix in asked if prompt != prefix and prompt)
    left_out = [*map(str, sentences.dense), *(f"the prompt {prompt!r}" for prompt in prompts)]
    if left_out:
        remedy = "; input.prompt and output.candidate.prompt set prompts" if prefixes and prompts else ""
        warnings.warn(
            f"{folder}: a recipe takes its network alone, without {', '.join(left_out)}{remedy}", stacklevel=3
        )


def _modules(path: Path, find: Find) -> list[Module]:
    try:
        content = storage.parse_json(path.read_bytes())
        lines = [(str(line["path"]), str(line["type"])) for line in content]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise TwofoldError(f"{path}: not a list of modules ({error}); {AGAIN}") from None
    for inner, _ in lines:
        if PurePosixPath(inner).is_absolute() or ".." in PurePosixPath(inner).parts:
            raise TwofoldError(f"{path}: names a folder outside of its own ({inner}); {AGAIN}")
    if not lines:
        raise TwofoldError(f"{path}: lists no module; {AGAIN}")
    modules = [Module(inner, kind, {}) for inner, kind in lines]
    return [Module(module.path, module.type, _about(module, find)) for module in modules]


def _about(module: Module, find: Find) -> dict[str, Any]:
    if not module.is_theirs:
        return {}
    inner = f"{module.path}/" if module.path else ""
    if module.is_network:  # older versions name the file after the network: sentence_roberta_config.json
        older = [f"{inner}sentence_{kind}_config.json" for kind in OLDER_LENGTHS]
        return _settings(
            find(inner + LENGTH) or next((path for name in older if (path := find(name, rare=True))), None)
        )
    return _settings(find(f"{inner}config.json", rare=module.kind in ("Normalize", "Dropout")))


def _settings(path: Path | None) -> dict[str, Any]:
    return storage.read_json(path, AGAIN) if path else {}
