"""Worker of `encoding.py`: encodes texts in one or several ways, and answers with the CPU time that each took.

It runs in any environment that holds the library to be measured; twofold need not be installed there.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

Encode = Callable[[list[str], int], Any]
LONGEST = 256
"""Tokens of a text that both libraries read."""


def ours(about: dict[str, Any]) -> tuple[Encode, dict[str, str]]:
    """Our encode by one runtime and precision; batch sizes are its own."""
    import twofold

    model = twofold.load(about["model"], runtime=about["runtime"], precision=about["precision"])
    return lambda texts, batch: model.encode(texts), {"twofold": version("twofold"), **model.computing}


def theirs(about: dict[str, Any]) -> tuple[Encode, dict[str, str]]:
    """sentence-transformers' encode by one backend, on as many threads as torch has."""
    import torch
    from sentence_transformers import SentenceTransformer

    backend, precision, threads = about["runtime"], about["precision"], torch.get_num_threads()
    names, settings = ["sentence-transformers", "transformers"], {}
    if backend == "torch":
        settings = {"dtype": getattr(torch, precision)}
    elif backend == "openvino":
        hints = {"float32": {"INFERENCE_PRECISION_HINT": "f32"}}
        settings = {"ov_config": {"INFERENCE_NUM_THREADS": threads, **hints.get(precision, {})}}
        names += ["optimum-intel", "openvino"]
    else:
        import onnxruntime  # type: ignore[import-untyped]

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        settings = {"session_options": options}
        names += ["optimum-onnx", "onnxruntime"]
    model = SentenceTransformer(about["model"], device="cpu", backend=backend, model_kwargs=settings)
    model.max_seq_length = LONGEST

    def encode(texts: list[str], batch: int) -> Any:
        return model.encode(texts, batch_size=batch, show_progress_bar=False)

    return encode, {name: version(name) for name in names}


def timed(encode: Encode, asked: dict[str, Any]) -> dict[str, float]:
    """CPU seconds of all texts at once, or of each alone; the vectors go to a file where one is named."""
    texts, batch = asked["texts"], asked["batch"]
    start = time.process_time()
    vectors = [encode([text], batch) for text in texts] if asked["alone"] else encode(texts, batch)
    seconds = time.process_time() - start
    if asked["save"]:
        import numpy as np

        np.save(asked["save"], np.asarray(vectors, np.float32))
    return {"seconds": seconds}


def opened(about: dict[str, Any]) -> tuple[Encode | None, dict[str, Any]]:
    """One way of encoding, with the versions of its libraries; or the reason why there is none."""
    try:
        encode, versions = {"ours": ours, "theirs": theirs}[about["whose"]](about)
        encode(["how do I list a folder?"] * 4, 4)
    except Exception as error:  # a package that is missing, or a backend that cannot run
        return None, {"refused": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
    return encode, {"versions": versions}


def main() -> None:
    """Opens all ways, says their versions, then answers each line of JSON with one."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries print
    warnings.simplefilter("ignore")
    given = json.loads(sys.argv[1])

    import torch

    torch.set_num_threads(given["threads"])
    ways = {name: opened({**about, "model": given["model"]}) for name, about in given["ways"].items()}
    print(json.dumps({name: said for name, (_, said) in ways.items()}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        encode, _ = ways[asked["way"]]
        assert encode is not None
        print(json.dumps(timed(encode, asked)), file=answers, flush=True)


if __name__ == "__main__":
    main()
