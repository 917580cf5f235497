"""TensorFlow's checkpoints, read by TensorFlow itself, and laid out as a model of transformers."""

from __future__ import annotations

import importlib
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from twofold.convert.found import AGAIN, Item, short
from twofold.convert.names import Plan, Shape, Target, match
from twofold.data.backbone_files import clearly
from twofold.errors import TwofoldError

REMEDY = "pip install 'twofold[tensorflow]'"
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
"""Otherwise TensorFlow tells how it was compiled and what it computes with, though it only reads here."""


def read(
    folder: Path, config: Mapping[str, Any], targets: Mapping[str, Target], heads: re.Pattern[str]
) -> tuple[dict[str, Tensor], Plan]:
    """The tensors of the checkpoint in a folder under transformers' names, and what became of the others."""
    prefix = find(folder)
    model = model_shapes(folder, config)
    tensorflow = _tensorflow(prefix)
    with _reading(prefix, tensorflow):
        reader = tensorflow.train.load_checkpoint(str(prefix))
        shapes = {str(name): tuple(map(int, shape)) for name, shape in reader.get_variable_to_shape_map().items()}
        plan = match(shapes, targets, model, heads)
        tensors = {
            target.name: torch.from_numpy(target.value(reader.get_tensor(name))) for name, target in plan.used.items()
        }
    return tensors, plan


def find(folder: Path) -> Path:
    """The path that the names of a checkpoint's files begin with."""
    found = sorted(path.with_suffix("") for path in folder.glob("*.index"))
    if not found:
        raise TwofoldError(f"{folder}: holds no checkpoint (a file that ends in .index); {AGAIN}")
    if len(found) == 1:
        return found[0]
    newest = folder / "checkpoint"
    said = newest.read_text(encoding="utf-8", errors="replace") if newest.is_file() else ""
    named = re.search(r'^model_checkpoint_path: "(?:.*/)?([^"/]+)"', said, re.MULTILINE)
    chosen = [path for path in found if named and path.name == named[1]]
    if not chosen:
        several = ", ".join(path.name for path in found)
        raise TwofoldError(f"{folder}: holds several checkpoints ({several}); leave only the one that is meant")
    return chosen[0]


def model_shapes(source: Path, config: Mapping[str, Any]) -> dict[str, Shape]:
    """The shape of every tensor that transformers' model with these settings has."""
    from transformers import AutoConfig, AutoModel

    given = dict(config)
    with clearly(str(source), "its settings must be those of the checkpoint"), torch.device("meta"):
        settings = AutoConfig.for_model(given.pop("model_type"), **given)
        model: Any = AutoModel.from_config(settings)  # type: ignore[no-untyped-call]
    return {name: tuple(value.shape) for name, value in model.state_dict().items()}


def unknown_settings(file: str, names: Iterable[str]) -> tuple[Item, ...]:
    """Settings that might change what the model computes, in a way that is not known here."""
    return tuple(Item("unknown setting", f"{name} in {file}") for name in sorted(names))


def _tensorflow(prefix: Path) -> Any:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module("tensorflow")
    except ImportError as error:
        reason = "" if isinstance(error, ModuleNotFoundError) and error.name == "tensorflow" else f" ({short(error)})"
        raise TwofoldError(f"{prefix}: only TensorFlow reads it, which is not installed{reason}; {REMEDY}") from None


@contextmanager
def _reading(prefix: Path, tensorflow: Any) -> Iterator[None]:
    try:
        yield
    except (tensorflow.errors.OpError, ValueError, RuntimeError, LookupError) as error:
        raise TwofoldError(f"{prefix}: could not be read ({short(error)}); {AGAIN}") from error
