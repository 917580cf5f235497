"""The published definition of the poly-encoder, with loops over single vectors in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from twofold.decoders import poly
from twofold.types import Hidden

Vector = NDArray[np.float64]
WIDTH, HEADS = 8, 2


def plain(tensor: Tensor) -> Vector:
    return tensor.detach().double().numpy()


def tokens_of(hidden: Hidden) -> list[list[Vector]]:
    """For each row its real states."""
    rows = zip(plain(hidden.need("states")), hidden.mask.tolist(), strict=True)
    return [[state for state, real in zip(states, mask, strict=True) if real] for states, mask in rows]


def shares(numbers: Sequence[float]) -> list[float]:
    most = max(numbers)
    powers = [math.exp(number - most) for number in numbers]
    total = math.fsum(powers)
    return [power / total for power in powers]


def mean(vectors: Sequence[Vector], weights: Sequence[float]) -> Vector:
    total = np.zeros(len(vectors[0]))
    for vector, weight in zip(vectors, weights, strict=True):
        total += weight * vector
    return total


def one_vector(
    kind: str, tokens: list[Vector], summary: Vector, causal: bool = False, query: Vector | None = None
) -> Vector:
    match kind:
        case "first":
            return tokens[-1] if causal else tokens[0]
        case "mean":
            return mean(tokens, [1 / len(tokens)] * len(tokens))
        case "max":
            return np.array([max(token[place] for token in tokens) for place in range(WIDTH)])
        case "summary":
            return summary
    assert query is not None
    return mean(tokens, shares([float(query @ token) for token in tokens]))


def codes_of(head: poly.PolyEncoder, config: poly.Config, tokens: list[Vector], causal: bool) -> list[Vector]:
    if config.code_kind == "first":
        return tokens[-config.codes :] if causal else tokens[: config.codes]
    assert head.codes is not None
    root = math.sqrt(WIDTH) if config.code_attention == "scaled" else 1.0
    return [mean(tokens, shares([float(code @ token) / root for token in tokens])) for code in plain(head.codes)]


def finder(head: poly.PolyEncoder, config: poly.Config, codes: list[Vector]) -> Callable[[Vector], Vector]:
    """Vector that a candidate attends to in the codes of a context; its score is the dot product with it."""
    if config.attention != "multihead":
        root = math.sqrt(WIDTH) if config.attention == "scaled" else 1.0
        return lambda candidate: mean(codes, shares([float(candidate @ code) / root for code in codes]))
    assert head.heads is not None
    query, key, value, output = head.heads.query, head.heads.key, head.heads.value, head.heads.output
    keys = [plain(key.weight) @ code for code in codes]
    values = [plain(value.weight) @ code + plain(value.bias) for code in codes]
    size = WIDTH // HEADS

    def find(candidate: Vector) -> Vector:
        asked, parts = plain(query.weight) @ candidate + plain(query.bias), []
        for start in range(0, WIDTH, size):
            chunk = slice(start, start + size)
            weights = shares([float(asked[chunk] @ one[chunk]) / math.sqrt(size) for one in keys])
            parts.append(mean([one[chunk] for one in values], weights))
        return plain(output.weight) @ np.concatenate(parts) + plain(output.bias)

    return find


def scores_of(
    head: poly.PolyEncoder, config: poly.Config, context: list[Vector], candidates: list[Vector], causal: bool
) -> list[float]:
    find = finder(head, config, codes_of(head, config, context, causal))
    return [float(one @ find(one)) for one in candidates]
