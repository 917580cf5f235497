"""Folder of graphs: the graphs, tokenizers, settings for whoever runs them, and the code that reads inputs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from twofold import __version__, storage
from twofold.config import unstructure
from twofold.errors import TwofoldError, one_line
from twofold.exporting import parity, read
from twofold.exporting.graphs import Graph, graphs_of
from twofold.exporting.job import Job
from twofold.exporting.parity import Arrays, Parity
from twofold.model import Model
from twofold.runtime.graph import arrays
from twofold.types import Classes, Numbers

CONFIG, READ = "config.json", "read.py"
FORMAT = 1
Load = Callable[[Path, str, int], Callable[[Arrays], list[Any]]]
"""Opens a graph in a precision with a number of threads."""


@dataclass(frozen=True)
class Written:
    """Graphs of a folder, ready to run."""

    graphs: list[Graph]
    files: dict[str, Path]
    abouts: dict[str, Any]
    """Settings by which `read.py` reads the input of each graph."""
    load: Load

    def opened(self) -> parity.Run:
        """Opens all graphs; the result runs one by name."""
        gives = {graph.name: graph.gives for graph in self.graphs}
        with _runnable():
            runs = {name: self.load(path, "float32", torch.get_num_threads()) for name, path in self.files.items()}

        def run(name: str, given: Arrays) -> dict[str, Any]:
            with _runnable():
                return dict(zip(gives[name], runs[name](given), strict=True))

        return run


@contextmanager
def _runnable() -> Iterator[None]:
    """Turns an error of an engine into one line."""
    try:
        yield
    except Exception as error:  # engines raise plain exceptions
        reason = one_line(str(error) or type(error).__name__, 200)
        raise TwofoldError(f"a written graph cannot be computed ({reason}); nothing is written") from error


def write_graphs(job: Job, folder: Path, ending: str, convert: Callable[[Path], Path], load: Load) -> Written:
    """Writes everything but the card; `convert` turns a graph in ONNX into the format's own file."""
    graphs = list(graphs_of(job.model))
    files = {}
    for graph in graphs:
        graph.write(folder / f"{graph.name}.onnx")
        files[graph.name] = convert(folder / f"{graph.name}.onnx")
    abouts = _abouts(graphs, folder)
    settings = {"format": FORMAT, "twofold": __version__, "to": job.format, **described(job.model)}
    settings["graphs"] = {graph.name: _described(graph, files[graph.name].name, abouts) for graph in graphs}
    storage.write_json(folder / CONFIG, settings)
    shutil.copyfile(str(read.__file__), folder / READ)
    return Written(graphs, files, abouts, load)


def compared(job: Job, written: Written, folder: Path, known: Parity) -> Parity:
    """Compares written graphs with torch."""
    return parity.of_graphs(job.model, written.graphs, written.opened(), folder, written.abouts, known)


def described(model: Model) -> dict[str, Any]:
    """Settings of the model, and the names of its answers."""
    config, answers = unstructure(model.config), {}
    for name, output in model.outputs.items():
        match output.spec:
            case Classes(names, several):
                answers[name] = {"classes": list(names), "several": several}
            case Numbers(mean, deviation):
                answers[name] = {"mean": mean, "deviation": deviation}
    return {"model": config, "answers": answers}


def _abouts(graphs: list[Graph], folder: Path) -> dict[str, Any]:
    """Writes each different tokenizer once; returns how the inputs are read."""
    abouts: dict[str, Any] = {}
    files: dict[str, str] = {}
    for graph in graphs:
        if graph.input is None:
            continue
        abouts[graph.name] = dict(graph.input.reading())
        tokenizer = graph.input.tokenizer
        if tokenizer is not None:
            print_of = tokenizer.fingerprint()
            if print_of not in files:
                files[print_of] = f"tokenizer.{graph.name}.json" if files else "tokenizer.json"
                storage.write_bytes(folder / files[print_of], tokenizer.library_json.encode())
            abouts[graph.name]["tokenizer"] = files[print_of]
    return abouts


def _described(graph: Graph, file: str, abouts: dict[str, Any]) -> dict[str, Any]:
    """Names, types and shapes of a graph's inputs and outputs; null stands for a size that may change."""
    outputs = [arrays(graph.expected(sample)) for sample in graph.samples]
    shapes = {name: list(zip(*(each[name].shape for each in outputs), strict=True)) for name in graph.gives}
    inputs = [
        {"name": name, "dtype": str(array.dtype), "shape": _sizes(graph.free(name), array.shape)}
        for name, array in arrays(graph.samples[0]).items()
    ]
    outs = [
        {
            "name": name,
            "dtype": str(outputs[0][name].dtype),
            "shape": _sizes([len(set(sizes)) > 1 for sizes in shapes[name]], outputs[0][name].shape),
        }
        for name in graph.gives
    ]
    about = {"file": file, "inputs": inputs, "outputs": outs}
    return {**about, "input": abouts[graph.name]} if graph.name in abouts else about


def _sizes(free: list[bool], shape: tuple[int, ...]) -> list[int | None]:
    return [None if changes else size for changes, size in zip(free, shape, strict=True)]
