"""OpenVINO: graphs in its own form (IR), in float32."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from twofold.exporting import files
from twofold.exporting.job import Job
from twofold.exporting.parity import Parity
from twofold.model import Model
from twofold.runtime import openvino

NEEDS = ("onnx", "onnxscript", "openvino")
EXTRA = "pip install 'twofold[fast]'"
MAY_BE_INT8 = False
ENDING = ".xml"
EXAMPLE = """\
import openvino

core = openvino.Core()


def run(name, arrays):
    compiled = core.compile_model(config["graphs"][name]["file"], "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return {output.get_any_name(): value for output, value in compiled(arrays).items()}
"""


def write(job: Job, folder: Path) -> Parity:
    """Writes graphs, tokenizers and settings into a folder; returns how they compare with torch."""
    written = files.write_graphs(job, folder, ENDING, _converted, openvino.load)
    known = Parity("openvino", openvino.version(), "float32", 0.0, 1.0, 0)
    return files.compared(job, written, folder, known).check()


def _converted(path: Path) -> Path:
    """Turns a graph in ONNX into an .xml file with its weights in a .bin file."""
    library: Any = import_module("openvino")
    target = path.with_suffix(ENDING)
    library.save_model(library.Core().read_model(path), target, compress_to_fp16=False)
    path.unlink()
    return target


def example(model: Model) -> str:
    """Code of the card that runs a graph by its name."""
    return EXAMPLE
