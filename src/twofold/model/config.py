"""Settings of a whole model, the check that its parts fit, and token limits that its encoder supports."""

from __future__ import annotations

import math
import re
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from twofold.config import Part, Role, kind_of, kinds, part_config
from twofold.data.tokenizer import Frame
from twofold.decoders import DecoderConfig, RankingDecoderConfig
from twofold.encoders import EncoderConfig
from twofold.errors import TwofoldError
from twofold.generate.search import GenerateOptions
from twofold.inputs import INPUT, InputConfig
from twofold.losses import LossConfig
from twofold.losses.in_batch import Config as InBatch
from twofold.outputs import OutputConfig
from twofold.outputs.ranking import LEAST
from twofold.outputs.ranking import Config as RankingOutput

MAIN = "main"
"""Name of a model's only decoder."""
DEFAULT_LOSSES: tuple[LossConfig, ...] = (InBatch(),)


@dataclass(frozen=True)
class Task:
    """One decoder, its output, and the weight of its loss."""

    decoder: DecoderConfig
    """Decoder g: H → Y."""
    output: OutputConfig
    """Output Y that the decoder learns to write; its kind follows from the decoder if the recipe names none."""
    weight: float = 1.0
    """Factor of the decoder's loss in the sum over all decoders."""

    def __post_init__(self) -> None:
        if not 0 < self.weight < math.inf:
            raise ValueError(f"weight {self.weight}: must be above 0, and finite")


@dataclass(frozen=True)
class ModelConfig:
    """Settings of a model: the input, the encoder, and each decoder with its output."""

    input: InputConfig
    """Input X; its kind follows from the outputs and the encoder if the recipe names none."""
    encoder: EncoderConfig
    """Encoder f: X → H. A recipe may give a training folder instead, whose encoder it starts from."""
    tasks: Mapping[str, Task]
    """Decoders by name, each with its output. A recipe writes `decoder` and `output`, or `decoders` for several."""
    tie_embeddings: bool = False
    """Shares one embedding table among the encoder and all decoders; needs one tokenizer for both sides."""
    generate: GenerateOptions = field(default_factory=GenerateOptions)
    """Default options of text generation, saved with the model."""
    candidate_encoder: EncoderConfig | None = None
    """Rankers: encoder of the candidates (second tower), if its settings differ from those of the context encoder."""
    two_towers: bool = False
    """Rankers: encodes candidates with a second tower, which starts from the same weights. For a cross-encoder with
    `compare`, the second tower encodes the texts that are read alone."""
    losses: tuple[LossConfig, ...] = DEFAULT_LOSSES
    """Rankers: losses that are added; the default is cross-entropy with in-batch negatives."""

    @property
    def ranks(self) -> bool:
        """True if the model ranks candidates."""
        return any(isinstance(task.decoder, RankingDecoderConfig) for task in self.tasks.values())

    def tokenizers(self) -> tuple[str, ...]:
        """Names of the tokenizers that the model needs, the input's first."""
        writing = tuple(name for name, task in self.tasks.items() if task.output.tokenized(self.input))
        return writing if self.input.tokenizer_settings() is None else (INPUT, *writing)

    def needs(self) -> frozenset[str]:
        """Fields of `Hidden` that any decoder reads."""
        return frozenset().union(*(task.decoder.needs() for task in self.tasks.values()))

    def reversed(self) -> ModelConfig:
        """Settings of the reversed ranker, which finds contexts for candidates."""
        task, other = self.tasks[MAIN], self.candidate_encoder
        input, output = cast(RankingOutput, task.output).reversed(self.input)
        swapped = replace(self, encoder=other or self.encoder, candidate_encoder=other and self.encoder)
        return replace(swapped, input=input, tasks={MAIN: replace(task, output=output)})

    def check(self) -> None:
        """Refuses parts that do not fit; names the needed and given fields, and kinds that fit."""
        check_reading(self.input, self.encoder)
        for name, task in self.tasks.items():
            if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name == INPUT:
                raise TwofoldError(f"recipe.decoders: '{name}' cannot be the name of a decoder; use a-z, 0-9 and _")
            check_fit(self.encoder, task.decoder)
            check_writing(task)
            self._check_input(task)
        self._check_prefix()
        drawing = [kind_of(task.output) for task in self.tasks.values() if task.output.draws_items]
        if len(drawing) > 1:
            raise TwofoldError(
                f"recipe.decoders: {' and '.join(drawing)} would each change the input at random; keep one"
            )
        if self.ranks:
            self._check_ranking()

    def _check_input(self, task: Task) -> None:
        """Refuses an input that does not suit the output or the decoder."""
        task.output.check(self.input)
        kind = kind_of(task.decoder)
        if task.decoder.compares() and self.input.texts < 2:
            raise TwofoldError(f"the decoder '{kind}' compares two texts: input: {{kind: pair, column: [a, b]}}")
        if self.input.apart:
            if not task.decoder.compares():
                raise TwofoldError(
                    f"input.read: apart: the two texts would look alike to the decoder '{kind}'; "
                    "take decoder: {kind: label, compare: cosine}, or features"
                )
            if position := task.decoder.keeps_position():
                raise TwofoldError(
                    f"input.read: apart: two texts read apart have no {position} token in common; pooling: mean"
                )

    def _check_prefix(self) -> None:
        begun = [name for name, task in self.tasks.items() if task.output.begins()]
        if begun and self.encoder.beside() is None:
            raise TwofoldError("output.prefix needs an encoder that reads a text as well: kind: vit, prefix: true")
        if begun and sum(task.output.writes_text for task in self.tasks.values()) > 1:
            raise TwofoldError("output.prefix needs a single decoder that writes text, and there are several")
        if self.encoder.beside() is not None and not any(task.output.writes_text for task in self.tasks.values()):
            raise TwofoldError("encoder.prefix: no decoder writes text; leave it out")

    def _check_ranking(self) -> None:
        task = next(iter(self.tasks.values()))
        if len(self.tasks) > 1:
            raise TwofoldError(f"the decoder '{kind_of(task.decoder)}' ranks, and must be a recipe's only `decoder`")
        decoder, output = cast(RankingDecoderConfig, task.decoder), cast(RankingOutput, task.output)
        if decoder.joined and self.candidate_encoder is not None:
            raise TwofoldError(f"candidate_encoder: the decoder '{kind_of(decoder)}' reads both sides as one text")
        if any(loss.needs_teacher for loss in self.losses) and decoder.joined:
            raise TwofoldError("a teacher's scores are for decoders that read both sides apart, bi and poly")
        if decoder.joined and output.candidate.gives is not self.input.gives:
            raise TwofoldError(f"the decoder '{kind_of(decoder)}' reads both sides as one text; take bi, poly or late")
        other = self.candidate_encoder or self.encoder
        try:
            check_reading(output.candidate, other)
            check_fit(other, decoder)
        except TwofoldError as error:
            place = "output.candidate" if self.candidate_encoder is None else "candidate_encoder"
            raise TwofoldError(f"{place}: {error}") from None


@contextmanager
def building(part: Part) -> Iterator[None]:
    """Turns an error while a user's own part is built into one line with the part and the place in its code."""
    try:
        yield
    except TwofoldError:
        raise
    except Exception as error:
        kind, frame = kind_of(part), traceback.extract_tb(error.__traceback__)[-1]
        if "." not in kind:
            raise
        place = f"{Path(frame.filename).name}:{frame.lineno}"
        said = f"({place}: {type(error).__name__}: {error})"
        raise TwofoldError(f"the {part.role.removesuffix('s')} '{kind}' cannot be built {said}") from error


def check_reading(input: InputConfig, encoder: EncoderConfig) -> None:
    """Refuses an encoder that cannot read the input."""
    if not issubclass(input.gives, encoder.reads):
        readable = [kind for kind, config in _configs("inputs").items() if issubclass(config.gives, encoder.reads)]
        raise _misfit(
            encoder, f"reads {class_words(encoder.reads)}", input, f"gives {class_words(input.gives)}", readable
        )


def check_fit(encoder: EncoderConfig, decoder: DecoderConfig) -> None:
    """Refuses an encoder that does not give the fields that the decoder needs; names both, and encoders that fit."""
    gives, needs = encoder.gives(), decoder.needs()
    if not needs <= gives:
        giving = {}
        for kind, config in _configs("encoders").items():
            with suppress(TypeError):  # a setting of it has no default
                if needs <= config().gives():
                    giving[kind] = config
        # Those that read the same, if there are any.
        alike = [kind for kind, config in giving.items() if config.reads is encoder.reads]
        raise _misfit(decoder, f"needs {_and(needs)}", encoder, f"gives {_and(gives)}", alike or giving)


def check_writing(task: Task) -> None:
    """Refuses an output that does not take the decoder's result class."""
    decoder, output = task.decoder, task.output
    if decoder.writes is not output.takes:
        made = [kind for kind, config in _configs("outputs").items() if config.takes is decoder.writes]
        raise _misfit(
            decoder, f"writes {class_words(decoder.writes)}", output, f"takes {class_words(output.takes)}", made
        )


def check_widths(encoder: EncoderConfig, other: EncoderConfig, needs: frozenset[str]) -> None:
    """Refuses encoders of contexts and candidates with different widths, since one decoder reads both."""
    for name in sorted(needs & {"states", "summary"}):
        width, other_width = (getattr(part.spec(), name) for part in (encoder, other))
        if width != other_width:
            raise TwofoldError(
                f"candidate_encoder: its {name} are {other_width} wide, but the encoder's are {width}; make them equal"
            )


def within_positions(config: ModelConfig, frame: Frame) -> ModelConfig:
    """Copy with token limits within the encoder's positions; warns about lowered limits."""
    longest = config.encoder.longest()
    if longest is None:
        return config
    if config.ranks:
        return _ranker_within(config, longest, frame)
    input = config.input.limited(longest)
    _say_lowered(config.encoder, longest, {"input": (config.input, input)})
    return replace(config, input=input)


def _ranker_within(config: ModelConfig, longest: int, frame: Frame) -> ModelConfig:
    task = config.tasks[MAIN]
    output = cast(RankingOutput, task.output)
    context = min([longest, *config.input.limits().values()])
    candidate = min([longest, *output.candidate.limits().values()])
    decoder = cast(RankingDecoderConfig, task.decoder).limited(longest)
    if decoder.joined and decoder.joint_limit() is None:
        room = longest + len(frame) - len(frame.between)  # for two texts that share one frame
        # A context gives way to a candidate, down to half of the room.
        context = max(min(context, room - candidate), min(context, room // 2))
        candidate = min(candidate, room - context)
    if min(context, candidate) < LEAST:
        name = _encoder_name(config.encoder)
        raise TwofoldError(f"{name} reads at most {longest} tokens, too few for texts; take another model")
    input, candidates = config.input.limited(context), output.candidate.limited(candidate)
    changes = {"input": (config.input, input), "output.candidate": (output.candidate, candidates)}
    _say_lowered(config.encoder, longest, changes)
    task = replace(task, decoder=decoder, output=replace(output, candidate=candidates))
    return replace(config, input=input, tasks={MAIN: task})


def _say_lowered(encoder: EncoderConfig, longest: int, changes: dict[str, tuple[InputConfig, InputConfig]]) -> None:
    lowered = [
        f"{place}.{name} is lowered from {limit} to {after.limits()[name]}"
        for place, (before, after) in changes.items()
        for name, limit in before.limits().items()
        if after.limits()[name] < limit
    ]
    if lowered:
        said = f"{_encoder_name(encoder)} reads at most {longest} tokens: {', '.join(lowered)}"
        warnings.warn(said, stacklevel=4)


def _encoder_name(encoder: EncoderConfig) -> str:
    return str(getattr(encoder, "name", kind_of(encoder)))


def _configs(role: Role) -> dict[str, Any]:
    """`Config` classes of a folder of parts, by kind."""
    return {kind: part_config(role, kind) for kind in kinds(role)}


def _misfit(part: Part, wants: str, other: Part, gives: str, would_do: Iterable[str]) -> TwofoldError:
    """Error that names two parts that do not fit, and the kinds that would fit."""
    first, second = (f"the {config.role.removesuffix('s')} '{kind_of(config)}'" for config in (part, other))
    return TwofoldError(f"{first} {wants}, but {second} {gives}; these would do: {_and(would_do)}")


def class_words(kind: type) -> str:
    """Class name as words: `TokenScores` becomes "token scores"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__).lower()


def _and(names: Iterable[str]) -> str:
    return " and ".join(sorted(set(names) - {"finish"})) or "none"
