"""Recipes as people write them: the named parts bring the defaults of what is left out."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from twofold.config import Part, kind_of, kinds, part_config, unstructure
from twofold.data.named_models import MODELS, folder_of
from twofold.decoders import DecoderConfig, RankingDecoderConfig
from twofold.encoders import EncoderConfig
from twofold.errors import TwofoldError
from twofold.inputs import InputConfig
from twofold.model.config import MAIN, Task
from twofold.model.cross_encoders import Classifier, read_classifier
from twofold.model.saved import is_backbone, read
from twofold.outputs import OutputConfig
from twofold.types import InputBatch

Content = dict[str, Any]
C = TypeVar("C", bound=Part)


def expanded(content: Content) -> Content:
    """Spells out the short forms of a recipe: each decoder with its output, and the defaults that the parts bring."""
    content = _with_encoder(content)
    tasks = _tasks(content)
    outputs = [_config(OutputConfig, task["output"]) for task in tasks.values()]
    input = _input(content, outputs)
    train = content.get("train")
    if train is None or isinstance(train, dict):
        brought = _config(InputConfig, input).training
        train = _merged([brought, *(output.training for output in outputs), train or {}])
    left = ("decoder", "output", "target", "source", "decoders")
    rest = {key: value for key, value in content.items() if key not in left}
    return {**rest, "input": input, "tasks": tasks, "train": train}


def as_written(content: Content) -> Content:
    """Reverses `expanded`: plain values of a recipe as they would stand in YAML, every setting spelled out."""
    content = {key: value for key, value in content.items() if value is not None}
    tasks = content.pop("tasks")
    if list(tasks) == [MAIN] and tasks[MAIN]["weight"] == 1.0:
        written = {name: tasks[MAIN][name] for name in ("decoder", "output")}
    else:
        written = {"decoders": {name: {**task.pop("decoder"), **task} for name, task in tasks.items()}}
    first = {name: content.pop(name) for name in ("data", "input", "encoder")}
    return {**first, **written, **content}


def place_as_written(line: str, content: Content) -> str:
    """Rewrites an error's place as it stands in the YAML that holds `content`, where columns may be named in short."""
    place, colon, rest = line.partition(": ")
    several = content.get("decoders")
    owners: dict[str, Any] = {"recipe": content}
    if isinstance(several, dict):
        place = re.sub(r"^recipe\.tasks\.(\w+)(\.decoder\b)?", r"recipe.decoders.\1", place)
        owners |= {f"recipe.decoders.{name}": given for name, given in several.items()}
    else:
        place = re.sub(rf"^recipe\.tasks\.{MAIN}\b", "recipe", place)
    for owner, given in owners.items():
        for column, short in (("input.column", "source"), ("output.column", "target")):
            named = isinstance(given, dict) and given.get(short) is not None
            if named and place.partition("[")[0] == f"{owner}.{column}":
                place = place.replace(column, short, 1)
    return f"{place}{colon}{rest}"


def check_targets(content: Content, tasks: Mapping[str, Task]) -> None:
    """Refuses one of several decoders that names nothing to learn from: by default all would learn the same."""
    for name, given in (content.get("decoders") or {}).items():
        if tasks[name].output.columns() and not given.keys() & {"output", "target"}:
            kind = kind_of(tasks[name].decoder)
            raise TwofoldError(f"recipe.decoders.{name}: the decoder '{kind}' needs a column to learn from: target")


def _with_encoder(content: Content) -> Content:
    """Replaces a folder or a named model in the place of the encoder by its settings and the weights to start from."""
    name = content.get("encoder")
    if not isinstance(name, str) or not (name in MODELS or Path(name).is_dir()):
        return content
    if content.get("start") not in (None, name):
        raise TwofoldError(f"recipe.start: {content['start']}, but the encoder is {name}; give one of the two")
    if name in MODELS:
        return _with_scores({**content, "encoder": dict(MODELS[name].encoder)}, name)
    if is_backbone(Path(name)):
        return _with_scores({**content, "encoder": {"kind": "pretrained", "name": name}}, name)
    encoder = read(Path(name), allow_code=False).config.encoder
    several = content.get("decoders")
    decoders = several.values() if isinstance(several, dict) else [content.get("decoder")]
    kinds_written = [_config(DecoderConfig, decoder).output for decoder in decoders]
    if not any(_config(OutputConfig, {"kind": kind}).writes_text for kind in kinds_written):
        encoder = encoder.alone()  # there is no text that could be begun
    return {**content, "encoder": unstructure(encoder), "start": name}


def _with_scores(content: Content, name: str) -> Content:
    """Adds the settings and weights of the score, if a cross-encoder takes its encoder from another cross-encoder and
    has no settings of its own for them."""
    decoder = content.get("decoder")
    config = _config(DecoderConfig, decoder)
    if not isinstance(decoder, dict) or not issubclass(config, RankingDecoderConfig) or not config.joined:
        return content
    if decoder.keys() & {"compare", *Classifier.decides} or (classifier := read_classifier(folder_of(name))) is None:
        return content
    return {**content, "decoder": {**decoder, **unstructure(classifier.settings())}, "start": name}


def _tasks(content: Content) -> dict[str, Content]:
    """Returns each decoder by its name, with its output."""
    several, single = content.get("decoders"), content.get("decoder")
    if (several is None) == (single is None):
        raise TwofoldError("recipe: give either `decoder` or `decoders`")
    if several is None:
        return {MAIN: {"decoder": single, "output": _output(single, content, "recipe")}}
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
        weight = {"weight": given["weight"]} if "weight" in given else {}
        tasks[name] = {"decoder": decoder, "output": _output(decoder, given, f"recipe.decoders.{name}"), **weight}
    return tasks


def _output(decoder: Any, written: Content, place: str) -> Any:
    """Returns the output that a decoder writes; `target` is short for its column."""
    output, target = written.get("output"), written.get("target")
    if output is not None and not isinstance(output, dict):
        return output  # what is wrong with it is said when the recipe is read
    content = {"kind": _config(DecoderConfig, decoder).output, **(output or {})}
    config = _config(OutputConfig, content)
    for name, defaults in config.parts.items():
        given = content.get(name, {})
        if isinstance(given, dict) and given.get("kind", defaults["kind"]) == defaults["kind"]:
            content[name] = {**defaults, **given}
    if target is not None:
        if config is not OutputConfig and "column" not in (field.name for field in dataclasses.fields(config)):
            raise TwofoldError(f"{place}: target is short for output.column, which '{content['kind']}' does not have")
        if "column" in content:
            raise TwofoldError(f"{place}: target is short for output.column; give one of the two")
        content["column"] = target
    return content


def _input(content: Content, outputs: list[type[OutputConfig]]) -> Any:
    """Returns the input that suits encoder and outputs; `source` is short for its column, two columns are a pair."""
    given, source = content.get("input"), content.get("source")
    if given is not None and not isinstance(given, dict):
        return given
    given = given or {}
    encoder = _config(EncoderConfig, content.get("encoder"))
    reads = InputBatch if encoder is EncoderConfig else encoder.reads  # an unknown encoder may read anything
    asked = [output.input for output in outputs if output.input is not None]
    kind = _first_readable(asked, reads, encoder.input)
    if isinstance(source, list) and "kind" not in given:
        pairs = [kind for kind in kinds("inputs") if _config(InputConfig, {"kind": kind}).texts == len(source) > 1]
        if not pairs:
            raise TwofoldError(f"recipe.source: {source}: give one column, or two that are read as a pair: [a, b]")
        kind = _first_readable(pairs, reads, kind)
    kind = given.get("kind", kind)
    suited = [output.input_settings for output in outputs if output.input == kind]
    result = _merged([{"kind": kind}, *suited, given])
    if source is not None:
        if "column" in given:
            raise TwofoldError("recipe: source is short for input.column; give one of the two")
        result["column"] = source
    return result


def _first_readable(asked: list[str], reads: type[InputBatch], default: str) -> str:
    """Returns the first kind of input that gives what an encoder reads."""
    for kind in asked:
        config = part_config("inputs", kind)
        if issubclass(config, InputConfig) and issubclass(config.gives, reads):
            return kind
    return default


def _merged(settings: Iterable[Mapping[str, Any]]) -> Content:
    """Merges settings into one mapping; the last of those with the same name holds."""
    return {name: value for given in settings for name, value in given.items()}


def _config(base: type[C], content: Any) -> type[C]:
    """Returns the settings class of a named part, or its base; what is wrong is said when the recipe is read."""
    kind = content.get("kind") if isinstance(content, dict) else None
    with contextlib.suppress(TwofoldError):
        config = part_config(base.role, kind) if isinstance(kind, str) else base
        if issubclass(config, base):
            return config
    return base
