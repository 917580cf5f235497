"""What a model reads and writes of each row, as its settings say: the fields of its two sides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from twofold.data.corruption import Corruption
from twofold.data.fields import SOURCE, SourceField, TextField
from twofold.data.image_fields import CaptionField, ImageField, MaskField
from twofold.data.labels import LabelField
from twofold.data.pairs import ApartField, PairField
from twofold.data.tokenizer import Frame, TextTokenizer
from twofold.data.words import MOST_TREE_WORDS, TagsField, TreeField, WordsField
from twofold.errors import TwofoldError
from twofold.model.config import OF_WORDS, STRANGER, TOLD, ModelConfig
from twofold.types import Classes, EncoderConfig, Numbers

BEGUN = "<prefix>"
"""Where a row holds how its caption begins: a name that no column of a file will have."""
MASKED = 0.15
"""The share of the tokens that are to be guessed unless a recipe says (Devlin et al., 2018)."""


def source_field(config: ModelConfig, tokenizers: Mapping[str, TextTokenizer]) -> SourceField | ImageField:
    """The column, or the two columns, that a model reads."""
    if config.image is None:
        return _text_field(config, tokenizers[SOURCE])
    prefix = None
    if getattr(config.encoder, "prefix", False):
        name = next((one for one in config.decoders if one in tokenizers), None)
        if name is None:
            raise TwofoldError("encoder.prefix: no decoder writes a text that could be begun")
        prefix = TextField(BEGUN, tokenizers[name], config.max_target, config.too_long)
    return ImageField(str(config.source), config.image, prefix)


def _text_field(config: ModelConfig, tokenizer: TextTokenizer) -> SourceField:
    how, tail = (tokenizer, config.max_source, config.too_long), config.keep == "tail"
    frame = tokenizer.frame if config.frame else Frame()
    if not isinstance(config.source, str):
        around = tokenizer.frame if config.apart else Frame()
        first, second = TextField(config.source[0], *how, around, tail), TextField(config.source[1], *how, around)
        if config.apart:
            _check_room(config.max_source, len(around), 1)
            return ApartField(first, second)
        pair = PairField(first, second, tokenizer.frame)
        _check_room(config.max_source, len(pair.frame) + len(pair.frame.between), 2)
        return pair
    _check_room(config.max_source, len(frame), 1)
    written = {slot.part.writes for slot in config.decoders.values()}
    if not written.isdisjoint(OF_WORDS):
        return WordsField(config.source, *how, frame, most_words=MOST_TREE_WORDS if "tree" in written else None)
    return TextField(config.source, *how, frame, tail)


def _check_room(limit: int, frame: int, texts: int) -> None:
    if limit < frame + texts:
        raise TwofoldError(
            f"data.max_source={limit} leaves no room beside the {frame} symbols around a text; at least {frame + texts}"
        )


def target_field(name: str, config: ModelConfig, tokenizers: Mapping[str, TextTokenizer], source: Any) -> Any:
    """The column, or columns, that one decoder of a model writes; or what it writes where that is no column."""
    slot, masks = config.decoders[name], config.mask
    columns = (slot.target,) if isinstance(slot.target, str) else tuple(slot.target)
    match slot.part.writes:
        case "mask":
            assert masks is not None
            return MaskField(columns[0], source, Classes(masks.classes), masks.ignore, masks.first)
        case "tokens":
            return source.vocabulary
        case "label" if columns[0] == STRANGER:
            return Classes(TOLD)
        case "label":
            answers: Any = getattr(slot.part, "answers", "one")
            return LabelField(columns[0], answers, _output(name, config))
        case "tags":
            return TagsField(columns[0], source, Classes(tuple(config.classes[name])))
        case "tree":
            return TreeField(columns[0], columns[1], source, Classes(tuple(config.classes[name])))
    text = TextField(columns[0], tokenizers[name], config.max_target, config.too_long)
    return CaptionField(columns, text, source.refuse) if isinstance(source, ImageField) else text


def _output(name: str, config: ModelConfig) -> Classes | Numbers:
    return Numbers(*config.numbers[name]) if name in config.numbers else Classes(tuple(config.classes[name]))


def _guessed(name: str, masked: float | None, causal: bool) -> float:
    """The share of the tokens that a decoder guesses, 0 where it guesses each next one."""
    if masked is None:
        return 0.0 if causal else MASKED
    if causal and masked:
        raise TwofoldError(
            f"the decoder '{name}' guesses masked tokens, but the encoder is causal and cannot look behind them; "
            "masked: 0 guesses each next one"
        )
    if not causal and not masked:
        raise TwofoldError(
            f"the decoder '{name}' guesses each next token, which the encoder sees; take a causal one "
            f"(encoder.causal: true, or GPT-2), or masked: {MASKED}"
        )
    return masked


def corruption_of(config: ModelConfig, tokenizers: Mapping[str, TextTokenizer]) -> Corruption | None:
    """What is done to the texts before they are read in training, if anything is."""
    causal = cast(EncoderConfig, config.encoder).spec().causal
    guessing = {
        name: _guessed(name, getattr(slot.part, "masked", None), causal)
        for name, slot in config.decoders.items()
        if slot.part.writes == "tokens"
    }
    telling = [name for name, slot in config.decoders.items() if slot.target == STRANGER]
    if not (guessing or telling or config.noise):
        return None
    return Corruption(tokenizers[SOURCE], guessing, telling, config.strangers, config.noise)
