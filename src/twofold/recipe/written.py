"""Recipes as people write them: what is left out is brought by the parts that are named."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twofold.config import Part, Role, kind_of, kinds, part_config, unstructure
from twofold.decoders import DecoderConfig
from twofold.encoders import EncoderConfig
from twofold.errors import TwofoldError
from twofold.inputs import InputConfig
from twofold.model.config import MAIN, Task
from twofold.model.saved import is_backbone, read
from twofold.outputs import OutputConfig
from twofold.types import InputBatch

Content = dict[str, Any]


def expanded(content: Content) -> Content:
    """Plain values as the dataclass has them: each decoder with its output, and the defaults that the parts bring."""
    content = _with_encoder(content)
    tasks = _tasks(content)
    outputs = [_config("outputs", task.get("output")) for task in tasks.values()]
    input = _input(content, [output for output in outputs if issubclass(output, OutputConfig)])
    kind = _config("inputs", input)
    train: Content = {}
    for part in (kind, *outputs):
        train |= getattr(part, "training", {})
    given = content.get("train")
    left = ("decoder", "output", "target", "source", "decoders", "input", "train")
    rest = {key: value for key, value in content.items() if key not in left}
    merged = {**train, **given} if isinstance(given, dict) else (train if given is None else given)
    return {**rest, "input": input, "tasks": tasks, "train": merged}


def as_written(content: Content) -> Content:
    """The other way round: plain values of a recipe as they would stand in YAML, every setting spelled out."""
    content = {key: value for key, value in content.items() if value is not None}
    tasks = content.pop("tasks")
    if list(tasks) == [MAIN] and tasks[MAIN]["weight"] == 1.0:
        written = {"decoder": tasks[MAIN]["decoder"], "output": tasks[MAIN]["output"]}
    else:
        several = {name: {**task["decoder"], "output": task["output"]} for name, task in tasks.items()}
        written = {"decoders": {name: {**part, "weight": tasks[name]["weight"]} for name, part in several.items()}}
    first = {name: content.pop(name) for name in ("data", "input", "encoder")}
    return {**first, **written, **content}


def place_as_written(line: str, content: Content) -> str:
    """An error's place as it stands in the YAML that holds `content`."""
    place, colon, rest = line.partition(": ")
    if isinstance(content.get("decoders"), dict):
        place = re.sub(r"^recipe\.tasks\.(\w+)(\.decoder\b)?", r"recipe.decoders.\1", place)
    else:
        place = re.sub(rf"^recipe\.tasks\.{MAIN}\b", "recipe", place)
    for column, short in _short_names(content).items():
        if place == column or place.startswith(f"{column}["):
            place = place.replace(column, short, 1)
    return f"{place}{colon}{rest}"


def _short_names(content: Content) -> dict[str, str]:
    """Where a column is named in short: the place of the column, and the place where it is written."""
    names = {}
    if content.get("source") is not None:
        names["recipe.input.column"] = "recipe.source"
    if content.get("target") is not None:
        names["recipe.output.column"] = "recipe.target"
    several = content.get("decoders")
    for name, given in several.items() if isinstance(several, dict) else ():
        if isinstance(given, dict) and given.get("target") is not None:
            names[f"recipe.decoders.{name}.output.column"] = f"recipe.decoders.{name}.target"
    return names


def check_targets(content: Content, tasks: Mapping[str, Task]) -> None:
    """Refuse one of several decoders of which nothing says what it learns from: by default all would learn the same."""
    for name, given in (content.get("decoders") or {}).items():
        if tasks[name].output.columns() and not given.keys() & {"output", "target"}:
            kind = kind_of(tasks[name].decoder)
            raise TwofoldError(f"recipe.decoders.{name}: the decoder '{kind}' needs a column to learn from: target")


def _tasks(content: Content) -> dict[str, Content]:
    """Each decoder by its name, with its output."""
    several, single = content.get("decoders"), content.get("decoder")
    if (several is None) == (single is None):
        raise TwofoldError("recipe: give either `decoder` or `decoders`")
    if several is None:
        output, target = content.get("output"), content.get("target")
        return {MAIN: {"decoder": single, "output": _output(single, output, target, "recipe")}}
    if not isinstance(several, dict) or not several:
        raise TwofoldError("recipe.decoders: a mapping of names to decoders")
    for name in ("output", "target"):
        if content.get(name) is not None:
            raise TwofoldError(f"recipe.{name}: with `decoders`, each has its own; write decoders.NAME.{name}")
    tasks = {}
    for name, given in several.items():
        if not isinstance(given, dict):
            raise TwofoldError(f"recipe.decoders.{name}: needs `kind` and `target`")
        decoder = {key: value for key, value in given.items() if key not in ("output", "target", "weight")}
        output = _output(decoder, given.get("output"), given.get("target"), f"recipe.decoders.{name}")
        tasks[name] = {"decoder": decoder, "output": output}
        if "weight" in given:
            tasks[name]["weight"] = given["weight"]
    return tasks


def _output(decoder: Any, output: Any, target: Any, place: str) -> Any:
    """The output that a decoder writes; `target` is short for its column."""
    if output is not None and not isinstance(output, dict):
        return output  # what is wrong with it is said when the recipe is read
    default = _config("decoders", decoder)
    kind = default.output if issubclass(default, DecoderConfig) else "text"
    content = {"kind": kind, **(output or {})}
    config = _config("outputs", content)
    for name, default_part in config.parts.items() if issubclass(config, OutputConfig) else ():
        if isinstance(content.get(name, {}), dict):
            content[name] = {**default_part, **content.get(name, {})}
    if target is not None:
        if issubclass(config, OutputConfig) and "column" not in (field.name for field in dataclasses.fields(config)):
            raise TwofoldError(f"{place}: target is short for output.column, which '{content['kind']}' does not have")
        if "column" in content:
            raise TwofoldError(f"{place}: target is short for output.column; give one of the two")
        content["column"] = target
    return content


def _input(content: Content, outputs: list[type[OutputConfig]]) -> Any:
    """The input that the outputs are told from; `source` is short for its column, two columns are a pair."""
    given, source = content.get("input"), content.get("source")
    if given is not None and not isinstance(given, dict):
        return given
    encoder = _config("encoders", content.get("encoder"))
    default = encoder.input if issubclass(encoder, EncoderConfig) else "text"
    asked = [output.input for output in outputs if output.input is not None]
    reads = encoder.reads if issubclass(encoder, EncoderConfig) else None
    suited = [kind for kind in asked if _readable(kind, reads)] or [default]
    kind = suited[0]
    if isinstance(source, list) and "kind" not in (given or {}):
        kind = _kind_of_several(source, reads, kind)
    result: Content = {"kind": kind}
    for output in outputs:
        if output.input == (given or {}).get("kind", kind):
            result |= output.input_settings
    result |= given or {}
    if source is not None:
        if "column" in (given or {}):
            raise TwofoldError("recipe: source is short for input.column; give one of the two")
        result["column"] = source
    return result


def _kind_of_several(columns: list[Any], reads: type[InputBatch] | None, default: str) -> str:
    """The kind of input that reads so many texts; where the encoder reads no texts, its own kind."""
    known = {kind: getattr(part_config("inputs", kind), "texts", 1) for kind in kinds("inputs")}
    several = [kind for kind, texts in known.items() if texts == len(columns) > 1]
    if several:
        return next((kind for kind in several if _readable(kind, reads)), default)
    raise TwofoldError(f"recipe.source: {columns}: give one column, or two that are read as a pair: [a, b]")


def _readable(kind: str, reads: type[InputBatch] | None) -> bool:
    config = part_config("inputs", kind)
    return reads is None or (issubclass(config, InputConfig) and issubclass(config.gives, reads))


def _with_encoder(content: Content) -> Content:
    """A folder in the place of the encoder stands for its settings and the weights to start from."""
    folder = content.get("encoder")
    if not isinstance(folder, str) or not Path(folder).is_dir():
        return content
    if content.get("start") not in (None, folder):
        raise TwofoldError(f"recipe.start: {content['start']}, but the encoder is {folder}; give one of the two")
    if is_backbone(Path(folder)):
        return {**content, "encoder": {"kind": "pretrained", "name": folder}}
    encoder = read(Path(folder), allow_code=False).config.encoder
    if not _writes_text(content):
        encoder = encoder.alone()  # there is no text that could be begun
    return {**content, "encoder": unstructure(encoder), "start": folder}


def _writes_text(content: Content) -> bool:
    several = content.get("decoders")
    written = [content.get("decoder"), *(several.values() if isinstance(several, dict) else ())]
    configs = [_config("outputs", _output(decoder, None, None, "recipe")) for decoder in written]
    return any(issubclass(config, OutputConfig) and config.writes_text for config in configs)


def _config(role: Role, content: Any) -> type[Part]:
    """The settings class of a part that a recipe names; what is wrong with it is said when the recipe is read."""
    kind = content.get("kind") if isinstance(content, dict) else None
    try:
        return part_config(role, kind) if isinstance(kind, str) else Part
    except TwofoldError:
        return Part
