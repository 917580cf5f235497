"""Generation beside transformers' `generate`: tokens per second for Transformers of the same shape.

The sources have equal length, the weights are random and of equal size, and both sides generate exactly 30 tokens.
Both sides take turns in one process; the figures are medians of the rounds, as ratios.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from _common import processor_flags, save
from transformers import MarianConfig, MarianMTModel

from twofold.decoders.transformer import Config as DecoderConfig
from twofold.encoders.transformer import Config as EncoderConfig
from twofold.generate.search import GenerateOptions, write
from twofold.inputs import INPUT
from twofold.inputs.text import Tokens
from twofold.types import Batch, Vocabulary

VOCABULARY, SOURCE, TOKENS = 8_000, 20, 30
SHAPES = {"256 wide, 3+3 layers": (256, 3, 4), "512 wide, 6+6 layers": (512, 6, 8)}
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass
class Pair:
    """Our model and theirs, each as a function that generates from sources."""

    ours: Callable[[torch.Tensor, int], list[Any]]
    theirs: Callable[[torch.Tensor, int], torch.Tensor]


def ours(width: int, layers: int, heads: int) -> Callable[[torch.Tensor, int], list[Any]]:
    vocabulary = Vocabulary(VOCABULARY, limit=128, pad=0, unknown=1, start=2, end=3)
    shape = {"width": width, "layers": layers, "heads": heads, "norm_place": "post"}
    encoder = EncoderConfig(**shape).build(vocabulary, frozenset({"states"})).eval()  # type: ignore[arg-type]
    decoder = DecoderConfig(**shape).build(EncoderConfig(**shape).spec(), vocabulary).eval()  # type: ignore[arg-type]

    def generate(sources: torch.Tensor, beam: int) -> list[Any]:
        options = GenerateOptions(beam=beam, min_length=TOKENS, max_length=TOKENS)
        with torch.no_grad():
            hidden = encoder(Batch({INPUT: Tokens(sources, torch.ones_like(sources, dtype=torch.bool))}))
            return write(decoder, hidden, options)

    return generate


def theirs(width: int, layers: int, heads: int) -> Callable[[torch.Tensor, int], torch.Tensor]:
    config = MarianConfig(
        vocab_size=VOCABULARY, d_model=width, encoder_layers=layers, decoder_layers=layers,
        encoder_attention_heads=heads, decoder_attention_heads=heads, encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width, activation_function="relu", max_position_embeddings=128, pad_token_id=0,
        eos_token_id=3, decoder_start_token_id=2, forced_eos_token_id=None,
    )  # fmt: skip
    model: Any = MarianMTModel(config)
    model.eval()

    def generate(sources: torch.Tensor, beam: int) -> torch.Tensor:
        with torch.no_grad():
            made: torch.Tensor = model.generate(
                sources, attention_mask=torch.ones_like(sources), num_beams=beam, do_sample=False,
                min_new_tokens=TOKENS, max_new_tokens=TOKENS,
            )  # fmt: skip
        return made

    return generate


def seconds(call: Callable[[], Any]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def measured(pair: Pair, batch: int, beam: int, precision: torch.dtype, rounds: int) -> dict[str, float]:
    """CPU seconds of both sides, taken in turn, and the median of the ratios theirs / ours."""
    sources = torch.randint(4, VOCABULARY, (batch, SOURCE), generator=torch.Generator().manual_seed(batch))
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    with torch.autocast("cpu", precision, enabled=precision is not torch.float32):
        for turn in range(rounds + 1):
            taken = {
                "ours": seconds(lambda: pair.ours(sources, beam)),
                "theirs": seconds(lambda: pair.theirs(sources, beam)),
            }
            for name, value in taken.items():
                times[name] += [value] if turn else []  # the first turn warms up
    ratios = [slow / fast for fast, slow in zip(times["ours"], times["theirs"], strict=True)]
    ours, theirs = (statistics.median(times[name]) for name in ("ours", "theirs"))
    made = batch * TOKENS
    return {
        "ratio": round(statistics.median(ratios), 3),
        "tokens_per_second": round(made / ours, 1),
        "theirs_tokens_per_second": round(made / theirs, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=["float32"])
    options = parser.parse_args()
    print("processor:", *processor_flags(), flush=True)
    rows = []
    for name, shape in SHAPES.items():
        torch.manual_seed(0)
        pair = Pair(ours(*shape), theirs(*shape))
        for threads in options.threads:
            torch.set_num_threads(threads)
            for precision in options.precisions:
                for batch in (1, 32):
                    for beam in (1, 5):
                        # One sentence takes little time, so that it can be measured more often.
                        rounds = options.rounds * (3 if batch == 1 else 1)
                        times = measured(pair, batch, beam, PRECISIONS[precision], rounds)
                        about = {
                            "shape": name,
                            "threads": threads,
                            "precision": precision,
                            "batch": batch,
                            "beam": beam,
                        }
                        rows.append({**about, **times})
                        print(rows[-1], flush=True)
    save("generation", {"processor": processor_flags(), "tokens": TOKENS, "vocabulary": VOCABULARY, "rows": rows})


if __name__ == "__main__":
    main()
