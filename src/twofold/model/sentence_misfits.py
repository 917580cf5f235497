"""Differences from sentence-transformers that would silently change vectors or scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from twofold.errors import TwofoldError
from twofold.layers.pooling import ACTIVATIONS, PoolingKind
from twofold.model.sentences import AGAIN, DOCUMENT, QUERY, Module, SentenceFolder, modes_of
from twofold.outputs.ranking import LEAST

POOLINGS: dict[str, PoolingKind] = {"cls": "first", "mean": "mean", "max": "max", "lasttoken": "last"}
POOLINGS |= {"mean_sqrt_len_tokens": "mean_sqrt", "weightedmean": "weighted_mean"}
VECTOR = "sentence_embedding"
"""Default name of the value that modules after the pooling read and write."""
STATES = {"method": "forward", "method_output_name": "last_hidden_state"}
"""Settings by which the states of the last layer are requested from a network."""
HARMLESS_ARGUMENTS = {"attn_implementation", "dtype", "torch_dtype", "trust_remote_code", "use_safetensors"}
READ_BY_ENCODER = ("t5", "mt5", "umt5", "longt5", "switch_transformers")
"""Encoder-decoder architectures, whose encoder alone sentence-transformers uses."""


@dataclass(frozen=True)
class Misfit:
    """One difference from sentence-transformers."""

    why: Literal["module", "setting"]
    what: str
    module: Module | None = None
    """Module that could be left out, or None."""
    setting: str | None = None
    """Key of the setting that could be left out, or None."""

    def __str__(self) -> str:
        return f"{self.why}: {self.what}"


def misfits_of(folder: SentenceFolder) -> list[Misfit]:
    """Lists all differences that would silently change vectors or scores."""
    prompted = bool(folder.prompt(QUERY) or folder.prompt(DOCUMENT))
    settings = {**_network(folder.network.about), **_folder(folder)}
    misfits = [Misfit("setting", text, setting=key) for key, text in settings.items()]
    for module in folder.modules[1:]:
        if text := _module(module, prompted):
            misfits.append(Misfit("module", text, module))
    if folder.pooling is None:
        misfits.append(Misfit("module", "no Pooling, so that nothing tells how states are reduced"))
    # The pooling follows the network, dense layers follow the pooling, and lengths are changed last.
    ranks = {"Pooling": 1, "Dense": 2, "Normalize": 3}
    for module, later in pairwise(module for module in folder.modules[1:] if module.kind in ranks):
        if ranks[later.kind] < ranks[module.kind] or module.kind == later.kind == "Pooling":
            misfits.append(Misfit("module", f"{module}, which stands before {later}", module))
    return misfits


def check_widths(name: str, folder: SentenceFolder, width: int) -> None:
    """Refuses modules whose input width is not the previous one's output; `width` is that of the network's states."""
    for module in folder.modules[1:]:
        asked, about = width, module.about
        if module.kind == "Pooling":
            asked = about.get("embedding_dimension", about.get("word_embedding_dimension", width))
        if module.kind == "Dense":
            asked = about["in_features"]
        if asked != width:
            raise TwofoldError(f"{name}: {module} reads vectors of width {asked}, and is given {width}; {AGAIN}")
        width = module.dense().width if module.kind == "Dense" else width


def _folder(folder: SentenceFolder) -> dict[str, str]:
    """Unsupported settings of the whole folder, by key."""
    about, config, misfits = folder.about, folder.config, {}
    prompts, default = about.get("prompts") or {}, about.get("default_prompt_name")
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
    if config.get("is_encoder_decoder") and config.get("model_type") not in READ_BY_ENCODER:
        misfits["config"] = f"the architecture {config.get('model_type')}, whose decoder's states it reads"
    if folder.limit < LEAST:
        misfits["max_seq_length"] = f"max_seq_length {folder.limit}, too few tokens for a text"
    if folder.tokenizer.get("truncation_side", "right") != "right":
        misfits["truncation_side"] = "truncation_side left, which keeps the end of a long text"
    return misfits


def _network(about: Mapping[str, Any]) -> dict[str, str]:
    """Unsupported settings of the network's module, by key."""
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
    arguments = (
        f"{what}_{end}" for what in ("model", "tokenizer", "processor", "config") for end in ("args", "kwargs")
    )
    for name in ("processing_kwargs", "query_length", "document_length", "query_expansion", *arguments):
        given = about.get(name)
        if given and not (isinstance(given, dict) and given.keys() <= HARMLESS_ARGUMENTS):
            misfits[name] = name
    return misfits


def _module(module: Module, prompted: bool) -> str | None:
    """Unsupported setting of a module after the network; `prompted` is true if texts have prompts."""
    if not module.is_theirs:
        return f"{module.type} in {module.path}, whose code is not run"
    match module.kind:
        case "Pooling":
            return _pooling(module, prompted)
        case "Dense":
            return _dense(module) or _elsewhere(module)
        case "Normalize":
            return _elsewhere(module)
        case "Dropout":
            return None
    return f"{module}"


def _pooling(module: Module, prompted: bool) -> str | None:
    modes = modes_of(module.about)
    if len(modes) != 1 or modes[0] not in POOLINGS:
        return f"{module} by {' and '.join(modes)}; known is one of {', '.join(POOLINGS)}"
    if not module.about:
        return f"{module} without its config.json"
    if not module.about.get("include_prompt", True) and prompted:
        return f"{module} with include_prompt: false, which leaves a prompt's states out"
    return None


def _dense(module: Module) -> str | None:
    about, known = module.about, [kind.__name__ for kind in ACTIVATIONS.values()]
    sizes = [about.get("in_features"), about.get("out_features")]
    if not all(type(size) is int and 0 < size < 1 << 31 for size in sizes):
        return f"{module} without in_features and out_features, whole numbers in its config.json"
    if not module.activation.startswith("torch.nn.") or module.activation.rpartition(".")[2] not in known:
        return f"{module} with the activation {module.activation}; known are {', '.join(known)} of torch.nn"
    if type(about.get("bias", True)) is not bool:
        return f"{module} with bias {about['bias']!r}"
    return f"{module} with use_residual" if about.get("use_residual") else None


def _elsewhere(module: Module) -> str | None:
    """Describes a module that reads or writes something other than the text's vector."""
    names = {module.about.get(f"module_{end}_name") or VECTOR for end in ("input", "output")}
    return f"{module} of {' and '.join(sorted(names - {VECTOR}))}" if names != {VECTOR} else None
