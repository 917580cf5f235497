"""Speed of our convnet + unet beside the Unet of segmentation_models.pytorch of like size, in one run."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from _common import save
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from twofold.config import structure
from twofold.decoders import DecoderConfig
from twofold.encoders import EncoderConfig
from twofold.inputs.image import Images
from twofold.types import Batch, Classes, Features

CLASSES = 12
OURS = {"kind": "convnet", "widths": [32, 64, 128, 256, 512]}
THEIRS = "resnet18"


class Ours(nn.Module):
    """The pair as one function of pixels, as the other side is."""

    def __init__(self) -> None:
        super().__init__()
        encoder = structure(OURS, EncoderConfig)
        decoder = structure({"kind": "unet"}, DecoderConfig)
        self.encoder = encoder.build(Features(), frozenset({"maps"}))
        self.decoder = decoder.build(encoder.spec(), Classes(tuple(map(str, range(CLASSES)))))

    def forward(self, pixels: Tensor) -> Any:
        return self.decoder(self.encoder(Batch({"input": Images(pixels)})))


def theirs() -> nn.Module:
    """The Unet of segmentation_models.pytorch, without weights."""
    try:
        import torchvision  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
    except (
        RuntimeError
    ):  # a torchvision that was built for CUDA: its own operators, which nobody calls here, are missing
        library: Any = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        theirs.library = library  # type: ignore[attr-defined]  # must live as long as the process
    except ImportError:
        sys.exit("needs `pip install -c constraints.txt '.[bench]'`")
    import segmentation_models_pytorch as smp  # type: ignore[import-not-found,unused-ignore]

    model: nn.Module = smp.Unet(THEIRS, encoder_weights=None, classes=CLASSES)
    return model


def size(model: nn.Module, pixels: Tensor) -> dict[str, float]:
    """Millions of parameters and of multiply-adds for one image."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval()(pixels[:1])
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {"parameters": parameters / 1e6, "multiply_adds": counter.get_total_flops() / 2e6}


def forward(model: nn.Module, pixels: Tensor, _: Tensor) -> None:
    with torch.no_grad():
        model.eval()(pixels)


def step(model: nn.Module, pixels: Tensor, right: Tensor) -> None:
    F.cross_entropy(model.train()(pixels), right).backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.sub_(parameter.grad, alpha=1e-4)
            parameter.grad = None


def cpu_seconds(work: Callable[..., None], *given: Any) -> float:
    start = time.process_time()
    work(*given)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--batch", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    pixels = torch.randn(options.batch, 3, 192, 256)
    right = torch.randint(0, CLASSES, (options.batch, 192, 256))
    models = {"ours": Ours(), "smp": theirs(), "smp_channels_last": theirs()}
    models["smp_channels_last"].to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    inputs = dict.fromkeys(models, pixels)
    inputs["smp_channels_last"] = pixels.contiguous(memory_format=torch.channels_last)
    measured: dict[str, Any] = {name: size(model, pixels) for name, model in models.items()}
    for work in (forward, step):
        taken: dict[str, list[float]] = {name: [] for name in models}
        for repeat in range(options.repeats + 1):
            for name, model in models.items():  # side by side, so that a busy moment meets all
                seconds = cpu_seconds(work, model, inputs[name], right)
                if repeat:
                    taken[name].append(seconds)
        medians = {name: statistics.median(seconds) for name, seconds in taken.items()}
        for name, seconds in medians.items():
            measured[name][f"{work.__name__}_cpu_seconds"] = seconds
            measured[name][f"{work.__name__}_ratio_to_smp"] = seconds / medians["smp"]
    for name, values in measured.items():
        print(name, {key: round(value, 3) for key, value in values.items()})
    save("segmentation", {"batch": options.batch, "image": [192, 256], "repeats": options.repeats, **measured})


if __name__ == "__main__":
    main()
