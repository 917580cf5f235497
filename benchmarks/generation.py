"""Generation beside transformers' `generate`: tokens per second for Transformers of the same shape.

The sources have equal length, the weights are random and of equal size, and both sides generate exactly 30 tokens.
In bfloat16, theirs has weights of bfloat16. Both sides take turns in one process; the figures are medians of rounds, as
ratios. CTranslate2 is called through `runtime="ctranslate2"` and by hand, with the same options. `--model FOLDER` adds
the parts of a trained model, with its real end symbols: BLEU, equal texts and tokens a second through each engine, and
speed beside CTranslate2 by hand and beside `generate` of a model of transformers with the same weights.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any, cast

import torch
from _common import DATA, RESULTS, processor_flags, save
from _generation_trained import beside_ctranslate2, beside_transformers, engines
from transformers import MarianConfig, MarianMTModel

from twofold import runtime
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders.transformer import Config as DecoderConfig
from twofold.encoders.transformer import Config as EncoderConfig
from twofold.generate.search import GenerateOptions, write
from twofold.inputs import INPUT
from twofold.inputs.text import Config as TextConfig
from twofold.inputs.text import Tokens
from twofold.model import Model, ModelConfig, Task
from twofold.outputs.text import Config as WrittenConfig
from twofold.types import Batch, Vocabulary

VOCABULARY, SOURCE, TOKENS = 8_000, 20, 30
SHAPES = {"256 wide, 3+3 layers": (256, 3, 4), "512 wide, 6+6 layers": (512, 6, 8)}
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass
class Pair:
    """Our model and theirs, each as a function that generates from sources."""

    ours: Callable[[torch.Tensor, int], Any]
    theirs: Callable[[torch.Tensor, int], Any]


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


def theirs(width: int, layers: int, heads: int, precision: torch.dtype) -> Callable[[torch.Tensor, int], torch.Tensor]:
    config = MarianConfig(
        vocab_size=VOCABULARY, d_model=width, encoder_layers=layers, decoder_layers=layers,
        encoder_attention_heads=heads, decoder_attention_heads=heads, encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width, activation_function="relu", max_position_embeddings=128, pad_token_id=0,
        eos_token_id=3, decoder_start_token_id=2, forced_eos_token_id=None,
    )  # fmt: skip
    model: Any = MarianMTModel(config)
    model.to(precision).eval()

    def generate(sources: torch.Tensor, beam: int) -> torch.Tensor:
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            made: torch.Tensor = model.generate(
                sources, attention_mask=torch.ones_like(sources), num_beams=beam, do_sample=False,
                min_new_tokens=TOKENS, max_new_tokens=TOKENS,
            )  # fmt: skip
        return made

    return generate


def through_ctranslate2(width: int, layers: int, heads: int) -> Pair:
    """The same model through our engine, and through its translator by hand."""
    from twofold.runtime import ctranslate2

    shape = {"width": width, "layers": layers, "heads": heads, "norm_place": "post"}
    task = Task(DecoderConfig(**shape), WrittenConfig())  # type: ignore[arg-type]
    config = ModelConfig(TextConfig(), EncoderConfig(**shape), {"main": task})  # type: ignore[arg-type]
    tokenizer = TextTokenizer.untrained(VOCABULARY)
    model = Model(config, dict.fromkeys(config.tokenizers(), tokenizer)).eval()
    with torch.no_grad():  # never written, as after a training
        cast(Any, model.decoder()).embedding.weight[tokenizer.structure] = 0
        cast(Any, model.decoder()).embedding.weight[tokenizer.unknown] = 0
    runtime.install(model, "ctranslate2", "float32")
    names = ctranslate2.token_names(tokenizer, VOCABULARY)

    def engine(sources: torch.Tensor, beam: int) -> list[list[str]]:
        batch = Batch({INPUT: Tokens(sources, torch.ones_like(sources, dtype=torch.bool))})
        assert model.writer is not None
        written = model.writer(batch, GenerateOptions(beam=beam, min_length=TOKENS, max_length=TOKENS))
        assert written is not None, "CTranslate2 was not used"
        return [[names[token] for token in row.hypotheses[0].tokens] for row in written]

    def by_hand(sources: torch.Tensor, beam: int) -> list[list[str]]:
        # The translator that the engine opened: a second one of the same folder is up to a tenth faster or slower, by
        # where its weights lie in memory.
        translator = cast(Any, model.writer)._translator
        pieces = [[names[token] for token in row] for row in sources.tolist()]
        lengths = {"min_decoding_length": TOKENS, "max_decoding_length": TOKENS}
        results = translator.translate_batch(pieces, beam_size=beam, return_scores=True, **lengths)
        return [result.hypotheses[0] for result in results]

    return Pair(engine, by_hand)


def seconds(call: Callable[[], Any]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def sources_of(batch: int) -> torch.Tensor:
    return torch.randint(5, VOCABULARY, (batch, SOURCE), generator=torch.Generator().manual_seed(batch))


def measured(pair: Pair, batch: int, beam: int, precision: torch.dtype, rounds: int) -> dict[str, float]:
    """CPU seconds of both sides, taken in turn, and the median of the ratios theirs / ours."""
    sources = sources_of(batch)
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


def compared(make: Callable[[str], Pair], about: dict[str, Any], rounds: int) -> list[dict[str, Any]]:
    """Rows for one pair of programs, by shape, batch and beam."""
    rows = []
    for name in SHAPES:
        torch.manual_seed(0)
        pair = make(name)
        for batch in (1, 32):
            for beam in (1, 5):
                # One sentence takes little time, so that it can be measured more often.
                times = measured(pair, batch, beam, PRECISIONS[about["precision"]], rounds * (3 if batch == 1 else 1))
                rows.append({"shape": name, **about, "batch": batch, "beam": beam, **times})
                if "runtime" in about:
                    sources = sources_of(batch)
                    rows[-1]["equal_outputs"] = pair.ours(sources, beam) == pair.theirs(sources, beam)
                print(rows[-1], flush=True)
    return rows


def random_weights(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Ours beside transformers', in each precision."""
    rows = []
    for threads, precision in product(options.threads, options.precisions):
        torch.set_num_threads(threads)

        def both(name: str, kind: torch.dtype = PRECISIONS[precision]) -> Pair:
            return Pair(ours(*SHAPES[name]), theirs(*SHAPES[name], kind))

        rows += compared(both, {"threads": threads, "precision": precision}, options.rounds)
    return rows


def random_weights_by_ctranslate2(options: argparse.Namespace) -> list[dict[str, Any]]:
    """CTranslate2 through us beside CTranslate2 by hand."""
    rows = []
    for threads in options.threads:
        torch.set_num_threads(threads)
        about = {"threads": threads, "precision": "float32", "runtime": "ctranslate2"}
        rows += compared(lambda name: through_ctranslate2(*SHAPES[name]), about, options.rounds)
    return rows


PARTS: dict[str, Callable[[argparse.Namespace], list[dict[str, Any]]]] = {
    "rows": random_weights,
    "ctranslate2_beside_by_hand": random_weights_by_ctranslate2,
    "engines": lambda given: engines(given.model, given.data),
    "trained_ctranslate2_beside_by_hand": lambda given: beside_ctranslate2(given.model, given.data, given.rounds),
    "trained_beside_transformers": lambda given: beside_transformers(
        given.model, given.data, given.precisions, given.rounds
    ),
}
"""Parts of the results; the last three are of a trained model."""
TRAINED = ("engines", "trained_ctranslate2_beside_by_hand", "trained_beside_transformers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=["float32"])
    parser.add_argument("--model", help="folder of a trained model")
    parser.add_argument("--data", default=str(DATA / "multi30k" / "dev.tsv.gz"), help="rows with references")
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="parts that are measured; the others are kept")
    options = parser.parse_args()
    print("processor:", *processor_flags(), flush=True)
    torch.set_num_threads(options.threads[0])
    path = RESULTS / "generation.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    dates = known.get("dates", {part: known["date"] for part in PARTS if part in known})
    results = {part: known[part] for part in PARTS if part in known}
    for part in options.parts or [part for part in PARTS if options.model or part not in TRAINED]:
        if part in TRAINED and not options.model:
            parser.error(f"{part} needs --model")
        results[part] = PARTS[part](options)
        dates[part] = datetime.datetime.now(datetime.UTC).date().isoformat()
        about = {"processor": processor_flags(), "tokens": TOKENS, "vocabulary": VOCABULARY, "dates": dates}
        save("generation", {**about, **results})


if __name__ == "__main__":
    main()
