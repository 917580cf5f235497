"""ONNX Runtime as an engine: reads a graph and computes it on the processor, in float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

PRECISIONS = {"float32": "float32"}
NEEDS = ("onnxruntime", "onnx", "onnxscript")
"""Packages that computing and making a graph take."""
WHOLE = False
"""Computes encoders."""


def version() -> str:
    """Returns the version of the library."""
    return installed_version("onnxruntime")


def load(graph: Path, precision: str, threads: int) -> Callable[[Mapping[str, NDArray[Any]]], list[NDArray[Any]]]:
    """Opens a session; the result computes its outputs, in their order, from inputs by name."""
    onnxruntime: Any = import_module("onnxruntime")

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])

    def run(inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        return list(session.run(None, dict(inputs)))

    return run
