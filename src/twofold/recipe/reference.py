"""Writes docs/settings.md, every setting with its type, default and docstring: `python -m twofold.recipe.reference`."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import yaml

from twofold.config import NAMES, ROLES, Part, is_base, kind_of, kinds, part_config
from twofold.inputs import InputConfig
from twofold.outputs import OutputConfig
from twofold.recipe.recipe import Recipe
from twofold.training.config import TrainConfig

HEAD = """# Settings

All {count} settings of a recipe and its parts, generated from the docstrings in the code by `make settings`.
[recipes.md](recipes.md) explains how the sections of a recipe work together. *required* marks a setting without a
default. Where another part brings a default of its own, the default names that part.
"""
COLUMNS = "| setting | type | default | description |\n|---|---|---|---|"


@dataclasses.dataclass(frozen=True)
class Setting:
    """One field of a settings dataclass."""

    name: str
    type: Any
    field: dataclasses.Field[Any]
    text: str
    """Docstring under the field; empty if there is none."""


@cache
def settings_of(config: type) -> tuple[Setting, ...]:
    """Settings of a dataclass, inherited ones included."""
    texts = {}
    for ancestor in reversed(config.__mro__):
        if dataclasses.is_dataclass(ancestor):
            texts.update(_docstrings(ancestor))
    hints = get_type_hints(config)
    return tuple(
        Setting(field.name, hints[field.name], field, texts[field.name])
        for field in dataclasses.fields(cast(Any, config))
    )


@cache
def configs() -> tuple[type, ...]:
    """Settings dataclasses that can occur in a recipe: its own, all parts, and the dataclasses nested in them."""
    reached: dict[type, None] = {}

    def add(config: type) -> None:
        if config not in reached:
            reached[config] = None
            for setting in settings_of(config):
                for inner in _dataclasses_in(setting.type):
                    add(inner)

    add(Recipe)
    return tuple(reached)


def page() -> str:
    """Returns the text of docs/settings.md."""
    sections = [config for config in configs() if config in _direct(Recipe)]
    nested = [config for config in configs() if not issubclass(config, Part) and config not in [Recipe, *sections]]
    groups = {"The recipe": [Recipe, *sections]}
    groups |= {role.capitalize(): [part_config(role, kind) for kind in kinds(role)] for role in ROLES[:-1]}
    groups |= {"Nested settings": nested}
    count = sum(len(settings_of(config)) for config in configs())
    parts = [HEAD.format(count=count)]
    for title, members in groups.items():
        parts += [f"## {title}\n", *map(_section, members)]
    return "\n".join(parts)


def _docstrings(config: type) -> dict[str, str]:
    """Docstrings under the fields that a class states itself, by field name."""
    tree = ast.parse(inspect.getsource(inspect.getmodule(config) or config))
    body = next(node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == config.__name__)
    texts = {}
    for node, beneath in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = beneath.value if isinstance(beneath, ast.Expr) else None
            given = isinstance(text, ast.Constant) and isinstance(text.value, str)
            texts[node.target.id] = inspect.cleandoc(cast(Any, text).value) if given else ""
    return texts


def _dataclasses_in(kind: Any) -> Iterator[type]:
    """Settings dataclasses that a value of this type may be."""
    if is_base(kind):
        yield from (part_config(kind.role, name) for name in kinds(kind.role))
    elif isinstance(kind, type) and dataclasses.is_dataclass(kind):
        yield kind
    for argument in get_args(kind):
        yield from _dataclasses_in(argument)


def _direct(config: type) -> set[type]:
    """Dataclasses in the settings of `config` that are not parts."""
    inner = {kind for setting in settings_of(config) for kind in _dataclasses_in(setting.type)}
    return {kind for kind in inner if not issubclass(kind, Part)}


def _section(config: type) -> str:
    source = Path(cast(str, inspect.getsourcefile(config)))
    place = source.relative_to(Path(__file__).parents[1]).as_posix()
    users = [
        f"`{setting.name}` of {_link(user)}"
        for user in configs()
        for setting in settings_of(user)
        if config in _dataclasses_in(setting.type)
    ]
    where = [f"`{config.__name__}` in `src/twofold/{place}`."]
    if users and not issubclass(config, Part):
        where.append(f"Used for {', '.join(users)}.")
    about = (inspect.getdoc(config) or "").replace("\n", " ")
    rows = [
        f"| {' | '.join(_cell(text) for text in row)} |"
        for row in (
            (f"`{setting.name}`", _type(setting.type), _default(config, setting), setting.text)
            for setting in settings_of(config)
        )
    ]
    table = "\n".join([COLUMNS, *rows]) if rows else "No settings."
    return f"### {_title(config)}\n\n{about} {' '.join(where)}\n\n{table}\n"


def _cell(text: str) -> str:
    return text.replace("\n", " ").replace("|", "\\|")


def _title(config: type) -> str:
    """Heading of a dataclass: `Encoder rnn` for a part, else its name without `Config`."""
    if not issubclass(config, Part):
        return config.__name__.removesuffix("Config")
    singular = "Loss" if config.role == "losses" else config.role.capitalize().removesuffix("s")
    return f"{singular} {config.__module__.rpartition('.')[2]}"


def _link(config: type) -> str:
    title = _title(config)
    return f"[{title}](#{title.lower().replace(' ', '-')})"


def _type(kind: Any) -> str:
    """Returns a type in plain words."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " or ".join(f"`{choice}`" for choice in arguments)
    if origin in (Union, UnionType):
        return " or ".join(_type(argument) for argument in arguments if argument is not type(None))
    if origin is tuple:
        count = "" if Ellipsis in arguments else f" of {len(arguments)}"
        return f"a list{count}, each {_type(arguments[0])}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"a mapping of names, each to {_type(arguments[1])}"
    if is_base(kind):
        return f"one of [{kind.role}](#{kind.role})"
    if dataclasses.is_dataclass(kind):
        return _link(cast(type, kind))
    return NAMES.get(kind, "any value")


def _default(config: type, setting: Setting) -> str:
    """Returns the default, and the defaults that other parts bring for it."""
    field = setting.field
    if field.default_factory is not dataclasses.MISSING:
        default = _value(field.default_factory())
    else:
        default = "*required*" if field.default is dataclasses.MISSING else _value(field.default)
    return "; ".join([default, *_brought(config, setting.name)])


def _brought(config: type, name: str) -> Iterator[str]:
    """Defaults of a setting that an input or an output brings in place of the setting's own."""
    for brings in configs():
        if config is TrainConfig and issubclass(brings, InputConfig | OutputConfig):
            brought = brings.training
        elif issubclass(brings, OutputConfig) and brings.input and config is part_config("inputs", brings.input):
            brought = brings.input_settings
        else:
            continue
        if name in brought:
            yield f"{_value(brought[name])} with {_link(brings)}"


def _value(value: Any) -> str:
    """Returns a default as it stands in YAML."""
    if value is None:
        return "none"
    plain = _departures(value)
    return "its defaults" if plain == {} and dataclasses.is_dataclass(value) else f"`{_flow(plain)}`"


def _flow(plain: Any) -> str:
    """Returns plain values as YAML in one line."""
    return yaml.safe_dump([plain], default_flow_style=True, sort_keys=False, width=1_000).strip()[1:-1]


def _departures(value: Any) -> Any:
    """Plain values of settings that depart from their defaults."""
    if isinstance(value, tuple):
        return [_departures(member) for member in value]
    if not dataclasses.is_dataclass(value):
        return value
    plain = {"kind": kind_of(value)} if isinstance(value, Part) else {}
    fresh = type(cast(Any, value))()
    names = [field.name for field in dataclasses.fields(value)]
    changed = {name: getattr(value, name) for name in names if getattr(value, name) != getattr(fresh, name)}
    return plain | {name: _departures(inner) for name, inner in changed.items()}


if __name__ == "__main__":
    print(page(), end="")
