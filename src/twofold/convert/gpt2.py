"""OpenAI's GPT-2 as it was published: hparams.json, encoder.json, vocab.bpe and model.ckpt, a TensorFlow checkpoint."""

from __future__ import annotations

import json
import re
from pathlib import Path

from twofold import storage
from twofold.convert import checkpoint
from twofold.convert.found import AGAIN, Found, Settings, read_text, whole_numbers
from twofold.convert.names import Target
from twofold.errors import TwofoldError

CONFIG, VOCABULARY, MERGES = "hparams.json", "encoder.json", "vocab.bpe"
END = "<|endoftext|>"
SETTINGS = {"n_vocab": "vocab_size", "n_ctx": "n_positions", "n_embd": "n_embd", "n_layer": "n_layer"}
SETTINGS |= {"n_head": "n_head"}
"""OpenAI's names and those of transformers."""
HEADS = re.compile(r"(?!)")
"""It has none: its words are predicted with the table that they are read with."""
NORMS = ("ln_1", "ln_2")
DENSE = ("attn/c_attn", "attn/c_proj", "mlp/c_fc", "mlp/c_proj")


def read(source: Path, settings: Settings) -> Found:
    """The network in a folder of OpenAI's."""
    given = whole_numbers(source / CONFIG, SETTINGS, AGAIN)
    vocabulary = storage.read_json(source / VOCABULARY, AGAIN)
    if END not in vocabulary:
        raise TwofoldError(f"{source / VOCABULARY}: lacks {END}; {AGAIN}")
    merges = read_text(source / MERGES, AGAIN)
    config = {"model_type": "gpt2", "architectures": ["GPT2Model"], "activation_function": "gelu_new"}
    config |= {ours: given[theirs] for theirs, ours in SETTINGS.items()}
    config |= {"bos_token_id": vocabulary[END], "eos_token_id": vocabulary[END]}
    tensors, plan = checkpoint.read(source, config, targets(given["n_layer"]), HEADS)
    about = {"tokenizer_class": "GPT2Tokenizer", "model_max_length": given["n_ctx"]}
    return Found(
        format="tensorflow-gpt2",
        config=config,
        tensors=tensors,
        tokenizer={
            "vocab.json": json.dumps(vocabulary, ensure_ascii=False).encode(),
            "merges.txt": merges.encode(),
            "tokenizer_config.json": json.dumps(about).encode(),
        },
        not_read=plan.not_read,
        misfits=checkpoint.unknown_settings(CONFIG, given.keys() - SETTINGS.keys()) + plan.misfits,
        exact=True,
    )


def targets(layers: int) -> dict[str, Target]:
    """Each name of the checkpoint, with the name that transformers' GPT2Model gives the same tensor."""
    found = {"model/wte": Target("wte.weight"), "model/wpe": Target("wpe.weight")}
    for number in range(layers):
        theirs, ours = f"model/h{number}", f"h.{number}"
        for part in NORMS:
            found |= _norm(f"{theirs}/{part}", f"{ours}.{part}")
        for part in DENSE:
            name = f"{ours}.{part.replace('/', '.')}"
            found |= {f"{theirs}/{part}/w": Target(f"{name}.weight", "unpacked")}
            found |= {f"{theirs}/{part}/b": Target(f"{name}.bias")}
    return found | _norm("model/ln_f", "ln_f")


def _norm(theirs: str, ours: str) -> dict[str, Target]:
    return {f"{theirs}/g": Target(f"{ours}.weight"), f"{theirs}/b": Target(f"{ours}.bias")}
