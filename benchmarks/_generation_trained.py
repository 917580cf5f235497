"""Generation by a trained model, with its real end symbols: BLEU of each engine, and speed beside other programs.

transformers' side is a Blenderbot that holds the same weights: like our Transformer it normalizes before each sub-layer
(Marian normalizes after it), and its table of learned positions takes our sinusoids. CTranslate2 by hand is the same
translator, called with the same options.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import BlenderbotConfig, BlenderbotForConditionalGeneration

import twofold
from twofold.data.batches import by_length
from twofold.generate.decoder import TextDecoder
from twofold.generate.search import GenerateOptions
from twofold.inputs import INPUT
from twofold.inputs.text import Tokens
from twofold.metrics.text import compare
from twofold.model import Model
from twofold.results import Hypotheses
from twofold.runtime.translating import PATIENCE
from twofold.types import Batch, Vocabulary

ENGINES = (("torch", "float32"), ("torch", "bfloat16"), ("ctranslate2", "float32"), ("ctranslate2", "int8"))
BEAMS = (1, 5)
BATCHES = {1: 40, 32: 256}
"""Number of sentences that are timed, by the size of a batch."""
Written = list[list[int]]
Program = Callable[[Tokens, int], Written]


def engines(folder: str, data: str) -> list[dict[str, Any]]:
    """BLEU, texts equal to torch's and tokens per CPU second of a trained model through each engine."""
    rows: list[dict[str, Any]] = []
    right: dict[int, list[Any]] = {}
    for engine, precision in ENGINES:
        model = twofold.load(folder, runtime=engine, precision=precision)
        read = list(model.read(data))
        texts = [model.input.value(row) for row in read]
        references = [next(iter(model.outputs[model.decoder_name(None)].config.row_texts(row))) for row in read]
        model.predict(texts[:2])  # makes the engine's file
        for beam in BEAMS:
            start = time.process_time()
            predictions = model.predict(texts, GenerateOptions(beam=beam))
            taken = time.process_time() - start
            written = [prediction.output for prediction in predictions]
            first = right.setdefault(beam, written)
            made = sum(len(prediction.tokens or ()) + 1 for prediction in predictions)
            row = {"runtime": engine, "precision": precision, "beam": beam, "texts": len(texts)}
            row["tokens_per_second"] = round(made / taken, 1)
            row["equal_texts"] = share_equal(written, first)
            row["bleu"] = round(compare(written, references)["bleu"], 2)
            rows.append(row)
            print(row, flush=True)
    return rows


def beside_transformers(folder: str, data: str, precisions: Sequence[str], rounds: int) -> list[dict[str, Any]]:
    """Ratios of CPU seconds for the same sentences, and the share of equal outputs."""
    rows = []
    for precision in precisions:
        model = twofold.load(folder, runtime="torch", precision=precision)
        other = same_weights(model, getattr(torch, precision))
        for row in timed(model, data, torch_program(model), transformers_program(model, other), rounds):
            rows.append({"precision": precision, **row})
            print(rows[-1], flush=True)
    return rows


def beside_ctranslate2(folder: str, data: str, rounds: int) -> list[dict[str, Any]]:
    """Ratios of CPU seconds through us and by hand, with equal outputs."""
    model = twofold.load(folder, runtime="ctranslate2", precision="float32")
    model.predict(["Ein Mann."])  # makes the engine's file
    rows = []
    for row in timed(model, data, engine_program(model), ctranslate2_program(model), rounds):
        rows.append(row)
        print(row, flush=True)
    return rows


def timed(model: Model, data: str, ours: Program, theirs: Program, rounds: int) -> Iterable[dict[str, Any]]:
    """CPU seconds of two programs that write the same sentences in turn."""
    for size, beam in product(BATCHES, BEAMS):
        batches = batches_of(model, data, size)
        times: dict[str, list[float]] = {"ours": [], "theirs": []}
        written: dict[str, Written] = {}
        for turn in range(rounds * (3 if size == 1 else 1) + 1):  # one sentence takes little time
            for name, program in (("ours", ours), ("theirs", theirs)):
                start = time.process_time()
                written[name] = [row for batch in batches for row in program(batch, beam)]
                times[name] += [time.process_time() - start] if turn else []  # the first turn warms up
        ratios = [slow / fast for fast, slow in zip(times["ours"], times["theirs"], strict=True)]
        yield {
            "batch": size,
            "beam": beam,
            "ratio": round(statistics.median(ratios), 3),
            "tokens_per_second": round(
                sum(len(row) + 1 for row in written["ours"]) / statistics.median(times["ours"]), 1
            ),
            "equal_outputs": share_equal(written["ours"], written["theirs"]),
        }


def batches_of(model: Model, data: str, size: int) -> list[Tokens]:
    """The first sentences of a file, in batches of like length."""
    items = model.input.items(list(model.read(data))[: BATCHES[size]])
    order = [number for group in by_length([len(item) for item in items], 10**9) for number in group]
    groups = [order[start : start + size] for start in range(0, len(order), size)]
    return [cast(Tokens, model.input.batch([items[number] for number in group])) for group in groups]


def share_equal(written: Sequence[Any], right: Sequence[Any]) -> float:
    equal = sum(1 for ours, theirs in zip(written, right, strict=True) if ours == theirs)
    return round(equal / len(right), 4)


def torch_program(model: Model) -> Program:
    part = cast(TextDecoder, model.decoder())

    def write(text: Tokens, beam: int) -> Written:
        with torch.no_grad(), model.evaluating(), model.autocast():
            return tokens_of(part.predict(model.encode_batch(Batch({INPUT: text})), GenerateOptions(beam=beam)))

    return write


def engine_program(model: Model) -> Program:
    def write(text: Tokens, beam: int) -> Written:
        assert model.writer is not None
        written = model.writer(Batch({INPUT: text}), GenerateOptions(beam=beam))
        assert written is not None, "CTranslate2 was not used"
        return tokens_of(written)

    return write


def tokens_of(written: Sequence[Hypotheses]) -> Written:
    return [list(row.hypotheses[0].tokens) for row in written]


def ctranslate2_program(model: Model) -> Program:
    """The translator that our engine opened; a second one of the same folder is faster or slower by up to a
    tenth, by where its weights lie in memory."""
    engine = cast(Any, model.writer)
    ids = {name: number for number, name in enumerate(engine._names)}
    limit = vocabulary_of(model).limit

    def write(text: Tokens, beam: int) -> Written:
        lengths = text.mask.sum(1).tolist()
        rows = zip(text.tokens.tolist(), lengths, strict=True)
        sources = [[engine._read[token] for token in tokens[:length]] for tokens, length in rows]
        options = {"beam_size": beam, "max_input_length": 0, "max_decoding_length": limit}
        options |= {"patience": PATIENCE, "num_hypotheses": PATIENCE * beam} if beam > 1 else {}
        results = engine._translator.translate_batch(sources, return_scores=True, **options)
        return [[ids[name] for name in result.hypotheses[0]] for result in results]

    return write


def transformers_program(model: Model, other: Any) -> Program:
    vocabulary = vocabulary_of(model)

    def write(text: Tokens, beam: int) -> Written:
        with torch.no_grad():
            made = other.generate(
                text.tokens, attention_mask=text.mask.long(), num_beams=beam, do_sample=False,
                max_new_tokens=vocabulary.limit,
            )  # fmt: skip
        return [
            [token for token in row if token not in (vocabulary.end, vocabulary.pad)] for row in made[:, 1:].tolist()
        ]

    return write


def vocabulary_of(model: Model) -> Vocabulary:
    return cast(Vocabulary, model.outputs[model.decoder_name(None)].spec)


def same_weights(model: Model, precision: torch.dtype) -> Any:
    """transformers' Blenderbot with the weights of a model of ours."""
    encoder, decoder, vocabulary = cast(Any, model.encoder), cast(Any, model.decoder()), vocabulary_of(model)
    reading, writing = model.config.encoder, model.config.tasks[model.decoder_name(None)].decoder
    settings = cast(Any, reading), cast(Any, writing)
    inner = [one.feed_forward or 4 * one.width for one in settings]
    config = BlenderbotConfig(
        vocab_size=vocabulary.size, d_model=settings[0].width, encoder_layers=settings[0].layers,
        decoder_layers=settings[1].layers, encoder_attention_heads=settings[0].heads,
        decoder_attention_heads=settings[1].heads, encoder_ffn_dim=inner[0], decoder_ffn_dim=inner[1],
        activation_function=settings[0].activation, max_position_embeddings=vocabulary.limit + 1, scale_embedding=True,
        pad_token_id=vocabulary.pad, eos_token_id=vocabulary.end, bos_token_id=vocabulary.start,
        decoder_start_token_id=vocabulary.start, forced_eos_token_id=None, encoder_no_repeat_ngram_size=0,
        tie_word_embeddings=False,
    )  # fmt: skip
    other: Any = BlenderbotForConditionalGeneration(config)
    with torch.no_grad():
        for ours, theirs in ((encoder, other.model.encoder), (decoder, other.model.decoder)):
            theirs.embed_tokens.weight = nn.Parameter(ours.embedding.weight.clone())
            theirs.embed_positions.weight = nn.Parameter(ours.embed.positions.table.clone())
            _copy(ours.norm, theirs.layer_norm)
            for block, layer in zip(ours.blocks, theirs.layers, strict=True):
                _copy_layer(block, layer)
        other.lm_head.weight.copy_(decoder.output.weight)
        if decoder.output.bias is not None:
            other.final_logits_bias.copy_(decoder.output.bias[None])
    other.generation_config.max_length = None
    return other.to(precision).eval()


def _copy_layer(block: Any, layer: Any) -> None:
    parts = (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj)
    _split(block.attention.project, parts)
    _copy(block.attention.output, layer.self_attn.out_proj)
    _copy(block.around_attention.norm, layer.self_attn_layer_norm)
    if hasattr(block, "cross"):
        _copy(block.cross.query, layer.encoder_attn.q_proj)
        _split(block.cross.memory, (layer.encoder_attn.k_proj, layer.encoder_attn.v_proj))
        _copy(block.cross.output, layer.encoder_attn.out_proj)
        _copy(block.around_cross.norm, layer.encoder_attn_layer_norm)
    _copy(block.feed_forward.inner, layer.fc1)
    _copy(block.feed_forward.outer, layer.fc2)
    _copy(block.around_feed_forward.norm, layer.final_layer_norm)


def _split(fused: Any, parts: Sequence[Any]) -> None:
    """A fused map's rows, given to the maps that it stands for."""
    tables: list[tuple[Tensor, Tensor]] = list(
        zip(fused.weight.chunk(len(parts)), fused.bias.chunk(len(parts)), strict=True)
    )
    for part, (weight, bias) in zip(parts, tables, strict=True):
        part.weight.copy_(weight)
        part.bias.copy_(bias)


def _copy(ours: Any, theirs: Any) -> None:
    theirs.weight.copy_(ours.weight)
    if ours.bias is not None:
        theirs.bias.copy_(ours.bias)
