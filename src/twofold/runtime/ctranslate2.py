"""CTranslate2 as an engine: computes Transformers that read a text and write a text, as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.generate.decoder import TextDecoder
from twofold.inputs import INPUT
from twofold.inputs.text import Tokens
from twofold.layers.transformer import BlockSettings
from twofold.model import Model
from twofold.types import Vocabulary

PRECISIONS = {"float32": "float32", "int8": "int8"}
NEEDS = ("ctranslate2",)
"""Packages that computing and exporting take."""
WHOLE = True
"""Computes encoder and decoder together; other engines compute encoders."""
FILE = "model.bin"
"""File of the weights."""
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU"}


def version() -> str:
    """Returns the version of the library."""
    return installed_version("ctranslate2")


def load(folder: Path, precision: str, threads: int) -> Any:
    """Opens the translator of a converted model."""
    ctranslate2: Any = import_module("ctranslate2")

    computing = {"compute_type": PRECISIONS[precision], "inter_threads": 1, "intra_threads": threads}
    return ctranslate2.Translator(str(folder), device="cpu", **computing)


def refusal(model: Model) -> str | None:
    """Returns the reason why CTranslate2 cannot compute a model, None if it can."""
    parts = [model.encoder, *model.decoders.values()]
    if other := next((part for part in parts if not type(part).__module__.startswith("twofold.")), None):
        return f"{type(other).__name__} is a part from outside twofold"
    encoder, decoders = model.config.encoder, [task.decoder for task in model.config.tasks.values()]
    written = isinstance(model.outputs[model.decoder_name(None)].spec, Vocabulary)
    if len(decoders) > 1 or not written or model.config.input.gives is not Tokens:
        return "it computes models that read one text and write one text"
    for side, settings in (("encoder", encoder), ("decoder", decoders[0])):
        if not isinstance(settings, BlockSettings):
            return f"the {side} is no Transformer with weights of its own"
        if reason := _unlike(settings):
            return f"the {side} has {reason}"
    if getattr(encoder, "causal", False):
        return "the encoder has a causal mask"
    return None


def convert(model: Model, folder: Path) -> None:
    """Writes a model into a folder that CTranslate2 opens; one that it cannot compute is refused with the reason."""
    specs: Any = import_module("ctranslate2.specs")

    if reason := refusal(model):
        raise TwofoldError(f"cannot be exported to CTranslate2: {reason}")
    name = model.decoder_name(None)
    encoder, decoder = model.encoder, cast(TextDecoder, model.decoder(name))
    reading: Any = specs.TransformerEncoderSpec(**_settings(model.config.encoder))
    writing: Any = specs.TransformerDecoderSpec(**_settings(model.config.tasks[name].decoder))
    _fill_stack(reading, encoder)
    _fill_stack(writing, decoder)
    _fill_linear(writing.projection, decoder.output)
    spec = specs.TransformerSpec(reading, writing)
    vocabulary = model.outputs[name].spec
    assert isinstance(vocabulary, Vocabulary)
    names = token_names(model.tokenizers[name], vocabulary.size)
    spec.register_source_vocabulary(token_names(model.tokenizers[INPUT], reading.embeddings[0].weight.shape[0]))
    spec.register_target_vocabulary(names)
    spec.config.bos_token = spec.config.decoder_start_token = names[vocabulary.start]
    spec.config.eos_token, spec.config.unk_token = names[vocabulary.end], names[vocabulary.unknown]
    spec.validate()
    spec.optimize()
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


def token_names(tokenizer: TextTokenizer, size: int) -> list[str]:
    """Returns the piece of each token id, which CTranslate2 calls its token; ids without a piece get names."""
    names: dict[str, None] = {}
    for number, piece in enumerate(tokenizer.pieces(range(size))):
        names[piece if piece not in names else f"<unused {number}>"] = None
    return list(names)


def _unlike(settings: BlockSettings) -> str | None:
    """Returns the setting that CTranslate2 has no layer for."""
    if settings.attention != "full":
        return f"{settings.attention} attention"
    if settings.positions == "rotary":
        return "rotary positions"
    if settings.norm != "layer":
        return f"{settings.norm} norm"
    return None if settings.residual else "no residual connections"


def _settings(settings: Any) -> dict[str, Any]:
    """Settings of a stack of layers."""
    specs: Any = import_module("ctranslate2.specs")

    activation = getattr(specs.Activation, ACTIVATIONS[settings.activation])
    pre_norm = settings.norm_place == "pre"
    return {"num_layers": settings.layers, "num_heads": settings.heads, "pre_norm": pre_norm, "activation": activation}


def _fill_stack(spec: Any, stack: Any) -> None:
    """Embeddings, positions, layers and the last norm of an encoder or a decoder."""
    embeddings = spec.embeddings[0] if isinstance(spec.embeddings, list) else spec.embeddings
    embeddings.weight = _array(stack.embedding.weight)
    spec.position_encodings.encodings = _positions(stack)
    for layer, block in zip(spec.layer, stack.blocks, strict=True):
        _fill_linears(layer.self_attention.linear, (block.attention.project, block.attention.output))
        _fill_norm(layer.self_attention.layer_norm, block.around_attention.norm)
        if hasattr(block, "cross"):
            _fill_linears(layer.attention.linear, (block.cross.query, block.cross.memory, block.cross.output))
            _fill_norm(layer.attention.layer_norm, block.around_cross.norm)
        _fill_linears((layer.ffn.linear_0, layer.ffn.linear_1), (block.feed_forward.inner, block.feed_forward.outer))
        _fill_norm(layer.ffn.layer_norm, block.around_feed_forward.norm)
    if stack.norm is not None:
        _fill_norm(spec.layer_norm, stack.norm)


def _positions(stack: Any) -> NDArray[np.float32]:
    """Table of positional encodings, which is zero where there are none: without a table, CTranslate2 has its own."""
    table = getattr(stack.embed.positions, "table", None)
    return _array(table) if table is not None else np.zeros((1 << 12, stack.embedding.embedding_dim), np.float32)


def _fill_linears(specs: Sequence[Any], linears: Sequence[nn.Linear]) -> None:
    for spec, linear in zip(specs, linears, strict=True):
        _fill_linear(spec, linear)


def _fill_linear(spec: Any, linear: nn.Linear) -> None:
    spec.weight = _array(linear.weight)
    if linear.bias is not None:
        spec.bias = _array(linear.bias)


def _fill_norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: Tensor) -> NDArray[np.float32]:
    return tensor.detach().float().cpu().numpy()
