"""Where a model computes."""

from __future__ import annotations

import os

import torch

from twofold.errors import TwofoldError


def make_device(name: str) -> torch.device:
    """The device of this process."""
    if name != "auto":
        try:
            device = torch.empty(0, device=name).device
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise TwofoldError(f"the device '{name}' cannot be used here ({reason}); try auto or cpu") from None
        if device.type == "meta":
            raise TwofoldError("the device 'meta' computes nothing; try auto or cpu")
        return device
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
