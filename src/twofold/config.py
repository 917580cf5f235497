"""Recipes as typed objects: YAML in, frozen dataclasses out, every mistake named with its place."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import pkgutil
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import cattrs
import yaml
from cattrs.errors import ForbiddenExtraKeysError

from twofold.errors import TwofoldError, did_you_mean

T = TypeVar("T")
LARGEST_RECIPE = 1_000_000
Role = Literal["encoders", "decoders"]
SHARES = ("dropout", "smoothing")
"""How the names of settings end that are a share of something, never all of it."""


# --- YAML ---------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """YAML as people mean it: 1e-4 is a number, `no` is a word, a key stands once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key '{name}' stands twice", key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern) for tag, pattern in resolvers if tag not in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:float")
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false|True|False)$"), list("tfTF"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:\d[\d_]*\.\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|\d[\d_]*[eE][-+]?\d+|\.inf)$"),
    list("-+0123456789."),
)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file."""
    try:
        if path.stat().st_size > LARGEST_RECIPE:
            raise TwofoldError(f"{path}: over {LARGEST_RECIPE:,} bytes; this is not a recipe")
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise TwofoldError(f"{path}: no such recipe; `twofold list` shows those that come along") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TwofoldError(f"{path}: not readable as UTF-8 text ({error})") from error
    content = parse_yaml(text, str(path))
    try:
        json.dumps(content, default=str, skipkeys=True)
    except (ValueError, RecursionError):
        raise TwofoldError(f"{path}: an alias that contains itself") from None
    if not isinstance(content, dict):
        raise TwofoldError(f"{path}: a recipe is a mapping, for example `encoder: {{kind: rnn}}`")
    return content


def parse_yaml(text: str, place: str) -> Any:
    """The value of a piece of YAML."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark else ""
        reason = " ".join(str(getattr(error, "problem", None) or error).split())
        raise TwofoldError(f"{place}{where}: not YAML ({reason})") from error


def to_yaml(content: Mapping[str, Any]) -> str:
    """Plain YAML of plain values, in the given order."""
    return yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True, width=120)


def override(content: dict[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """Apply `key.path=value` changes, as given on the command line, to a copy of `content`."""
    result: dict[str, Any] = _copy(content)
    for change in changes:
        path, equals, value = change.partition("=")
        if not equals or not path:
            raise TwofoldError(f"'{change}': a change is written key.path=value, for example train.epochs=3")
        *folders, last = path.split(".")
        place = result
        for name in folders:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise TwofoldError(f"'{change}': recipe.{name} holds a value, not further keys")
        place[last] = parse_yaml(value, f"'{change}'")
    return result


def fill_environment(content: Any) -> Any:
    """Replace `${NAME}` in every string by the environment variable NAME."""
    if isinstance(content, dict):
        return {key: fill_environment(value) for key, value in content.items()}
    if isinstance(content, list):
        return [fill_environment(value) for value in content]
    if isinstance(content, str):
        return re.sub(r"\$\{(\w+)\}", _environment, content)
    return content


def _environment(match: re.Match[str]) -> str:
    name = match[1]
    if name not in os.environ:
        raise TwofoldError(f"the recipe needs ${{{name}}}, which is not set; run again with {name}=/path/to/the/data")
    return os.environ[name]


def _copy(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _copy(value) for key, value in content.items()}
    return content


# --- Recipes that come along ---------------------------------------------------------------------


def recipe_folder() -> Path:
    """Where the recipes lie that come along: in the package, or in the checkout around it."""
    inside = Path(__file__).parent / "recipes"
    return inside if inside.exists() else Path(__file__).parents[2] / "recipes"


def recipe_names() -> list[str]:
    """The recipes that come along."""
    return sorted(path.stem for path in recipe_folder().glob("*.yaml"))


def find_recipe(name: str) -> Path:
    """The file of a recipe given by path or by name."""
    path = Path(name)
    if path.exists() or path.suffix or len(path.parts) > 1:
        return path
    if name not in recipe_names():
        raise TwofoldError(f"there is no recipe '{name}'; {did_you_mean(name, recipe_names())}")
    return recipe_folder() / f"{name}.yaml"


# --- Typed settings -----------------------------------------------------------------------------


class Part:
    """Base of every part's `Config`, so that a field can say that it holds one."""


@dataclasses.dataclass(frozen=True)
class EncoderPart(Part):
    """Base of every encoder's `Config`."""


@dataclasses.dataclass(frozen=True)
class DecoderPart(Part):
    """Base of every decoder's `Config`."""


def structure(content: Any, kind: type[T], place: str = "recipe") -> T:
    """`content` as the dataclass `kind`; all mistakes at once, one line each, with their places."""
    try:
        return _converter().structure(content, kind)
    except TwofoldError:
        raise
    except Exception as error:
        raise TwofoldError("\n".join(dict.fromkeys(_lines(error, place)))) from None


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
        raise TwofoldError(f"'{kind}' is not the name of a part; {did_you_mean(kind, kinds(role))}")
    if "." not in kind and kind not in kinds(role):
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
            return float(value)
        if type(value) is not kind:
            names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
            raise ValueError(f"{value!r} is not {names[kind]}")
        return value

    return hook


def _structure_part(converter: cattrs.Converter, value: Any, role: Role) -> Any:
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise ValueError(f"needs a `kind`; known are {', '.join(kinds(role))}")
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
        return [f"{place} has no '{key}'; {did_you_mean(key, known)}" for key in sorted(map(str, error.extra_fields))]
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
            return f".{name}"
        index = getattr(note, "index", None)
        if index is not None:
            return f".{index}" if isinstance(index, str) else f"[{index}]"
    return ""


def _fields(settings: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(settings)
