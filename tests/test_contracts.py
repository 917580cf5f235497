"""Contracts of every encoder and every decoder, so that a new part is tested without asking."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import pytest
import torch
from torch import Tensor

from tests.conftest import decoder, encoder, skipped_here, small_model
from twofold.config import Role, kinds, part_config
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders import DecoderConfig
from twofold.encoders import EncoderConfig
from twofold.generate.search import GenerateOptions
from twofold.inputs import INPUT
from twofold.inputs.text import Tokens
from twofold.model import Model
from twofold.types import Batch, Target, Vocabulary

T = TypeVar("T")
VOCABULARY = Vocabulary(size=20, limit=20, pad=0, unknown=1, start=2, end=3)
EXAMPLES = [
    {"source": "a b c d e f g", "target": "g f e"},
    {"source": "a", "target": "seven hundred and two"},
    {"source": "c a b", "target": "1"},
]
"""The row with the longest source has not the longest target."""
SYMBOLS = {"vocab_size": 100, "n_positions": 64, "bos_token_id": 3, "eos_token_id": 3}
FURTHER: dict[Role, dict[str, list[dict[str, Any]]]] = {
    "encoders": {
        "rnn": [{"cell": "lstm", "layers": 2}, {"bidirectional": False}],
        "transformer": [
            {"causal": True, "positions": "rotary", "norm_place": "post"},
            {"positions": "learned", "norm": "batch", "attention": "linear"},
            {"residual": False, "attention": "window", "window": 2},
        ],
        "pretrained": [
            {"architecture": {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, **SYMBOLS}},
            {"architecture": {"model_type": "distilbert", "dim": 8, "n_layers": 1, "n_heads": 2, "vocab_size": 100}},
        ],
        "text_convnet": [{"orders": [1, 4]}, {"residual": False}],
        "convnet": [
            {"norm": "group", "stem": 1, "activation": "gelu"},
            {"stem": 4, "blocks": 2, "widths": [8]},
            {"widths": [4, 8, 8, 12], "activation": "silu"},
            {"residual": False},
        ],
        "spectrogram": [
            {"layers": 0, "channels": [8], "positions": "none"},
            {"channels": [4, 4, 8], "positions": "rotary", "norm_place": "post", "attention": "linear"},
            {"positions": "learned", "norm": "batch", "layers": 2, "attention": "window", "window": 1},
        ],
        "vit": [
            {"stem": "convolutions", "positions": "learned", "norm": "batch"},
            {"positions": "none", "norm_place": "post", "patch": 3, "attention": "linear"},
            {"prefix": True},
            {"prefix": True, "stem": "convolutions", "patch": 2, "norm": "batch"},
            {"prefix": True, "positions": "learned", "norm_place": "post", "grid": 3},
            {"prefix": True, "positions": "none"},
        ],
    },
    "decoders": {
        "rnn": [{"cell": "lstm", "layers": 2, "tied": False}],
        "attention_rnn": [
            {"cell": "lstm", "layers": 1, "attention": "dot"},
            {"recurrence": "bahdanau"},
            {"recurrence": "bahdanau", "cell": "lstm", "layers": 1, "attention": "dot"},
        ],
        "transformer": [
            {"positions": "rotary", "norm_place": "post", "activation": "gelu", "tied": False, "attention": "linear"},
            {"positions": "learned", "norm": "batch", "attention": "window", "window": 2},
        ],
        "bi": [
            {"pooling": "first", "learn_scale": False},
            {"pooling": "attention", "normalize": "candidates"},
            {"pooling": "summary", "normalize": "none"},
        ],
        "poly": [
            {"code_kind": "first", "pooling": "max"},
            {"code_attention": "scaled", "attention": "scaled", "pooling": "summary"},
            {"attention": "multihead", "heads": 2, "normalize": "none", "pooling": "attention"},
        ],
        "cross": [
            *({"pooling": one} for one in ("first", "attention", "summary", "both")),
            *({"pooling": "both", "compare": {"kind": one}} for one in ("bi", "poly")),
        ],
        "unet": [
            {"skips": False, "norm": "group", "convolutions": 1},
            {"focal": 0.5, "dice": 2.0, "class_weights": [1.0, 0.5, 2.0], "activation": "gelu"},
            {"cross_entropy": 0.0, "dice": 1.0, "norm": "group", "activation": "silu"},
        ],
    },
}
"""Settings under which a kind is tested besides its own defaults."""


def still(part: T) -> T:
    """The part without dropout."""
    without: T = dataclasses.replace(cast(Any, part), dropout=0.0) if hasattr(part, "dropout") else part
    return without


def kinds_of(role: Role, what: str) -> list[str]:
    """The kinds of encoders that read this kind of input, or of decoders that write this kind of output."""
    field = "input" if role == "encoders" else "output"
    return [kind for kind in kinds(role) if getattr(part_config(role, kind), field) == what]


def every(role: Role, make: Callable[..., Any], what: str = "text") -> list[Any]:
    """Each kind of part without dropout, once with its defaults and once with each of its further settings."""
    cases = []
    for kind in kinds_of(role, what):
        for settings in ({}, *FURTHER[role].get(kind, [])):
            said = {
                key: value.get("model_type") if isinstance(value, dict) else value for key, value in settings.items()
            }
            name = "-".join([kind, *(f"{key}={value}" for key, value in said.items())])
            cases.append(pytest.param(still(make(kind, **settings)), id=name, marks=skipped_here(kind)))
    return cases


each_encoder = pytest.mark.parametrize("reads", every("encoders", encoder))
each_decoder = pytest.mark.parametrize("writes", every("decoders", decoder))


def some_batch(lengths: tuple[int, ...] = (6, 1, 4), seed: int = 0) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, VOCABULARY.size, (len(lengths), max(lengths)), generator=draw)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return reading(tokens.masked_fill(~mask, VOCABULARY.pad), mask)


def reading(tokens: Tensor, mask: Tensor) -> Batch:
    """A batch of texts."""
    return Batch({INPUT: Tokens(tokens, mask)})


def widened(tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Three more columns of padding; whatever stands where nothing is real must not matter."""
    more = tokens.new_full((len(tokens), 3), 7)
    wide = torch.cat([mask, torch.zeros_like(more, dtype=torch.bool)], 1)
    return torch.cat([tokens, more], 1).masked_fill(~wide, 7), wide


def fitting(writes: DecoderConfig) -> EncoderConfig:
    """The first encoder that gives what the decoder needs."""
    needs = writes.needs()
    choices = [encoder(kind) for kind in kinds_of("encoders", "text")]
    return still(next(part for part in choices if needs <= part.gives()))


def gives(reads: EncoderConfig) -> frozenset[str]:
    return reads.gives()


def tensors(reads: EncoderConfig) -> list[Literal["states", "summary"]]:
    """The fields that hold one tensor."""
    names: tuple[Literal["states", "summary"], ...] = ("states", "summary")
    return [name for name in names if name in gives(reads)]


@each_encoder
def test_an_encoder_fills_only_what_is_needed_in_the_shapes_of_its_spec(reads: EncoderConfig) -> None:
    batch, names = some_batch(), tensors(reads)
    assert names
    wanted = [frozenset(some) for size in range(1, len(names) + 1) for some in combinations(names, size)]
    for needs in wanted + [some | {"finish"} for some in wanted if "states" in some]:
        hidden = reads.build(VOCABULARY, needs).eval()(batch)
        rows, positions = hidden.mask.shape
        shapes = {"states": (rows, positions), "summary": (rows,)}
        assert rows == len(batch)
        for name in ("states", "summary"):
            value: Tensor | None = getattr(hidden, name)
            expected = (*shapes[name], reads.spec().width(name)) if name in needs else None
            assert (None if value is None else tuple(value.shape)) == expected


@each_encoder
def test_padding_does_not_change_states_or_summary(reads: EncoderConfig) -> None:
    torch.manual_seed(0)
    built = reads.build(VOCABULARY, gives(reads)).eval()
    batch = some_batch()
    read, together = batch.read(Tokens), built(batch)
    for row, length in enumerate(read.mask.sum(1).tolist()):
        alone = built(reading(read.tokens[row : row + 1, :length], read.mask[row : row + 1, :length]))
        for name in tensors(reads):
            single, many = alone.need(name)[0], together.need(name)[row]
            torch.testing.assert_close(many[:length] if name == "states" else many, single, atol=1e-5, rtol=1e-5)


@each_encoder
def test_a_summary_is_the_finished_mean_of_the_states_where_there_is_something_to_finish(reads: EncoderConfig) -> None:
    hidden = reads.build(VOCABULARY, gives(reads)).eval()(some_batch())
    if hidden.finish is None:
        pytest.skip("its states need no finish")
    rows = zip(hidden.need("states"), hidden.mask, strict=True)
    means = torch.stack([states[mask].mean(0) for states, mask in rows])
    torch.testing.assert_close(hidden.finish(means), hidden.need("summary"), atol=1e-5, rtol=1e-5)


@each_encoder
@pytest.mark.parametrize("training", [False, True])
def test_more_columns_of_padding_change_nothing_that_an_encoder_gives(reads: EncoderConfig, training: bool) -> None:
    torch.manual_seed(0)
    built = reads.build(VOCABULARY, gives(reads)).train(training)
    batch = some_batch()
    read = batch.read(Tokens)
    narrow, wide = built(batch), built(reading(*widened(read.tokens, read.mask)))
    for name in tensors(reads):
        first, other = narrow.need(name), wide.need(name)
        if name == "states":
            first, other = first[narrow.mask], other[wide.mask]
        torch.testing.assert_close(other, first, atol=1e-5, rtol=1e-5)


@each_encoder
def test_an_encoder_that_calls_itself_causal_does_not_look_ahead(reads: EncoderConfig) -> None:
    spec = reads.spec()
    if spec.states is None:
        pytest.skip("it gives no states")
    torch.manual_seed(0)
    built = reads.build(VOCABULARY, frozenset({"states"})).eval()
    batch = some_batch((6, 6))
    read = batch.read(Tokens)
    changed = read.tokens.clone()
    changed[:, -1] = (changed[:, -1] - 3) % (VOCABULARY.size - 4) + 4
    before, after = built(batch).need("states"), built(reading(changed, read.mask)).need("states")
    assert torch.allclose(before[:, :-1], after[:, :-1], atol=1e-6) == spec.causal
    assert not torch.allclose(before[:, -1], after[:, -1], atol=1e-3)


@each_decoder
def test_a_loss_over_many_rows_is_the_sum_of_the_losses_of_each(
    tokenizer: TextTokenizer, writes: DecoderConfig
) -> None:
    model = small_model(tokenizer, fitting(writes), writes).eval()
    together = model.losses(model.batch(EXAMPLES))["main"]
    alone = [model.losses(model.batch([example]))["main"] for example in EXAMPLES]
    assert together.count == sum(loss.count for loss in alone) == model.counts(model.batch(EXAMPLES))["main"]
    torch.testing.assert_close(together.sum, torch.stack([loss.sum for loss in alone]).sum(), atol=1e-5, rtol=1e-5)


@each_decoder
@pytest.mark.parametrize("training", [False, True])
def test_more_columns_of_padding_change_no_loss(
    tokenizer: TextTokenizer, writes: DecoderConfig, training: bool
) -> None:
    model = small_model(tokenizer, fitting(writes), writes).train(training)
    batch = model.batch(EXAMPLES)
    read, target = batch.read(Tokens), batch.targets["main"]
    wide = reading(*widened(read.tokens, read.mask))
    wide = wide.with_target("main", Target(*widened(target.tokens, target.mask)))
    narrow_loss, wide_loss = model.losses(batch)["main"], model.losses(wide)["main"]
    assert narrow_loss.count == wide_loss.count
    torch.testing.assert_close(wide_loss.sum, narrow_loss.sum, atol=1e-5, rtol=1e-5)


@each_encoder
@each_decoder
def test_every_parameter_of_a_pair_gets_a_gradient(
    tokenizer: TextTokenizer, reads: EncoderConfig, writes: DecoderConfig
) -> None:
    if not writes.needs() <= gives(reads):
        pytest.skip("this pair does not fit; tests/test_pairs.py sees the error")
    model = small_model(tokenizer, reads, writes).train()
    batch = model.batch(EXAMPLES)
    model.loss(batch).backward()  # type: ignore[no-untyped-call]
    learning = {name: value for name, value in model.named_parameters() if value.requires_grad}
    still = [name for name, value in learning.items() if value.grad is None or not value.grad.any()]
    assert not still


@each_encoder
@each_decoder
def test_a_saved_and_loaded_pair_gives_the_same_outputs(
    tokenizer: TextTokenizer, reads: EncoderConfig, writes: DecoderConfig, tmp_path: Path
) -> None:
    if not writes.needs() <= gives(reads):
        pytest.skip("this pair does not fit; tests/test_pairs.py sees the error")
    model = small_model(tokenizer, reads, writes)
    with torch.no_grad():
        for value in model.state_dict().values():
            value.add_(torch.rand_like(value) / 10)  # no tensor may keep what a new model would have anyway
    model.save_pretrained(tmp_path / "saved")
    loaded = Model.from_pretrained(tmp_path / "saved")
    assert loaded.config == model.config
    assert torch.equal(loaded.loss(loaded.batch(EXAMPLES)), model.eval().loss(model.batch(EXAMPLES)))
    texts = [example["source"] for example in EXAMPLES]
    options = GenerateOptions(max_length=6)
    assert loaded.predict(texts, options) == model.predict(texts, options)
