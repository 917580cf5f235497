"""Limits on the length of texts, lowered to what the encoder of a model has positions for."""

from __future__ import annotations

import warnings
from dataclasses import replace

from twofold.config import EncoderPart, RankingPart, kind_of
from twofold.data.tokenizer import Frame
from twofold.errors import TwofoldError
from twofold.model.config import ModelConfig, RankerConfig

LEAST = 3
"""The fewest tokens of a text that are worth reading, those around it included."""


def within_positions(config: ModelConfig) -> ModelConfig:
    """The same model, reading no more tokens than its encoder can; a limit that is lowered is said."""
    longest = config.encoder.longest()
    if longest is None or config.max_source <= longest:
        return config
    _say(config.encoder, longest, {"max_source": (config.max_source, longest)})
    return replace(config, max_source=longest)


def ranker_within_positions(config: RankerConfig, frame: Frame) -> RankerConfig:
    """The same ranker, reading no more tokens than its encoder can; limits that are lowered are said."""
    longest = config.encoder.longest()
    if longest is None:
        return config
    context, candidate = min(config.max_context, longest), min(config.max_candidate, longest)
    if isinstance(config.decoder, RankingPart) and config.decoder.joined:
        room = longest + len(frame) - len(frame.between)  # for two texts that share one frame
        # A context gives way to a candidate, down to half of the room.
        context = max(min(context, room - candidate), min(context, room // 2))
        candidate = min(candidate, room - context)
    if min(context, candidate) < LEAST:
        raise TwofoldError(f"{_name(config.encoder)} reads at most {longest} tokens, too few for texts; take another")
    lowered = {
        name: (before, after)
        for name, before, after in (
            ("max_context", config.max_context, context),
            ("max_candidate", config.max_candidate, candidate),
        )
        if after < before
    }
    if lowered:
        _say(config.encoder, longest, lowered)
    return replace(config, max_context=context, max_candidate=candidate)


def _say(encoder: EncoderPart, longest: int, lowered: dict[str, tuple[int, int]]) -> None:
    changes = ", ".join(f"{name} is lowered from {before} to {after}" for name, (before, after) in lowered.items())
    warnings.warn(f"{_name(encoder)} reads at most {longest} tokens: {changes}", stacklevel=4)


def _name(encoder: EncoderPart) -> str:
    return str(getattr(encoder, "name", kind_of(encoder)))
