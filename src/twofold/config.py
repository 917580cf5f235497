"""Settings as typed objects: plain values in, frozen dataclasses out, every mistake named with its place."""

from __future__ import annotations

import dataclasses
import importlib
import math
import pkgutil
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar, Union, get_args, get_origin

import cattrs
from cattrs.errors import ForbiddenExtraKeysError

from twofold.errors import SeveralErrors, TwofoldError, did_you_mean, one_line

T = TypeVar("T")
Role = Literal["encoders", "decoders"]
Writes = Literal["text", "order", "mask", "label", "tags", "tree", "tokens"]
LARGEST_SIZE, MOST_LAYERS = 1 << 20, 1_000
"""Larger numbers in a part's settings are mistakes that no memory could hold."""
SHARES = ("dropout", "smoothing")
"""How the names of settings end that are a share of something, never all of it."""


LONGEST_NAME = 100
"""Characters of a name that is unknown here, as an error shows it."""
LARGEST = 10**300
"""Whole numbers from here on are no floats."""


class Part:
    """Base of every part's `Config`, so that a field can say that it holds one."""


@dataclasses.dataclass(frozen=True)
class EncoderPart(Part):
    """Base of every encoder's `Config`."""

    reads: ClassVar[Literal["text", "image"]] = "text"
    """The type of its input."""

    def gives(self) -> frozenset[str]:
        """The fields of `Hidden` that it can fill, known without loading anything."""
        spec: Any = self.spec()  # type: ignore[attr-defined]
        found: frozenset[str] = spec.gives()
        return found

    def settled(self) -> Self:
        """With all that must be known to build it again where the weights it started from are not at hand."""
        return self

    def own_tokenizer(self) -> Any:
        """The tokenizer that belongs to the weights it starts from, if it starts from any."""
        return None

    def longest(self) -> int | None:
        """The most tokens that it can read, where the weights it starts from set such a limit."""
        return None

    def folder(self) -> Path | None:
        """The folder on the disk that the weights it starts from are in, if they are in one."""
        return None

    def fill(self, encoder: Any, anyway: bool = False) -> None:
        """Give a new encoder the weights it starts from; those that do not fit are an error unless `anyway`."""


@dataclasses.dataclass(frozen=True)
class DecoderPart(Part):
    """Base of every decoder's `Config`."""

    writes: ClassVar[Writes] = "text"
    """The type of its output: a text, an order of candidates, a class for each pixel; a label or a number; a tag for
    each word, a tree over the words; or the words themselves, where a text is all there is to learn from."""


@dataclasses.dataclass(frozen=True)
class RankingPart(DecoderPart):
    """Base of every ranking decoder's `Config`."""

    writes: ClassVar[Writes] = "order"
    joined: ClassVar[bool] = False
    """Whether a context and a candidate are read as one text."""


def structure(content: Any, kind: type[T], place: str = "recipe") -> T:
    """`content` as the dataclass `kind`; all mistakes at once, one line each, with their places."""
    try:
        return _converter().structure(content, kind)
    except TwofoldError:
        raise
    except Exception as error:
        raise SeveralErrors(_lines(error, place)) from None


def unstructure(settings: Any) -> Any:
    """Plain values from which `structure` gives `settings` again."""
    if isinstance(settings, Part):
        values = {field.name: unstructure(getattr(settings, field.name)) for field in _fields(settings)}
        return {"kind": kind_of(settings), **values}
    if dataclasses.is_dataclass(settings):
        return {field.name: unstructure(getattr(settings, field.name)) for field in _fields(settings)}
    if isinstance(settings, Mapping):
        return {key: unstructure(value) for key, value in settings.items()}
    if isinstance(settings, (tuple, list)):
        return [unstructure(value) for value in settings]
    return settings


def kinds(role: Role) -> list[str]:
    """The parts that come along: the files of the folder."""
    folder = importlib.import_module(f"twofold.{role}").__path__
    return sorted(module.name for module in pkgutil.iter_modules(folder))


def part_config(role: Role, kind: str) -> type[Part]:
    """The `Config` class of a part: of the file `kind` in the folder, or of a user's own module `package.part`."""
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", kind):
        kind = one_line(kind, LONGEST_NAME)
        raise TwofoldError(f"'{kind}' is not the name of a part; {did_you_mean(kind, kinds(role))}")
    if "." not in kind and kind not in kinds(role):
        kind = one_line(kind, LONGEST_NAME)
        raise TwofoldError(f"there is no {role[:-1]} '{kind}'; {did_you_mean(kind, kinds(role))}")
    name = kind if "." in kind else f"twofold.{role}.{kind}"
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise TwofoldError(
            f"the {role[:-1]} '{kind}' cannot be imported ({error}); is its package installed?"
        ) from error
    config: Any = getattr(module, "Config", None)
    base = EncoderPart if role == "encoders" else DecoderPart
    if not (isinstance(config, type) and issubclass(config, base)):
        raise TwofoldError(f"the module {name} has no `Config` class made from {base.__name__}")
    return config


def kind_of(part: Part) -> str:
    """The `kind` under which a part is named in a recipe."""
    module = type(part).__module__
    package, _, name = module.rpartition(".")
    return name if package in ("twofold.encoders", "twofold.decoders") else module


@cache
def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True, detailed_validation=True)
    for kind in (int, float, bool, str):
        converter.register_structure_hook(kind, _strict(kind))
    converter.register_structure_hook(Path, lambda value, _: Path(_strict(str)(value, str)))
    converter.register_structure_hook_func(_is_union, lambda value, kind: _structure_union(converter, value, kind))
    converter.register_structure_hook_func(_is_literal, _structure_literal)
    converter.register_structure_hook_func(
        lambda kind: kind is EncoderPart, lambda value, _: _structure_part(converter, value, "encoders")
    )
    converter.register_structure_hook_func(
        lambda kind: kind is DecoderPart, lambda value, _: _structure_part(converter, value, "decoders")
    )
    return converter


def _strict(kind: type) -> Any:
    def hook(value: Any, _: Any) -> Any:
        if kind is float and type(value) is int:
            value = float(value) if abs(value) < LARGEST else math.inf
        if type(value) is not kind:
            names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
            raise ValueError(f"{value!r} is not {names[kind]}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{value} is not a finite number")
        return value

    return hook


def _structure_part(converter: cattrs.Converter, value: Any, role: Role) -> Any:
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        folder = f"; there is no folder '{value}'" if isinstance(value, str) else ""
        raise ValueError(f"needs a `kind`; known are {', '.join(kinds(role))}{folder}")
    try:
        config = part_config(role, value["kind"])
    except TwofoldError as error:
        raise ValueError(str(error)) from None
    part = converter.structure({key: item for key, item in value.items() if key != "kind"}, config)
    _check_numbers(part)
    return part


def _check_numbers(part: Part) -> None:
    """In every part, whole numbers are sizes and others are shares, unless its own `Config` says more."""
    for field in _fields(part):
        value = getattr(part, field.name)
        for number in value if isinstance(value, tuple | list) else (value,):
            most = MOST_LAYERS if field.name in ("layers", "blocks") else LARGEST_SIZE
            if type(number) is int and number > most:
                raise ValueError(f"{field.name} must be at most {most:,}, not {number}")
        if type(value) is int and value < 1:
            raise ValueError(f"{field.name} must be at least 1, not {value}")
        if field.name.endswith(SHARES) and not 0 <= value < 1:
            raise ValueError(f"{field.name} must be at least 0 and below 1, not {value}")
        if field.name.endswith("sampling") and not 0 <= value <= 1:
            raise ValueError(f"{field.name} must be from 0 to 1, not {value}")


def _is_union(kind: Any) -> bool:
    return get_origin(kind) is Union or type(kind).__name__ == "UnionType"


def _structure_union(converter: cattrs.Converter, value: Any, kind: Any) -> Any:
    if value is None and type(None) in get_args(kind):
        return None
    choices = [choice for choice in get_args(kind) if choice is not type(None)]
    for choice in choices[:-1]:
        origin = get_origin(choice) or choice
        if isinstance(origin, type) and isinstance(value, dict if issubclass(origin, Mapping) else origin):
            return converter.structure(value, choice)
    return converter.structure(value, choices[-1])


def _is_literal(kind: Any) -> bool:
    return get_origin(kind) is Literal


def _structure_literal(value: Any, kind: Any) -> Any:
    for choice in get_args(kind):
        if type(value) is type(choice) and value == choice:
            return value
    choices = [str(choice) for choice in get_args(kind)]
    raise ValueError(f"{value!r} is not known; {did_you_mean(str(value), choices)}")


def _lines(error: BaseException, place: str) -> list[str]:
    """One line for each leaf of cattrs' tree of errors."""
    if isinstance(error, ForbiddenExtraKeysError):
        known = [field.name for field in _fields(error.cl)]
        known += ["target", "weight"] if place.startswith("recipe.decoders.") and issubclass(error.cl, Part) else []
        unknown = sorted(one_line(str(key), LONGEST_NAME) for key in error.extra_fields)
        return [f"{place} has no '{key}'; {did_you_mean(key, known)}" for key in unknown]
    if isinstance(error, BaseExceptionGroup):
        return [line for inner in error.exceptions for line in _lines(inner, place + _step(inner))]
    if isinstance(error, KeyError):
        return [f"{place}: '{error.args[0]}' is missing"]
    if isinstance(error, TypeError) and "required positional argument" in str(error):
        names = re.findall(r"'(\w+)'", str(error))
        return [f"{place}: '{name}' is missing" for name in names]
    if isinstance(error, (TypeError, AttributeError)):
        return [f"{place}: not of the form that belongs here"]
    return [f"{place}: {line}" for line in str(error).splitlines()]


def _step(error: BaseException) -> str:
    for note in getattr(error, "__notes__", ()):
        name = getattr(note, "name", None)
        if name is not None:
            return "" if name == "part" else f".{name}"  # a recipe writes a part's settings beside its target
        index = getattr(note, "index", None)
        if index is not None:
            return f".{index}" if isinstance(index, str) else f"[{index}]"
    return ""


def _fields(settings: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(settings)
