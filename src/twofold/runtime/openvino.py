"""OpenVINO as an engine: reads a graph and computes it on the processor, in float32 or bfloat16."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PRECISIONS = {"float32": "f32", "bfloat16": "bf16"}
NEEDS = ("openvino", "onnx", "onnxscript")
"""Packages that computing and making a graph take."""
WHOLE = False
"""Computes encoders."""


def version() -> str:
    """Returns the version of the library."""
    return installed_version("openvino")


def load(graph: Path, precision: str, threads: int) -> Callable[[Mapping[str, NDArray[Any]]], list[NDArray[Any]]]:
    """Compiles a graph; the result computes its outputs, in their order, from inputs by name."""
    openvino: Any = import_module("openvino")

    core = openvino.Core()
    settings = {
        "INFERENCE_PRECISION_HINT": PRECISIONS[precision],
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
    }
    compiled = core.compile_model(core.read_model(graph), "CPU", settings)

    def run(inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        results = compiled(dict(inputs), share_inputs=True)
        return [np.asarray(results[output]) for output in compiled.outputs]

    return run
