"""Plain values in, frozen dataclasses out: strict, and every mistake is named with its place."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import cattrs
from cattrs.cols import homogenous_tuple_structure_factory
from cattrs.errors import ForbiddenExtraKeysError

from twofold.config.parts import LONGEST_NAME, Part, Role, kind_of, kinds, part_config
from twofold.errors import SeveralErrors, TwofoldError, did_you_mean, one_line

T = TypeVar("T")
LARGEST_SIZE, MOST_LAYERS = 1 << 20, 1_000
"""Larger numbers in a part's settings are mistakes that no memory could hold."""
SHARES = ("dropout", "smoothing")
"""How the names of settings end that are a share of something, never all of it."""
LARGEST = 10**300
"""Whole numbers from here on are no floats."""


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


@cache
def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True, detailed_validation=True)
    for kind in (int, float, bool, str):
        converter.register_structure_hook(kind, _strict(kind))
    converter.register_structure_hook(Path, lambda value, _: Path(_strict(str)(value, str)))
    converter.register_structure_hook_func(_is_union, lambda value, kind: _structure_union(converter, value, kind))
    converter.register_structure_hook_func(_is_literal, _structure_literal)
    converter.register_structure_hook_factory(_is_list, lambda kind: _list_hook(converter, kind))
    converter.register_structure_hook_func(_is_base, lambda value, base: _structure_part(converter, value, base.role))
    return converter


def _strict(kind: type) -> Any:
    def hook(value: Any, _: Any) -> Any:
        if kind is float and type(value) is int:
            value = float(value) if abs(value) < LARGEST else math.inf
        if type(value) is not kind:
            names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
            remedy = "; give one, not a list" if isinstance(value, list) else ""
            raise ValueError(f"{value!r} is not {names[kind]}{remedy}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{value} is not a finite number")
        return value

    return hook


def _is_base(kind: Any) -> bool:
    """Whether a field holds any part of a folder."""
    return isinstance(kind, type) and issubclass(kind, Part) and "role" in vars(kind)


def _structure_part(converter: cattrs.Converter, value: Any, role: Role) -> Any:
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        folder = f"; there is no folder '{value}'" if isinstance(value, str) else ""
        raise ValueError(f"needs a `kind`; known are {', '.join(kinds(role))}{folder}")
    try:
        config = part_config(role, value["kind"])
    except TwofoldError as error:
        raise ValueError(str(error)) from None
    part = converter.structure({key: item for key, item in value.items() if key != "kind"}, config)
    if part.sizes:
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


def _is_list(kind: Any) -> bool:
    """Whether it is a tuple of values of one type, of any length or of its own."""
    return get_origin(kind) is tuple and len({*get_args(kind)} - {Ellipsis}) == 1


def _list_hook(converter: cattrs.Converter, kind: Any) -> Any:
    values: Any = tuple[get_args(kind)[0], ...]  # type: ignore[misc]
    structure_items = homogenous_tuple_structure_factory(values, converter)
    length = None if Ellipsis in get_args(kind) else len(get_args(kind))

    def hook(value: Any, _: Any) -> Any:
        if isinstance(value, Mapping):  # never a list of its keys
            raise ValueError(f"{value!r} is not a list")
        items = [value] if isinstance(value, str) else value  # nor of a text's letters
        if length and (not isinstance(items, list | tuple) or len(items) != length):
            raise ValueError(f"{value!r} is not a list of {length} values")
        return structure_items(items, values)

    return hook


def _is_literal(kind: Any) -> bool:
    return get_origin(kind) is Literal


def _structure_literal(value: Any, kind: Any) -> Any:
    for choice in get_args(kind):
        if type(value) is type(choice) and value == choice:
            return value
    choices = [str(choice) for choice in get_args(kind)]
    raise ValueError(f"{value!r} is not known; {did_you_mean(str(value), choices)}")


def _remedy(config: Any, name: str, known: list[str]) -> str:
    """The tail of an error about an unknown setting: a name near it, or all names and the kinds that have it."""
    tail, role = did_you_mean(name, known), getattr(config, "role", None)
    others = {kind: part_config(role, kind) for kind in kinds(role)} if role and not tail.endswith("?") else {}
    having = [kind for kind, other in others.items() if name in (field.name for field in _fields(other))]
    return f"{tail}; it is a setting of kind: {' or '.join(having)}" if having else tail


def _lines(error: BaseException, place: str) -> list[str]:
    """One line for each leaf of cattrs' tree of errors."""
    if isinstance(error, ForbiddenExtraKeysError):
        known = [field.name for field in _fields(error.cl)]
        if place.startswith("recipe.tasks.") and getattr(error.cl, "role", "") == "decoders":
            known += ["target", "output", "weight"]  # which a recipe writes beside a decoder's settings
        if place == "recipe":
            known += ["decoder", "output", "decoders", "source", "target"]
        unknown = sorted(one_line(str(key), LONGEST_NAME) for key in error.extra_fields)
        return [f"{place} has no '{key}'; {_remedy(error.cl, key, known)}" for key in unknown]
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
        if type(note) is str:  # says no more than the place, and has a method called index
            continue
        name = getattr(note, "name", None)
        if name is not None:
            return f".{name}"
        index = getattr(note, "index", None)
        if index is not None:
            return f".{index}" if isinstance(index, str) else f"[{index}]"
    return ""


def _fields(settings: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(settings)
