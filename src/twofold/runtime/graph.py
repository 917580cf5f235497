"""Graphs in ONNX: an encoder as a function of tensors, exported with free sizes of batches and texts."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from twofold.errors import TwofoldError
from twofold.runtime.flat import Flat, Signature, constants, flatten
from twofold.types import Batch, Encoder

RECURRENT = ("gru", "lstm")
"""Operators of recurrent layers."""
SOURCES = ("encoders", "layers", "inputs", "types.py")
"""Code that decides what a graph computes, beside the encoder's own file."""
FORMAT = 2
"""Version of how graphs are made."""


def export(encoder: Encoder, batch: Batch, signature: Signature, path: Path) -> None:
    """Writes the graph of an encoder; `batch` is a sample of its inputs."""
    flat = Flat(encoder, batch, signature)
    tensors = tuple(widened(tensor) for _, tensor in flatten(batch))
    export_module(flat, tensors, signature.takes, signature.gives, path)


def export_module(
    module: nn.Module,
    tensors: tuple[Tensor, ...],
    takes: tuple[str, ...],
    gives: tuple[str, ...],
    path: Path,
    shapes: tuple[dict[int, Any], ...] | None = None,
) -> None:
    """Writes any module that takes and gives tensors; the sizes of rows and positions stay free unless `shapes` says
    which do."""
    shapes = tuple(_free_sizes(tensor) for tensor in tensors) if shapes is None else shapes
    for kind in RECURRENT:  # the exporter's own way to see these would unroll them in the next export
        getattr(getattr(torch.ops.aten, kind).input, "_dispatch_cache", {}).clear()
    # A graph holds no precision: the engine chooses it, whatever the model computes in while the graph is made.
    with torch.no_grad(), torch.autocast("cpu", enabled=False), _quiet():
        try:
            program = torch.onnx.export(
                module,
                tensors,
                dynamo=True,
                dynamic_shapes=(shapes,),
                input_names=list(takes),
                output_names=list(gives),
                verbose=False,
            )
        except Exception as error:  # the exporter raises plain exceptions of many kinds
            raise TwofoldError(f"cannot be exported ({_reason(error)})") from error
        if program is None:
            raise TwofoldError("cannot be exported")
        program.save(str(path))


def fingerprint(encoder: Encoder, batch: Batch) -> str:
    """Hash of everything that determines the graph: weights, settings, code, and the form of the batch."""
    digest = hashlib.sha256()
    digest.update(repr((FORMAT, type(encoder).__qualname__, torch.__version__, sorted(constants(batch)))).encode())
    digest.update(repr([(name, tensor.dtype, constant_sizes(tensor)) for name, tensor in flatten(batch)]).encode())
    digest.update(repr(encoder).encode())
    for name, value in _scalars(encoder):
        digest.update(f"{name}={value!r}".encode())
    for name, tensor in [*encoder.named_parameters(), *encoder.named_buffers()]:
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    digest.update(_code(type(encoder)))
    return digest.hexdigest()[:40]


def widened(tensor: Tensor) -> Tensor:
    """Repeats a sample along sizes of one, which the exporter would take for constants."""
    for dimension in range(min(tensor.ndim, 2)):
        if tensor.shape[dimension] == 1:
            tensor = torch.cat([tensor] * 3, dimension)
    return tensor


def constant_sizes(tensor: Tensor) -> tuple[int, ...]:
    """Returns the sizes that a graph has built in, after the number of dimensions."""
    sizes = _free_sizes(tensor)
    constant = [tensor.shape[number] for number, kind in sizes.items() if kind == torch.export.Dim.STATIC]
    return (tensor.ndim, *constant)


def _free_sizes(tensor: Tensor) -> dict[int, Any]:
    """Rows and positions are free; the bands of a spectrogram and the size of an image are constant."""
    free, constant = torch.export.Dim.DYNAMIC, torch.export.Dim.STATIC
    kinds = {1: [free], 2: [free, free], 3: [free, free, constant]}
    return dict(enumerate(kinds.get(tensor.ndim, [free, *[constant] * (tensor.ndim - 1)])))


def _scalars(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yields plain values of all modules, such as epsilons and whether an encoder is causal."""
    for name, inner in module.named_modules():
        for key, value in sorted(vars(inner).items()):
            if isinstance(value, int | float | str | bool | tuple | frozenset) and not key.startswith("_"):
                yield f"{name}.{key}", sorted(value) if isinstance(value, frozenset) else value


def _code(kind: type) -> bytes:
    """Hash of the code that encoders run."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    files = [path for folder in SOURCES for path in sorted([root / folder, *(root / folder).glob("*.py")])]
    file = inspect.getsourcefile(kind)
    for path in [*files, *([Path(file)] if file else [])]:
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.digest()


def _reason(error: BaseException) -> str:
    """First cause of an exporter's error, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences the exporter, which warns and logs about its own inner steps."""
    levels = {name: logging.getLogger(name).level for name in ("torch.onnx", "onnxscript", "onnx_ir", "torch.export")}
    for name in levels:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def arrays(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Tensors as arrays, without a copy."""
    return {name: tensor.detach().contiguous().numpy() for name, tensor in tensors.items()}
