"""Reprs of models and of their settings: parts, what passes between them, and numbers of parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch import nn

from twofold.config import Part, kind_of
from twofold.encoders import EncoderConfig
from twofold.inputs import InputConfig
from twofold.model.config import MAIN
from twofold.outputs import OutputConfig
from twofold.results.shown import changes, cut, screen, short

if TYPE_CHECKING:
    from twofold.model.config import ModelConfig, Task
    from twofold.model.model import Model
    from twofold.model.ranker import Ranker

LINE = 100
"""Maximum number of characters of one part."""
NESTED = 50
"""Maximum number of characters of settings within settings."""


def part_line(part: Part, width: int = LINE) -> str:
    """Formats a part by its kind and the settings that differ from the defaults: `rnn(width=12)`."""
    settings = changes(part, _setting)
    return cut(f"{kind_of(part)}({settings})" if settings else kind_of(part), width)


def config_parts(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """Names of the parts of a model, and their settings."""
    yield "input", _input(config.input)
    yield "encoder", part_line(config.encoder)
    if config.candidate_encoder is not None:
        yield "candidate encoder", part_line(config.candidate_encoder)
    for name, task in config.tasks.items():
        yield "decoder" if name == MAIN else f"decoder {name}", f"{part_line(task.decoder)} → {_output(task)}"
    if config.ranks:
        yield "losses", ", ".join(part_line(loss) for loss in config.losses)


def model_lines(model: Model) -> str:
    """Describes a model in a few lines."""
    return screen(_title(model), _parts(model))


def ranker_lines(ranker: Ranker) -> str:
    """Describes a ranker in a few lines."""
    return screen(_title(ranker), _ranker_parts(ranker))


def _title(model: Model) -> str:
    return f"{type(model).__name__}: {_count(model)} on {model.device}"


def _parts(model: Model) -> Iterator[tuple[str, str]]:
    yield "input", _input(model.input.config)
    yield "encoder", _encoder(model.config.encoder, model.encoder)
    for name, task in model.config.tasks.items():
        title = "decoder" if name == MAIN else f"decoder {name}"
        yield title, f"{part_line(task.decoder)}: {_count(model.decoder(name))}"
        yield "output" if name == MAIN else f"output {name}", _output(task)


def _ranker_parts(ranker: Ranker) -> Iterator[tuple[str, str]]:
    yield "contexts", _input(ranker.contexts.config)
    yield "candidates", _input(ranker.candidates.config)
    yield "encoder", _encoder(ranker.config.encoder, ranker.encoder)
    if ranker.candidate_tower is not None:
        reads = ranker.config.candidate_encoder or ranker.config.encoder
        yield "candidate encoder", _encoder(reads, ranker.candidate_tower)
    yield "decoder", f"{part_line(ranker.config.tasks[MAIN].decoder)}: {_count(ranker.head)}"
    yield "losses", ", ".join(part_line(loss) for loss in ranker.config.losses)


def _columns(config: InputConfig | OutputConfig, limits: Mapping[str, int]) -> str:
    """Kind of an input or output, its columns, limits and further settings."""
    columns = [f"column {column}" for column in config.columns()]
    shown = [*columns, *(f"{name}={limit}" for name, limit in limits.items())]
    further = changes(config, _setting, ("column", *limits))
    return cut(", ".join([kind_of(config), *shown, *([further] if further else [])]), LINE)


def _input(config: InputConfig) -> str:
    return _columns(config, config.limits())


def _encoder(config: EncoderConfig, encoder: nn.Module) -> str:
    spec = config.spec()
    widths = [f"{name} {getattr(spec, name)}" for name in ("states", "summary", "maps") if getattr(spec, name)]
    return f"{part_line(config)}: {', '.join(widths)}; {_count(encoder)}"


def _output(task: Task) -> str:
    weight = "" if task.weight == 1 else f", weight {task.weight:g}"
    return f"{_columns(task.output, {})}{weight}"


def _count(module: nn.Module) -> str:
    total = sum(parameter.numel() for parameter in module.parameters())
    learning = sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
    count = f"{total:,} parameter{'s' if total != 1 else ''}"
    return count if learning == total else f"{count}, {total - learning:,} frozen"


def _setting(value: Any) -> str:
    """Value of a setting; settings within it in braces."""
    if isinstance(value, Part):
        return part_line(value, NESTED)
    return cut(f"{{{changes(value)}}}", NESTED) if hasattr(value, "__dataclass_fields__") else short(value, NESTED)
