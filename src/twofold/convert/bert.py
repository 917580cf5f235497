"""Google's BERT as it was published: bert_config.json, vocab.txt and bert_model.ckpt, a TensorFlow checkpoint."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from twofold import storage
from twofold.convert import checkpoint
from twofold.convert.found import AGAIN, Found, Settings, read_text, whole_numbers
from twofold.convert.names import Target
from twofold.errors import TwofoldError

CONFIG, VOCABULARY = "bert_config.json", "vocab.txt"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SIZES = ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"]
SIZES += ["max_position_embeddings", "type_vocab_size"]
SETTINGS = (*SIZES, "hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")
WITHOUT_EFFECT = ["directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers"]
WITHOUT_EFFECT += ["pooler_size_per_head", "pooler_type", "do_lower_case"]
"""Settings that Google's own model does not read; the last is the tokenizer's."""
HEADS = re.compile(r"cls/(predictions|seq_relationship|squad)/.+|output_(weights|bias)")
"""Masked words and the next sentence; questions and labels, where it was trained on."""
DENSE = ["attention/self/query", "attention/self/key", "attention/self/value", "attention/output/dense"]
DENSE += ["intermediate/dense", "output/dense"]
NORMS = ("attention/output/LayerNorm", "output/LayerNorm")


def read(source: Path, settings: Settings) -> Found:
    """The encoder in a folder of Google's."""
    given = whole_numbers(source / CONFIG, SIZES, AGAIN)
    vocabulary = _vocabulary(source / VOCABULARY)
    config = {"model_type": "bert", "architectures": ["BertModel"], "pad_token_id": vocabulary.index("[PAD]")}
    config |= {name: given[name] for name in SETTINGS if name in given}
    lower = _lowers(source, given, settings)
    tensors, plan = checkpoint.read(source, config, targets(given["num_hidden_layers"]), HEADS)
    about = {"tokenizer_class": "BertTokenizer", "do_lower_case": lower}
    about["model_max_length"] = given["max_position_embeddings"]
    return Found(
        format="tensorflow-bert",
        config=config,
        tensors=tensors,
        tokenizer={
            VOCABULARY: "".join(f"{token}\n" for token in vocabulary).encode(),
            "tokenizer_config.json": json.dumps(about).encode(),
        },
        not_read=plan.not_read,
        misfits=checkpoint.unknown_settings(CONFIG, given.keys() - {*SETTINGS, *WITHOUT_EFFECT}) + plan.misfits,
        exact=True,
    )


def targets(layers: int) -> dict[str, Target]:
    """Each name of the checkpoint, with the name that transformers' BertModel gives the same tensor."""
    tables = ("word_embeddings", "position_embeddings", "token_type_embeddings")
    found = {f"bert/embeddings/{name}": Target(f"embeddings.{name}.weight") for name in tables}
    found |= _norm("bert/embeddings/LayerNorm", "embeddings.LayerNorm")
    for number in range(layers):
        theirs, ours = f"bert/encoder/layer_{number}", f"encoder.layer.{number}"
        for part in DENSE:
            found |= _dense(f"{theirs}/{part}", f"{ours}.{part.replace('/', '.')}")
        for part in NORMS:
            found |= _norm(f"{theirs}/{part}", f"{ours}.{part.replace('/', '.')}")
    return found | _dense("bert/pooler/dense", "pooler.dense")


def _dense(theirs: str, ours: str) -> dict[str, Target]:
    return {f"{theirs}/kernel": Target(f"{ours}.weight", "transposed"), f"{theirs}/bias": Target(f"{ours}.bias")}


def _norm(theirs: str, ours: str) -> dict[str, Target]:
    return {f"{theirs}/gamma": Target(f"{ours}.weight"), f"{theirs}/beta": Target(f"{ours}.bias")}


def _vocabulary(path: Path) -> list[str]:
    """The tokens, one on each line; the number of a line, from 0, is the token's."""
    lines = read_text(path, AGAIN).removesuffix("\n").split("\n")
    tokens = [line.removesuffix("\r") for line in lines]
    lost = [token for token in SPECIAL if token not in tokens]
    if lost:
        raise TwofoldError(f"{path}: lacks {', '.join(lost)}; {AGAIN}")
    return tokens


def _lowers(source: Path, given: dict[str, Any], settings: Settings) -> bool:
    """Whether capitals are read as small letters, as its user, its files or its folder's name say."""
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
