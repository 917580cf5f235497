"""ONNX: graphs that ONNX Runtime and others compute, optionally in int8."""

from __future__ import annotations

from pathlib import Path

from twofold.exporting import files, int8
from twofold.exporting.job import Job
from twofold.exporting.parity import Parity
from twofold.model import Model
from twofold.runtime import onnxruntime

NEEDS = ("onnx", "onnxscript", "onnxruntime")
EXTRA = "pip install 'twofold[fast]'"
MAY_BE_INT8 = True
ENDING = ".onnx"
EXAMPLE = """\
import onnxruntime


def run(name, arrays):
    session = onnxruntime.InferenceSession(config["graphs"][name]["file"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, arrays)))
"""


def write(job: Job, folder: Path) -> Parity:
    """Writes graphs, tokenizers and settings into a folder; returns how they compare with torch."""
    written = files.write_graphs(job, folder, ENDING, lambda path: path, onnxruntime.load)
    known = Parity("onnx", onnxruntime.version(), "float32", 0.0, 1.0, 0)
    parity = files.compared(job, written, folder, known).check()
    return int8.quantized(job, written, folder, parity) if job.int8 else parity


def example(model: Model) -> str:
    """Code of the card that runs a graph by its name."""
    return EXAMPLE
