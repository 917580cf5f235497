"""Nodes and initial tensors of ONNX files, read without the library of the format."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twofold.data.protobuf import Value, as_bytes, fields, number
from twofold.errors import TwofoldError

GRAPH, NODE, INITIALIZER = 7, 1, 5
"""Field numbers of the graph in a model, and of nodes and tensors in a graph."""
DTYPES = {1: "<f4", 2: "u1", 3: "i1", 6: "<i4", 7: "<i8", 9: "?", 10: "<f2", 11: "<f8"}
"""numpy's names of ONNX's types of numbers."""


@dataclass(frozen=True)
class Node:
    """Operation of a graph."""

    name: str
    operator: str
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Graph:
    """Operations of a graph, and the tensors that it starts from."""

    nodes: tuple[Node, ...]
    tensors: dict[str, NDArray[np.generic]]


def read_graph(path: Path) -> Graph:
    """Reads the main graph of a file."""
    nodes, tensors = [], {}
    try:
        graphs = [as_bytes(value) for field, value in fields(path.read_bytes()) if field == GRAPH]
        for field, value in fields(b"".join(graphs)):
            if field == NODE:
                nodes.append(_node(as_bytes(value)))
            elif field == INITIALIZER:
                name, tensor = _tensor(as_bytes(value))
                tensors[name] = tensor
    except (ValueError, struct.error) as error:
        raise TwofoldError(f"{path}: not an ONNX file that can be read ({error}); give another") from None
    if not nodes:
        raise TwofoldError(f"{path}: holds no graph; give an ONNX file")
    return Graph(tuple(nodes), tensors)


def _node(content: bytes) -> Node:
    given: dict[int, list[Value]] = {}
    for field, value in fields(content):
        given.setdefault(field, []).append(value)
    name, operator = (as_bytes(given.get(field, [b""])[0]).decode() for field in (3, 4))
    return Node(name, operator, tuple(as_bytes(value).decode() for value in given.get(1, [])))


def _tensor(content: bytes) -> tuple[str, NDArray[np.generic]]:
    """Reads the name and the numbers of a tensor, which are stored as raw bytes or, if few, as fields."""
    sizes: list[int] = []
    values: list[int] = []
    name, kind, raw = "", 0, b""
    for field, value in fields(content):
        if field == 1:
            sizes += [value] if isinstance(value, int) else _packed(value)
        elif field in (5, 7):
            values += [value] if isinstance(value, int) else _packed(value)
        elif field == 4:
            raw += as_bytes(value)
        elif field == 2:
            kind = int(value)
        elif field == 8:
            name = as_bytes(value).decode()
        elif field == 9:
            raw = as_bytes(value)
    if kind not in DTYPES:
        raise ValueError(f"{name}: numbers of type {kind}")
    dtype = np.dtype(DTYPES[kind])
    flat = np.frombuffer(raw, dtype) if raw or not values else np.array(values, np.int64).astype(dtype)
    if flat.size != prod(sizes):
        raise ValueError(f"{name}: {flat.size:,} numbers for the sizes {sizes}")
    return name, flat.reshape(sizes)


def _packed(content: bytes) -> list[int]:
    """Reads whole numbers that are packed into one field."""
    values, at = [], 0
    while at < len(content):
        value, at = number(content, at)
        values.append(value if value < 1 << 63 else value - (1 << 64))
    return values
