"""Reads settings strictly into frozen dataclasses and finds the parts that they name.

`kind: poly` of a decoder is the file decoders/poly.py; a user's own part is a module or a file.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import math
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

import cattrs
from cattrs.cols import homogenous_tuple_structure_factory
from cattrs.errors import AttributeValidationNote, ForbiddenExtraKeysError, IterableValidationNote

from twofold.errors import SeveralErrors, TwofoldError, did_you_mean, one_line
from twofold.storage import refuse_special, sha256

T = TypeVar("T")
Role = Literal["inputs", "outputs", "encoders", "decoders", "losses", "metrics"]
"""Folders in which every file is a kind: `kind: poly` of a decoder is the file decoders/poly.py."""
ROLES: tuple[Role, ...] = get_args(Role)
FILE = ".py"
"""Suffix of a kind that is a user's own file."""
LONGEST_NAME = 100
"""Maximum number of characters of an unknown name shown in an error."""
LARGEST_SIZE, MOST_LAYERS = 1 << 20, 1_000
"""Upper limits of sizes and layer counts in a part's settings; larger values are mistakes."""
SHARES = ("dropout", "smoothing")
"""Suffixes of the names of settings that are fractions and must stay below 1."""
LARGEST = 10**300
"""Smallest integer that no longer fits a float."""
NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
"""Name of each basic type in error messages."""
_FILES: dict[str, Path] = {}
"""Files of users' own parts, by module name."""


@dataclasses.dataclass(frozen=True)
class Part:
    """Base class of every part's `Config`. The base class of each folder sets `role` to the folder's name."""

    role: ClassVar[Role]
    sizes: ClassVar[bool] = False
    """True if integer settings are sizes (at least 1) and fractions must be below 1."""
    may_be_0: ClassVar[tuple[str, ...]] = ()
    """Names of integer settings that may be 0."""


def structure(content: Any, kind: type[T], place: str = "recipe") -> T:
    """Builds the dataclass `kind` from plain values. Reports all errors at once, one line each, with their places."""
    try:
        return _converter().structure(content, kind)
    except TwofoldError:
        raise
    except Exception as error:
        raise SeveralErrors(_lines(error, place)) from None


def unstructure(settings: Any) -> Any:
    """Converts settings to plain values; `structure` is the inverse."""
    if dataclasses.is_dataclass(settings):
        values = {name: unstructure(getattr(settings, name)) for name in _names(settings)}
        return {"kind": kind_of(settings), **values} if isinstance(settings, Part) else values
    if isinstance(settings, Mapping):
        return {key: unstructure(value) for key, value in settings.items()}
    if isinstance(settings, (tuple, list)):
        return [unstructure(value) for value in settings]
    return settings


def kinds(role: Role) -> list[str]:
    """Lists the built-in parts of a role: the files of its folder."""
    return sorted(path.stem for path in (Path(__file__).parent / role).glob("*.py") if path.stem != "__init__")


def kind_of(part: Part) -> str:
    """Returns the `kind` by which a recipe names the part."""
    module = type(part).__module__
    if module in _FILES:
        return str(_FILES[module])
    package, _, name = module.rpartition(".")
    return name if package == f"twofold.{part.role}" else module


def part_config(role: Role, kind: str) -> type[Part]:
    """Returns the `Config` class of a part."""
    module = part_module(role, kind)
    config: Any = getattr(module, "Config", None)
    if not (isinstance(config, type) and issubclass(config, Part) and getattr(config, "role", None) == role):
        base = f"{_singular(role).capitalize()}Config"
        raise TwofoldError(f"the module {module.__name__} has no `Config` class made from {base} (twofold.{role})")
    return config


def part_module(role: Role, kind: str) -> ModuleType:
    """Imports the module of a part: a file of its folder, a user's module `package.part`, or a file `./part.py`."""
    if kind.endswith(FILE):
        return _module_of_file(Path(kind), role)
    shown = one_line(kind, LONGEST_NAME)
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", kind):
        raise TwofoldError(f"'{shown}' is not the name of a part; {did_you_mean(shown, kinds(role))}")
    if "." not in kind and kind not in kinds(role):
        raise TwofoldError(f"there is no {_singular(role)} '{shown}'; {did_you_mean(shown, kinds(role))}")
    try:
        return importlib.import_module(kind if "." in kind else f"twofold.{role}.{kind}")
    except Exception as error:
        missing = isinstance(error, ImportError)
        reason = f"({error}); is its package installed?" if missing else f"({type(error).__name__}: {error})"
        raise TwofoldError(f"the {_singular(role)} '{kind}' cannot be imported {reason}") from error


def _module_of_file(path: Path, role: Role) -> ModuleType:
    """Imports a user's own file. A file with the same content is imported only once."""
    try:
        refuse_special(path)
        name = f"twofold_part_{path.stem}_{sha256(path)[:16]}"
    except OSError as error:
        raise TwofoldError(f"the {_singular(role)} '{path}' cannot be read ({error.strerror or error})") from None
    if name not in sys.modules:
        spec: Any = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look up their module in sys.modules
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            reason = f"({type(error).__name__}: {error})"
            raise TwofoldError(f"the {_singular(role)} '{path}' cannot be imported {reason}") from error
        _FILES[name] = path.resolve()
    _FILES.setdefault(name, path.resolve())
    return sys.modules[name]


def _singular(role: Role) -> str:
    """Returns the singular of a folder's name: `loss` for `losses`."""
    return "loss" if role == "losses" else role.removesuffix("s")


@cache
def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True, detailed_validation=True)
    for kind in NAMES:
        converter.register_structure_hook(kind, _structure_value)
    converter.register_structure_hook(Path, lambda value, _: Path(_structure_value(value, str)))
    converter.register_structure_hook_func(_has_origin(Union, UnionType), _structure_union)
    converter.register_structure_hook_func(_has_origin(Literal), _structure_literal)
    converter.register_structure_hook_func(is_base, _structure_part)
    converter.register_structure_hook_factory(_is_list, _list_hook)
    return converter


def _has_origin(*origins: Any) -> Callable[[Any], bool]:
    return lambda kind: get_origin(kind) in origins


def _structure_value(value: Any, kind: type) -> Any:
    """Checks a basic value strictly: `1` is not a text and `true` is not a number."""
    if kind is float and type(value) is int:
        value = float(value) if abs(value) < LARGEST else math.inf
    if type(value) is not kind:
        remedy = "; give one, not a list" if isinstance(value, list) else ""
        raise ValueError(f"{value!r} is not {NAMES[kind]}{remedy}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a finite number")
    return value


def _structure_literal(value: Any, kind: Any) -> Any:
    choices = get_args(kind)
    if any(type(value) is type(choice) and value == choice for choice in choices):
        return value
    raise ValueError(f"{value!r} is not known; {did_you_mean(str(value), map(str, choices))}")


def _structure_union(value: Any, kind: Any) -> Any:
    if value is None and type(None) in get_args(kind):
        return None
    *choices, last = (choice for choice in get_args(kind) if choice is not type(None))
    for choice in choices:
        origin = get_origin(choice) or choice
        if isinstance(origin, type) and isinstance(value, dict if issubclass(origin, Mapping) else origin):
            return _converter().structure(value, choice)
    return _converter().structure(value, last)


def _is_list(kind: Any) -> bool:
    """Returns True for a tuple type whose values share one type."""
    return get_origin(kind) is tuple and len({*get_args(kind)} - {Ellipsis}) == 1


def _list_hook(kind: Any) -> Any:
    values: Any = tuple[get_args(kind)[0], ...]  # type: ignore[misc]
    structure_items = homogenous_tuple_structure_factory(values, _converter())
    length = None if Ellipsis in get_args(kind) else len(get_args(kind))

    def hook(value: Any, _: Any) -> Any:
        if isinstance(value, Mapping):  # not the list of its keys
            raise ValueError(f"{value!r} is not a list")
        items = [value] if isinstance(value, str) else value  # not the list of its letters
        if length and (not isinstance(items, list | tuple) or len(items) != length):
            raise ValueError(f"{value!r} is not a list of {length} values")
        return structure_items(items, values)

    return hook


def is_base(kind: Any) -> bool:
    """Returns True if a field accepts any part of a folder."""
    return isinstance(kind, type) and issubclass(kind, Part) and "role" in vars(kind)


def _structure_part(value: Any, base: type[Part]) -> Any:
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        folder = f"; there is no folder '{value}'" if isinstance(value, str) else ""
        raise ValueError(f"needs a `kind`; known are {', '.join(kinds(base.role))}{folder}")
    try:
        config = part_config(base.role, value["kind"])
    except TwofoldError as error:
        raise ValueError(str(error)) from None
    part = _converter().structure({key: item for key, item in value.items() if key != "kind"}, config)
    if part.sizes:
        _check_numbers(part)
    return part


def _check_numbers(part: Part) -> None:
    """Checks that integer settings are sizes and other numbers are fractions, unless the part's `Config` says
    otherwise."""
    for name in _names(part):
        value = getattr(part, name)
        most = MOST_LAYERS if name in ("layers", "blocks") else LARGEST_SIZE
        for number in value if isinstance(value, tuple | list) else (value,):
            if type(number) is int and number > most:
                raise ValueError(f"{name} must be at most {most:,}, not {number}")
        least = 0 if name in part.may_be_0 else 1
        if type(value) is int and value < least:
            raise ValueError(f"{name} must be at least {least}, not {value}")
        if name.endswith(SHARES) and not 0 <= value < 1:
            raise ValueError(f"{name} must be at least 0 and below 1, not {value}")
        if name.endswith("sampling") and not 0 <= value <= 1:
            raise ValueError(f"{name} must be from 0 to 1, not {value}")


def _names(settings: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(settings)]


def _lines(error: BaseException, place: str) -> list[str]:
    """Returns one line for each leaf of cattrs' error tree."""
    if isinstance(error, ForbiddenExtraKeysError):
        known = _names(error.cl)
        if place.startswith("recipe.tasks.") and getattr(error.cl, "role", "") == "decoders":
            known += ["target", "output", "weight"]  # a recipe may write these beside the decoder's settings
        if place == "recipe":
            known += ["decoder", "output", "decoders", "source", "target"]
        unknown = sorted(one_line(str(key), LONGEST_NAME) for key in error.extra_fields)
        return [f"{place} has no '{key}'; {_remedy(error.cl, key, known)}" for key in unknown]
    if isinstance(error, BaseExceptionGroup):
        return [line for inner in error.exceptions for line in _lines(inner, place + _step(inner))]
    if isinstance(error, KeyError):
        return [f"{place}: '{error.args[0]}' is missing"]
    if isinstance(error, TypeError) and "required positional argument" in str(error):
        return [f"{place}: '{name}' is missing" for name in re.findall(r"'(\w+)'", str(error))]
    if isinstance(error, (TypeError, AttributeError)):
        return [f"{place}: not of the form that belongs here"]
    return [f"{place}: {line}" for line in str(error).splitlines()]


def _remedy(config: Any, name: str, known: list[str]) -> str:
    """Ends the error about an unknown setting: suggests a similar name, or lists the names and their kinds."""
    tail, role = did_you_mean(name, known), getattr(config, "role", None)
    if role is None or tail.endswith("?"):
        return tail
    having = " or ".join(kind for kind in kinds(role) if name in _names(part_config(role, kind)))
    return f"{tail}; it is a setting of kind: {having}" if having else tail


def _step(error: BaseException) -> str:
    """Returns the part of the place (a key or an index) that this level of the error adds."""
    for note in getattr(error, "__notes__", ()):
        if isinstance(note, AttributeValidationNote):
            return f".{note.name}"
        if isinstance(note, IterableValidationNote):
            return f".{note.index}" if isinstance(note.index, str) else f"[{note.index}]"
    return ""
