"""Google's BERT and OpenAI's GPT-2 as they were published: settings, a vocabulary, and a TensorFlow checkpoint."""

from __future__ import annotations

import importlib
import json
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from twofold import storage
from twofold.convert.contents import AGAIN, Contents, Item, Settings, Shape, read_text, short, whole_numbers
from twofold.data.backbones import clearly
from twofold.errors import TwofoldError

BERT_CONFIG, BERT_VOCABULARY = "bert_config.json", "vocab.txt"
BERT_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
BERT_SIZES = ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"]
BERT_SIZES += ["max_position_embeddings", "type_vocab_size"]
BERT_SETTINGS = [*BERT_SIZES, "hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range"]
WITHOUT_EFFECT = ["directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers"]
WITHOUT_EFFECT += ["pooler_size_per_head", "pooler_type", "do_lower_case"]
"""Settings that Google's own model does not read; the last is the tokenizer's."""
BERT_HEADS = re.compile(r"cls/(predictions|seq_relationship|squad)/.+|output_(weights|bias)")
"""Heads of BERT: masked words, next sentence, questions and labels."""
BERT_TABLES = ("word_embeddings", "position_embeddings", "token_type_embeddings")
BERT_DENSE = ["attention/self/query", "attention/self/key", "attention/self/value", "attention/output/dense"]
BERT_DENSE += ["intermediate/dense", "output/dense"]
BERT_NORMS = ("attention/output/LayerNorm", "output/LayerNorm")

GPT2_CONFIG, GPT2_VOCABULARY, GPT2_MERGES = "hparams.json", "encoder.json", "vocab.bpe"
GPT2_END = "<|endoftext|>"
GPT2_SETTINGS = {"n_vocab": "vocab_size", "n_ctx": "n_positions", "n_embd": "n_embd", "n_layer": "n_layer"}
GPT2_SETTINGS |= {"n_head": "n_head"}
"""OpenAI's names of settings, with those of transformers."""
GPT2_HEADS = re.compile(r"(?!)")
"""Heads of GPT-2: none, because its output layer is tied to the token embeddings."""
GPT2_DENSE = ("attn/c_attn", "attn/c_proj", "mlp/c_fc", "mlp/c_proj")

REMEDY = "pip install 'twofold[tensorflow]'"
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
"""Environment variables that keep TensorFlow from printing how it was compiled."""
TRAINED_WITH = re.compile(r"global_step|beta[12]_power|.+/(adam_[mv]|Adam(_1)?)")
"""Names of training state: the step, and the optimizer's moments of each tensor."""
Turn = Literal["same", "transposed", "unpacked"]


@dataclass(frozen=True)
class Target:
    """Destination of a tensor of a checkpoint."""

    name: str
    turn: Turn = "same"
    """Change of shape: `transposed` for dense layers of TensorFlow, `unpacked` for those of GPT-2 (convolutions of
    width one)."""

    def turned(self, shape: Shape) -> Shape:
        """Shape that a checkpoint's tensor gets in the model."""
        if self.turn == "transposed":
            return shape[::-1]
        return shape[1:] if self.turn == "unpacked" and shape[:1] == (1,) else shape

    def turned_back(self, shape: Shape) -> Shape:
        """Shape that a checkpoint's tensor should have."""
        if self.turn == "transposed":
            return shape[::-1]
        return (1, *shape) if self.turn == "unpacked" else shape

    def value(self, tensor: NDArray[Any]) -> NDArray[np.float32]:
        """Checkpoint's tensor in the form of the model."""
        turned = tensor.T if self.turn == "transposed" else tensor.reshape(self.turned(tensor.shape))
        return np.ascontiguousarray(turned, dtype=np.float32)


@dataclass(frozen=True)
class Plan:
    """Plan for each tensor of a checkpoint."""

    used: Mapping[str, Target]
    not_read: tuple[Item, ...]
    misfits: tuple[Item, ...]


def read_bert(source: Path, settings: Settings) -> Contents:
    """Reads Google's BERT."""
    given = whole_numbers(source / BERT_CONFIG, BERT_SIZES)
    vocabulary = _bert_vocabulary(source / BERT_VOCABULARY)
    config = {"model_type": "bert", "architectures": ["BertModel"], "pad_token_id": vocabulary.index("[PAD]")}
    config |= {name: given[name] for name in BERT_SETTINGS if name in given}
    about = {"tokenizer_class": "BertTokenizer", "do_lower_case": _lowers(source, given, settings)}
    about["model_max_length"] = given["max_position_embeddings"]
    tokenizer = {
        BERT_VOCABULARY: "".join(f"{token}\n" for token in vocabulary).encode(),
        "tokenizer_config.json": json.dumps(about).encode(),
    }
    misfits = _unknown_settings(BERT_CONFIG, given.keys() - {*BERT_SETTINGS, *WITHOUT_EFFECT})
    contents = Contents("tensorflow-bert", config, tokenizer, misfits=misfits, exact=True)
    return _with_tensors(contents, source, bert_targets(given["num_hidden_layers"]), BERT_HEADS)


def read_gpt2(source: Path, settings: Settings) -> Contents:
    """Reads OpenAI's GPT-2."""
    given = whole_numbers(source / GPT2_CONFIG, GPT2_SETTINGS)
    vocabulary = storage.read_json(source / GPT2_VOCABULARY, AGAIN)
    if GPT2_END not in vocabulary:
        raise TwofoldError(f"{source / GPT2_VOCABULARY}: lacks {GPT2_END}; {AGAIN}")
    merges = read_text(source / GPT2_MERGES)
    config = {"model_type": "gpt2", "architectures": ["GPT2Model"], "activation_function": "gelu_new"}
    config |= {ours: given[theirs] for theirs, ours in GPT2_SETTINGS.items()}
    config |= {"bos_token_id": vocabulary[GPT2_END], "eos_token_id": vocabulary[GPT2_END]}
    about = {"tokenizer_class": "GPT2Tokenizer", "model_max_length": given["n_ctx"]}
    tokenizer = {
        "vocab.json": json.dumps(vocabulary, ensure_ascii=False).encode(),
        "merges.txt": merges.encode(),
        "tokenizer_config.json": json.dumps(about).encode(),
    }
    misfits = _unknown_settings(GPT2_CONFIG, given.keys() - GPT2_SETTINGS.keys())
    contents = Contents("tensorflow-gpt2", config, tokenizer, misfits=misfits, exact=True)
    return _with_tensors(contents, source, gpt2_targets(given["n_layer"]), GPT2_HEADS)


def bert_targets(layers: int) -> dict[str, Target]:
    """Names of the checkpoint's tensors with those of transformers' BertModel."""
    targets = {f"bert/embeddings/{name}": Target(f"embeddings.{name}.weight") for name in BERT_TABLES}
    targets |= _modules("bert/", "", ["embeddings/LayerNorm"], "gamma", "beta")
    for number in range(layers):
        layer = f"bert/encoder/layer_{number}/", f"encoder.layer.{number}."
        targets |= _modules(*layer, BERT_DENSE, "kernel", "bias", "transposed")
        targets |= _modules(*layer, BERT_NORMS, "gamma", "beta")
    return targets | _modules("bert/", "", ["pooler/dense"], "kernel", "bias", "transposed")


def gpt2_targets(layers: int) -> dict[str, Target]:
    """Names of the checkpoint's tensors with those of transformers' GPT2Model."""
    targets = {f"model/{name}": Target(f"{name}.weight") for name in ("wte", "wpe")}
    for number in range(layers):
        layer = f"model/h{number}/", f"h.{number}."
        targets |= _modules(*layer, ["ln_1", "ln_2"], "g", "b") | _modules(*layer, GPT2_DENSE, "w", "b", "unpacked")
    return targets | _modules("model/", "", ["ln_f"], "g", "b")


def _modules(
    theirs: str, ours: str, modules: Iterable[str], weight: str, bias: str, turn: Turn = "same"
) -> dict[str, Target]:
    """Names of the weights and biases of some modules; `theirs` and `ours` are the prefixes in checkpoint and model."""
    targets = {}
    for module in modules:
        name = ours + module.replace("/", ".")
        targets[f"{theirs}{module}/{weight}"] = Target(f"{name}.weight", turn)
        targets[f"{theirs}{module}/{bias}"] = Target(f"{name}.bias")
    return targets


def _unknown_settings(file: str, names: Iterable[str]) -> tuple[Item, ...]:
    """Unknown settings, which might change the model's output."""
    return tuple(Item("unknown setting", f"{name} in {file}") for name in sorted(names))


def _bert_vocabulary(path: Path) -> list[str]:
    """Reads tokens, one on each line; the line number, from 0, is the token id."""
    tokens = [line.removesuffix("\r") for line in read_text(path).removesuffix("\n").split("\n")]
    lost = [token for token in BERT_SPECIAL if token not in tokens]
    if lost:
        raise TwofoldError(f"{path}: lacks {', '.join(lost)}; {AGAIN}")
    return tokens


def _lowers(source: Path, given: dict[str, Any], settings: Settings) -> bool:
    """Returns True if text is lowercased, as the user, the files or the folder's name say."""
    if settings.cased is not None:
        return not settings.cased
    beside = source / "tokenizer_config.json"
    for about in (given, storage.read_json(beside, AGAIN) if beside.is_file() else {}):
        if isinstance(about.get("do_lower_case"), bool):
            return bool(about["do_lower_case"])
    name = source.resolve().name.lower()
    if "cased" not in name:
        remedy = "say --cased or --uncased"
        raise TwofoldError(f"{source}: nothing tells whether its tokenizer keeps capitals; {remedy}")
    return "uncased" in name


def _with_tensors(contents: Contents, folder: Path, targets: Mapping[str, Target], heads: re.Pattern[str]) -> Contents:
    """Adds the tensors of a checkpoint under transformers' names, and records the tensors that are not read."""
    prefix = find_checkpoint(folder)
    model = model_shapes(folder, contents.config)
    tensorflow = _tensorflow(prefix)
    try:
        reader = tensorflow.train.load_checkpoint(str(prefix))
        shapes = {str(name): tuple(map(int, shape)) for name, shape in reader.get_variable_to_shape_map().items()}
        plan = match(shapes, targets, model, heads)
        values = {target.name: target.value(reader.get_tensor(name)) for name, target in plan.used.items()}
    except (tensorflow.errors.OpError, ValueError, RuntimeError, LookupError) as error:
        raise TwofoldError(f"{prefix}: could not be read ({short(error)}); {AGAIN}") from error
    tensors = {name: torch.from_numpy(value) for name, value in values.items()}
    return replace(contents, tensors=tensors, not_read=plan.not_read, misfits=contents.misfits + plan.misfits)


def find_checkpoint(folder: Path) -> Path:
    """Path prefix of a checkpoint's files."""
    prefixes = sorted(path.with_suffix("") for path in folder.glob("*.index"))
    if not prefixes:
        raise TwofoldError(f"{folder}: holds no checkpoint (a file that ends in .index); {AGAIN}")
    if len(prefixes) == 1:
        return prefixes[0]
    newest = folder / "checkpoint"
    said = newest.read_text(encoding="utf-8", errors="replace") if newest.is_file() else ""
    named = re.search(r'^model_checkpoint_path: "(?:.*/)?([^"/]+)"', said, re.MULTILINE)
    for prefix in prefixes:
        if named and prefix.name == named[1]:
            return prefix
    several = ", ".join(path.name for path in prefixes)
    raise TwofoldError(f"{folder}: holds several checkpoints ({several}); leave only the one that is meant")


def model_shapes(source: Path, config: Mapping[str, Any]) -> dict[str, Shape]:
    """Shapes of all tensors of transformers' model with these settings."""
    from transformers import AutoConfig, AutoModel

    given = dict(config)
    with clearly(str(source), "its settings must be those of the checkpoint"), torch.device("meta"):
        settings = AutoConfig.for_model(given.pop("model_type"), **given)
        model: Any = AutoModel.from_config(settings)  # type: ignore[no-untyped-call]
    return {name: tuple(value.shape) for name, value in model.state_dict().items()}


def match(
    shapes: Mapping[str, Shape], targets: Mapping[str, Target], model: Mapping[str, Shape], heads: re.Pattern[str]
) -> Plan:
    """Compares a checkpoint's names and shapes with the known ones and with those of the model.

    targets: names of the checkpoint's tensors that the model has
    heads: names of the tensors of heads, which no encoder has
    """
    used: dict[str, Target] = {}
    not_read, misfits = [], []
    for name, shape in sorted(shapes.items()):
        target = targets.get(name)
        if target is not None and target.name in model:
            if target.turned(shape) == model[target.name]:
                used[name] = target
            else:
                misfits.append(Item("another shape", name, shape, target.turned_back(model[target.name])))
        elif TRAINED_WITH.fullmatch(name):
            not_read.append(Item("training", name, shape))
        elif heads.fullmatch(name):
            not_read.append(Item("head", name, shape))
        else:
            misfits.append(Item("unknown", name, shape))
    sources = {target.name: name for name, target in targets.items()}
    for ours, shape in model.items():
        name = sources.get(ours, ours)
        if name not in shapes:
            misfits.append(Item("missing", name, targets[name].turned_back(shape) if name in targets else shape))
    return Plan(used, tuple(not_read), tuple(misfits))


def _tensorflow(prefix: Path) -> Any:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module("tensorflow")
    except ImportError as error:
        reason = "" if isinstance(error, ModuleNotFoundError) and error.name == "tensorflow" else f" ({short(error)})"
        raise TwofoldError(f"{prefix}: only TensorFlow reads it, which is not installed{reason}; {REMEDY}") from None
