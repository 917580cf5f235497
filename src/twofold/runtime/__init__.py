"""Engines faster than torch where nothing is learned: OpenVINO, ONNX Runtime for encoders, CTranslate2 for texts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Literal, get_args

from twofold import precision as precisions
from twofold.errors import TwofoldError, did_you_mean
from twofold.progress import Once

if TYPE_CHECKING:
    from twofold.model import Model

Runtime = Literal["auto", "torch", "openvino", "onnxruntime", "ctranslate2"]
VARIABLE = "TWOFOLD_RUNTIME"
"""Environment variable that decides what `auto` means."""
INT8 = "int8"
"""Precision of weights that only CTranslate2 computes with."""
EXTRA = "pip install 'twofold[fast]'"


def install(model: Model, runtime: str = "auto", precision: str = "auto", title: str = "the model") -> None:
    """Sets how a loaded model computes: the engine of its encoders and the precision. Training takes it off again.

    title: name of the model in the line that announces the making of an engine's files
    """
    import torch

    from twofold.runtime.compiled import CompiledEncoder
    from twofold.runtime.translating import Translating

    device = model.device.type
    chosen = INT8 if precision == INT8 else precisions.settled(precision, device)
    engine = engine_named(runtime, chosen, precision == "auto") if device == "cpu" else None
    if engine is not None and chosen not in engine.PRECISIONS:
        chosen = "float32"
    if chosen == INT8 and engine is None:
        raise TwofoldError(f"precision={INT8} is for runtime=ctranslate2 on a CPU")
    model.precision = torch.bfloat16 if chosen == "bfloat16" else None
    model.writer = None
    for encoder in model.encoders():
        encoder.engine = None
    if engine is None:
        return
    announce = Once(f"preparing {engine.__name__.rsplit('.', 1)[-1]} for {title}, once; this takes some seconds")
    if engine.WHOLE:
        model.writer = Translating(model, engine, chosen, announce)
        return
    for encoder in model.encoders():
        encoder.engine = CompiledEncoder(encoder, engine, chosen, announce)


def engine_named(runtime: str, precision: str, any_precision: bool = False) -> ModuleType | None:
    """Returns the engine of a runtime, None for torch; `auto` is OpenVINO where the extra `fast` is installed.

    any_precision: take an engine that lacks the precision, too
    """
    automatic = runtime == "auto"
    if automatic:
        runtime = os.environ.get(VARIABLE) or "auto"
    if runtime not in get_args(Runtime):
        raise TwofoldError(f"runtime: {did_you_mean(runtime, get_args(Runtime))}")
    if runtime == "torch":
        return None
    engine = import_module(f"twofold.runtime.{'openvino' if runtime == 'auto' else runtime}")
    missing = _missing(engine)
    if missing and runtime == "auto":
        return None
    if missing:
        raise TwofoldError(f"runtime={runtime} needs {', '.join(missing)}: {EXTRA}")
    if precision not in engine.PRECISIONS and not any_precision:
        if automatic:
            return None
        raise TwofoldError(f"runtime={runtime} computes {', '.join(engine.PRECISIONS)}; set precision=float32")
    return engine


def as_built(built: Mapping[str, str], runtime: str, precision: str) -> dict[str, str]:
    """Returns the runtime and precision for the queries of an index: those that it was built with, unless others are
    given; torch computes where that engine is not installed."""
    if not is_installed(built.get("runtime", "torch")):
        built = {**built, "runtime": "torch"}
    given = {"runtime": runtime, "precision": precision}
    return {name: built.get(name, value) if value == "auto" else value for name, value in given.items()}


def is_installed(runtime: str) -> bool:
    """Returns True if the packages of a runtime are installed."""
    return runtime == "torch" or not _missing(import_module(f"twofold.runtime.{runtime}"))


def _missing(engine: ModuleType) -> list[str]:
    """Returns the packages that an engine lacks."""
    return [package for package in engine.NEEDS if find_spec(package) is None]
