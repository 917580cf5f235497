"""The modules of sentence-transformers that rankers here know, and what of their settings they would do otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from twofold.layers.pooling import PoolingKind
from twofold.layers.ranking import ACTIVATIONS, Dense

NETWORKS = ("Transformer", "BERT", "RoBERTa", "DistilBERT", "ALBERT", "CamemBERT", "XLMRoBERTa", "XLNet")
"""What the module with the network is called; all but the first in folders of 2019."""
MODES = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "lasttoken": "lasttoken"}
MODES |= {"mean_sqrt_len_tokens": "mean_sqrt_len_tokens", "weightedmean": "weightedmean_tokens"}
"""Poolings by their names of today, and what the flags of older versions end in."""
POOLINGS: dict[str, PoolingKind] = {"cls": "first", "mean": "mean", "max": "max", "lasttoken": "last"}
POOLINGS |= {"mean_sqrt_len_tokens": "mean_sqrt", "weightedmean": "weighted_mean"}
TORCH_NAMES = {kind.__name__: name for name, kind in ACTIVATIONS.items()}
VECTOR = "sentence_embedding"
"""What modules behind the pooling read and write unless they say otherwise."""
STATES = {"method": "forward", "method_output_name": "last_hidden_state"}
"""How a network is asked for the states of its last layer."""
HARMLESS_ARGUMENTS = {"attn_implementation", "dtype", "torch_dtype", "trust_remote_code", "use_safetensors"}
ARGUMENTS = [f"{what}_{end}" for what in ("model", "tokenizer", "processor", "config") for end in ("args", "kwargs")]


@dataclass(frozen=True)
class Module:
    """One line of modules.json, and the settings of that module."""

    path: str
    type: str
    about: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return self.type.rpartition(".")[2]

    @property
    def is_theirs(self) -> bool:
        """Whether sentence-transformers itself has it; the code of others is never run."""
        return self.type.startswith("sentence_transformers.")

    @property
    def is_network(self) -> bool:
        return self.is_theirs and self.kind in NETWORKS

    def __str__(self) -> str:
        return f"{self.kind} in {self.path}" if self.path else self.kind

    def dense(self) -> Dense:
        """The settings of a dense layer that fits."""
        activation = TORCH_NAMES[str(self.about.get("activation_function", "torch.nn.Tanh")).rpartition(".")[2]]
        return Dense(self.about["out_features"], activation, self.about.get("bias", True))


@dataclass(frozen=True)
class Misfit:
    """What a ranker here would do otherwise."""

    why: Literal["module", "setting"]
    what: str
    module: Module | None = None
    """The module, where it is one that could be left out."""
    setting: str | None = None
    """The key, where it is a setting that could be left out."""

    def __str__(self) -> str:
        return f"{self.why}: {self.what}"


def modes_of(about: Mapping[str, Any]) -> list[str]:
    """How a pooling reduces states, as today's or older versions write it."""
    given = about.get("pooling_mode")
    if given is None:
        return [mode for mode, flag in MODES.items() if about.get(f"pooling_mode_{flag}")] or ["mean"]
    return [str(mode) for mode in given] if isinstance(given, list) else [str(given)]


def network_misfits(about: Mapping[str, Any]) -> dict[str, str]:
    """What does not fit of the settings of the network's module, by key."""
    misfits = {}
    task = about.get("transformer_task", "feature-extraction")
    if task != "feature-extraction":
        misfits["transformer_task"] = f"transformer_task {task}"
    modality = about.get("modality_config") or {"text": STATES}
    text = modality.get("text") if isinstance(modality, dict) else None
    if not isinstance(text, dict) or {name: text.get(name) for name in STATES} != STATES:
        misfits["modality_config"] = "modality_config, which does not read the states of texts"
    elif "message" in modality:
        misfits["modality_config"] = "modality_config with message, which puts texts into a chat template"
    if about.get("module_output_name", "token_embeddings") != "token_embeddings":
        misfits["module_output_name"] = f"module_output_name {about['module_output_name']}"
    for name in ("processing_kwargs", "query_length", "document_length", "query_expansion", *ARGUMENTS):
        given = about.get(name)
        if given and not (isinstance(given, dict) and given.keys() <= HARMLESS_ARGUMENTS):
            misfits[name] = name
    return misfits


def module_misfits(module: Module, prompted: bool) -> list[str]:
    """What of a module behind the network a ranker here would do otherwise; `prompted`: texts have prompts."""
    about = module.about
    if not module.is_theirs:
        return [f"{module.type} in {module.path}, whose code is not run"]
    match module.kind:
        case "Pooling":
            modes = modes_of(about)
            if len(modes) != 1 or modes[0] not in POOLINGS:
                return [f"{module} by {' and '.join(modes)}; known is one of {', '.join(POOLINGS)}"]
            if not about:
                return [f"{module} without its config.json"]
            if not about.get("include_prompt", True) and prompted:
                return [f"{module} with include_prompt: false, which leaves a prompt's states out"]
            return []
        case "Dense":
            return _dense_misfits(module)
        case "Dropout":
            return []
        case "Normalize":
            return _elsewhere(module)
    return [f"{module}"]


def _dense_misfits(module: Module) -> list[str]:
    about = module.about
    sizes = [about.get("in_features"), about.get("out_features")]
    if not all(type(size) is int and 0 < size < 1 << 31 for size in sizes):
        return [f"{module} without in_features and out_features, whole numbers in its config.json"]
    activation = str(about.get("activation_function", "torch.nn.Tanh"))
    if not activation.startswith("torch.nn.") or activation.rpartition(".")[2] not in TORCH_NAMES:
        return [f"{module} with the activation {activation}; known are {', '.join(TORCH_NAMES)} of torch.nn"]
    if type(about.get("bias", True)) is not bool:
        return [f"{module} with bias {about['bias']!r}"]
    return [f"{module} with use_residual"] if about.get("use_residual") else _elsewhere(module)


def _elsewhere(module: Module) -> list[str]:
    """A module that reads or writes something else than the text's vector."""
    names = {module.about.get(f"module_{end}_name") or VECTOR for end in ("input", "output")}
    return [f"{module} of {' and '.join(sorted(names - {VECTOR}))}"] if names != {VECTOR} else []
