"""Worker of `encoding.py`: encodes texts in a process of its own, and answers with the CPU time that this took.

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
        import onnxruntime

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


def main() -> None:
    """Opens the library, says its versions, then answers each line of JSON with one."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries print
    about = json.loads(sys.argv[1])

    def answer(content: dict[str, Any]) -> None:
        print(json.dumps(content), file=answers, flush=True)

    try:
        warnings.simplefilter("ignore")
        import torch

        torch.set_num_threads(about["threads"])
        encode, versions = {"ours": ours, "theirs": theirs}[about["whose"]](about)
        encode(["how do I list a folder?"] * 4, 4)
    except Exception as error:  # a package that is missing, or a backend that cannot run
        answer({"refused": f"{type(error).__name__}: {error}".splitlines()[0][:300]})
        return
    answer({"versions": versions})
    for line in sys.stdin:
        answer(timed(encode, json.loads(line)))


if __name__ == "__main__":
    main()
