"""Weights that torch has pickled, read as named tensors alone: code in the file is never run."""

from __future__ import annotations

import warnings
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

from twofold.errors import TwofoldError

if TYPE_CHECKING:
    from torch import Tensor


def read_pickled(path: Path, remedy: str) -> dict[str, Tensor]:
    """Reads named tensors, each in memory of its own; `remedy` ends the error message if the file is missing."""
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about versions of pickle, before it fails anyway
            content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise TwofoldError(f"{path}: no such file; {remedy}") from None
    except Exception as error:  # a damaged pickle may raise anything
        reason = shorten(str(error) or type(error).__name__, 200, placeholder=" ...")
        advice = "save its tensors alone, best as model.safetensors; code in it is never run"
        raise TwofoldError(f"{path}: not readable as tensors alone ({reason}); {advice}") from error
    named = isinstance(content, dict) and all(isinstance(value, torch.Tensor) for value in content.values())
    if not named or not content:
        raise TwofoldError(f"{path}: does not hold named tensors and nothing else; save the model's state_dict alone")
    return apart({str(name): tensor.detach() for name, tensor in content.items()})


def apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies tensors that share memory, which safetensors cannot; tied tensors are written twice."""
    seen: set[int] = set()
    copies = {}
    for name, value in tensors.items():
        memory = value.untyped_storage()
        copies[name] = value.clone() if memory.data_ptr() in seen or memory.nbytes() > value.nbytes else value
        seen.add(memory.data_ptr())
    return copies
