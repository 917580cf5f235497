"""Limits on the length of texts, lowered to what the encoder of a model has positions for."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import cast

from twofold.config import kind_of
from twofold.data.tokenizer import Frame
from twofold.decoders import RankingDecoderConfig
from twofold.encoders import EncoderConfig
from twofold.errors import TwofoldError
from twofold.inputs import InputConfig
from twofold.model.config import MAIN, ModelConfig
from twofold.outputs.ranking import LEAST
from twofold.outputs.ranking import Config as RankingOutput


def within_positions(config: ModelConfig, frame: Frame) -> ModelConfig:
    """The same model, reading no more tokens than its encoder can; limits that are lowered are said."""
    longest = config.encoder.longest()
    if longest is None:
        return config
    if config.ranks:
        return _ranker_within(config, longest, frame)
    input = config.input.limited(longest)
    _say(config.encoder, longest, {"input": (config.input, input)})
    return replace(config, input=input)


def _ranker_within(config: ModelConfig, longest: int, frame: Frame) -> ModelConfig:
    task = config.tasks[MAIN]
    output = cast(RankingOutput, task.output)
    context = min([longest, *config.input.limits().values()])
    candidate = min([longest, *output.candidate.limits().values()])
    if cast(RankingDecoderConfig, task.decoder).joined:
        room = longest + len(frame) - len(frame.between)  # for two texts that share one frame
        # A context gives way to a candidate, down to half of the room.
        context = max(min(context, room - candidate), min(context, room // 2))
        candidate = min(candidate, room - context)
    if min(context, candidate) < LEAST:
        raise TwofoldError(f"{_name(config.encoder)} reads at most {longest} tokens, too few for texts; take another")
    input, candidates = config.input.limited(context), output.candidate.limited(candidate)
    changes = {"input": (config.input, input), "output.candidate": (output.candidate, candidates)}
    _say(config.encoder, longest, changes)
    return replace(config, input=input, tasks={MAIN: replace(task, output=replace(output, candidate=candidates))})


def _say(encoder: EncoderConfig, longest: int, changes: dict[str, tuple[InputConfig, InputConfig]]) -> None:
    lowered = [
        f"{place}.{name} is lowered from {limit} to {after.limits()[name]}"
        for place, (before, after) in changes.items()
        for name, limit in before.limits().items()
        if after.limits()[name] < limit
    ]
    if lowered:
        warnings.warn(f"{_name(encoder)} reads at most {longest} tokens: {', '.join(lowered)}", stacklevel=4)


def _name(encoder: EncoderConfig) -> str:
    return str(getattr(encoder, "name", kind_of(encoder)))
