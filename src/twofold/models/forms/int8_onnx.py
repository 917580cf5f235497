"""Classifiers of transformers whose weights ONNX Runtime has quantized to eight bits: read back as float32."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twofold import storage
from twofold.data.named_models import NamedModel
from twofold.errors import TwofoldError
from twofold.models.forms import unchanged
from twofold.models.onnx_file import Graph, read_graph

GRAPH = "model.onnx"
PRODUCT = "MatMulInteger"
"""Operator whose second input is a quantized weight, (in, out)."""
QUANTIZED, SCALE, ZERO = "_quantized", "_scale", "_zero_point"
"""Suffixes of the parts of a quantized tensor."""


def write(members: Path, folder: Path, model: NamedModel) -> None:
    """Writes settings and weights as transformers reads them, and the other files as they are."""
    import torch

    graph = read_graph(members / GRAPH)
    tensors = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in weights_of(graph)}
    storage.write_tensors(folder / "model.safetensors", tensors, {"format": "pt"})
    storage.write_json(folder / "config.json", model.config)
    (members / GRAPH).unlink()
    unchanged.write(members, folder, model)


def weights_of(graph: Graph) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yields the weights by their names in transformers: (quantized - zero point) * scale."""
    for name, tensor in graph.tensors.items():
        if tensor.dtype == np.float32 and name.endswith((".weight", ".bias")):
            yield name, tensor.astype(np.float32)
    products = {node.inputs[1]: node.name for node in graph.nodes if node.operator == PRODUCT}
    for name in graph.tensors:
        if name.endswith(QUANTIZED):
            base = name.removesuffix(QUANTIZED)
            if name in products:  # torch stores (out, in)
                yield f"{_module_of(products[name])}.weight", _dequantized(graph, base).T
            else:
                yield base, _dequantized(graph, base)


def _dequantized(graph: Graph, base: str) -> NDArray[np.float32]:
    try:
        quantized, scale, zero = (graph.tensors[f"{base}{suffix}"] for suffix in (QUANTIZED, SCALE, ZERO))
    except KeyError as error:
        raise TwofoldError(f"the graph lacks {error}, without which a weight cannot be read back") from None
    values = (quantized.astype(np.float32) - zero.astype(np.float32)) * scale.astype(np.float32)
    return values.astype(np.float32)


def _module_of(node: str) -> str:
    """Returns the module that a node computes: /bert/pooler/dense/Gemm_MatMul_quant is bert.pooler.dense."""
    return node.strip("/").rpartition("/")[0].replace("/", ".")
