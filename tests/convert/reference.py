"""BERT and GPT-2 in numpy, computed from the variables of their first TensorFlow programs, and such variables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Variables = Mapping[str, NDArray[Any]]
ERF = np.vectorize(math.erf)

WIDTH, INNER, LAYERS, HEADS, PLACES = 16, 24, 3, 4, 32
WORDS = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "ferry", "##s", "at", "seven", "!", "é", "e"]
WORDS += ["Ferry", "##ing", "wait", "가", "##나"]
BERT = {
    "attention_probs_dropout_prob": 0.1,
    "directionality": "bidi",
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": WIDTH,
    "initializer_range": 0.02,
    "intermediate_size": INNER,
    "max_position_embeddings": PLACES,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "type_vocab_size": 2,
    "vocab_size": len(WORDS),
}
MERGES = [("h", "e"), ("Ġ", "t"), ("Ġt", "he"), ("r", "r"), ("e", "rr"), ("f", "err"), ("ferr", "y"), ("l", "l")]


def byte_letters() -> dict[int, str]:
    """The letter that GPT-2 writes for each byte: itself where it can be seen, otherwise one from 256 on."""
    seen = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in seen]
    return {byte: chr(byte) for byte in seen} | {byte: chr(256 + place) for place, byte in enumerate(hidden)}


TOKENS = [*byte_letters().values(), *(first + second for first, second in MERGES), "<|endoftext|>"]
GPT2 = {"n_vocab": len(TOKENS), "n_ctx": PLACES, "n_embd": WIDTH, "n_head": HEADS, "n_layer": LAYERS}


def bert_shapes() -> dict[str, tuple[int, ...]]:
    """The variables of Google's checkpoints, those of the pre-training's heads and of its optimizer too."""
    shapes: dict[str, tuple[int, ...]] = {
        "bert/embeddings/word_embeddings": (len(WORDS), WIDTH),
        "bert/embeddings/position_embeddings": (PLACES, WIDTH),
        "bert/embeddings/token_type_embeddings": (2, WIDTH),
        "bert/embeddings/LayerNorm/beta": (WIDTH,),
        "bert/embeddings/LayerNorm/gamma": (WIDTH,),
        "bert/pooler/dense/kernel": (WIDTH, WIDTH),
        "bert/pooler/dense/bias": (WIDTH,),
        "cls/predictions/output_bias": (len(WORDS),),
        "cls/predictions/transform/LayerNorm/beta": (WIDTH,),
        "cls/predictions/transform/LayerNorm/gamma": (WIDTH,),
        "cls/predictions/transform/dense/bias": (WIDTH,),
        "cls/predictions/transform/dense/kernel": (WIDTH, WIDTH),
        "cls/seq_relationship/output_bias": (2,),
        "cls/seq_relationship/output_weights": (2, WIDTH),
    }
    for layer in range(LAYERS):
        at = f"bert/encoder/layer_{layer}"
        for name in ("self/query", "self/key", "self/value", "output/dense"):
            shapes |= {f"{at}/attention/{name}/kernel": (WIDTH, WIDTH), f"{at}/attention/{name}/bias": (WIDTH,)}
        shapes |= {f"{at}/intermediate/dense/kernel": (WIDTH, INNER), f"{at}/intermediate/dense/bias": (INNER,)}
        shapes |= {f"{at}/output/dense/kernel": (INNER, WIDTH), f"{at}/output/dense/bias": (WIDTH,)}
        for name in ("attention/output", "output"):
            shapes |= {f"{at}/{name}/LayerNorm/beta": (WIDTH,), f"{at}/{name}/LayerNorm/gamma": (WIDTH,)}
    slots = {f"{name}/adam_{slot}": shape for name, shape in shapes.items() for slot in "mv"}
    return shapes | slots | {"global_step": ()}


def gpt2_shapes() -> dict[str, tuple[int, ...]]:
    """The variables of OpenAI's checkpoints."""
    shapes: dict[str, tuple[int, ...]] = {"model/wte": (len(TOKENS), WIDTH), "model/wpe": (PLACES, WIDTH)}
    norms = ["model/ln_f"]
    for layer in range(LAYERS):
        at = f"model/h{layer}"
        norms += [f"{at}/ln_1", f"{at}/ln_2"]
        sizes = {"attn/c_attn": (WIDTH, 3 * WIDTH), "attn/c_proj": (WIDTH, WIDTH)}
        sizes |= {"mlp/c_fc": (WIDTH, 4 * WIDTH), "mlp/c_proj": (4 * WIDTH, WIDTH)}
        for name, (into, out) in sizes.items():
            shapes |= {f"{at}/{name}/w": (1, into, out), f"{at}/{name}/b": (out,)}
    return shapes | {f"{name}/{part}": (WIDTH,) for name in norms for part in "gb"}


def drawn(shapes: Mapping[str, tuple[int, ...]], seed: int = 0) -> dict[str, NDArray[Any]]:
    """Variables far from what is drawn at first, so that no two can be taken for each other."""
    generator = np.random.default_rng(seed)
    weights = {name: generator.normal(0, 0.4, shape).astype(np.float32) for name, shape in shapes.items()}
    for name in weights:
        if name.endswith(("gamma", "/g")):
            weights[name] += 1
    return weights | ({"global_step": np.array(7, np.int64)} if "global_step" in weights else {})


def bert_states(variables: Variables, ids: NDArray[Any], segments: NDArray[Any], mask: NDArray[Any]) -> list[Array]:
    """The states (rows, positions, width) after the embeddings and after each layer, then the pooled ones."""
    v = {name: value.astype(np.float64) for name, value in variables.items()}

    def dense(states: Array, name: str) -> Array:
        return states @ v[f"{name}/kernel"] + v[f"{name}/bias"]

    def norm(states: Array, name: str) -> Array:
        return standard(states, 1e-12) * v[f"{name}/LayerNorm/gamma"] + v[f"{name}/LayerNorm/beta"]

    at = "bert/embeddings"
    summed = v[f"{at}/word_embeddings"][ids] + v[f"{at}/token_type_embeddings"][segments]
    states = [norm(summed + v[f"{at}/position_embeddings"][: ids.shape[1]], at)]
    hidden = np.where(mask[:, None, None, :] > 0, 0.0, -np.inf)
    for layer in range(LAYERS):
        at, before = f"bert/encoder/layer_{layer}", states[-1]
        query, key, value = (heads(dense(before, f"{at}/attention/self/{one}")) for one in ("query", "key", "value"))
        read = joined(attended(query, key, value, hidden))
        middle = norm(dense(read, f"{at}/attention/output/dense") + before, f"{at}/attention/output")
        inner = dense(middle, f"{at}/intermediate/dense")
        inner = inner * 0.5 * (1 + ERF(inner / math.sqrt(2)))
        states.append(norm(dense(inner, f"{at}/output/dense") + middle, f"{at}/output"))
    return [*states, np.tanh(dense(states[-1][:, 0], "bert/pooler/dense"))]


def gpt2_states(variables: Variables, ids: NDArray[Any]) -> Array:
    """The states (rows, positions, width) after the last layer and its norm."""
    v = {name: value.astype(np.float64) for name, value in variables.items()}

    def dense(states: Array, name: str) -> Array:
        return np.asarray(states @ v[f"{name}/w"][0] + v[f"{name}/b"])

    def norm(states: Array, name: str) -> Array:
        return standard(states, 1e-5) * v[f"{name}/g"] + v[f"{name}/b"]

    length = ids.shape[1]
    states: Array = v["model/wte"][ids] + v["model/wpe"][:length]
    later = np.where(np.tril(np.ones((length, length))) > 0, 0.0, -np.inf)
    for layer in range(LAYERS):
        at = f"model/h{layer}"
        thirds: list[Array] = np.split(dense(norm(states, f"{at}/ln_1"), f"{at}/attn/c_attn"), 3, axis=-1)
        query, key, value = (heads(one) for one in thirds)
        states = states + dense(joined(attended(query, key, value, later)), f"{at}/attn/c_proj")
        inner = dense(norm(states, f"{at}/ln_2"), f"{at}/mlp/c_fc")
        inner = 0.5 * inner * (1 + np.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)))
        states = states + dense(inner, f"{at}/mlp/c_proj")
    return norm(states, "model/ln_f")


def gpt2_ids(text: str) -> list[int]:
    """Tokens of GPT-2 for a word: its bytes, of which neighbors are merged in the order of the merges."""
    letters = byte_letters()
    pieces = [letters[byte] for byte in text.encode()]
    for first, second in MERGES:
        place = 0
        while place < len(pieces) - 1:
            if (pieces[place], pieces[place + 1]) == (first, second):
                pieces[place : place + 2] = [first + second]
            place += 1
    return [TOKENS.index(piece) for piece in pieces]


def standard(states: Array, epsilon: float) -> Array:
    mean, variance = states.mean(-1, keepdims=True), states.var(-1, keepdims=True)
    return np.asarray((states - mean) / np.sqrt(variance + epsilon))


def heads(states: Array) -> Array:
    """(rows, positions, width) as (rows, heads, positions, width of a head)."""
    return states.reshape(*states.shape[:2], HEADS, -1).transpose(0, 2, 1, 3)


def joined(states: Array) -> Array:
    """The way back."""
    rows, _, positions, _ = states.shape
    return states.transpose(0, 2, 1, 3).reshape(rows, positions, -1)


def attended(query: Array, key: Array, value: Array, hidden: Array) -> Array:
    scores = query @ key.transpose(0, 1, 3, 2) / math.sqrt(query.shape[-1]) + hidden
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ value)
