"""Recipes as files: YAML as people mean it, changes from the command line, and the packaged recipes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from twofold.errors import TwofoldError, did_you_mean
from twofold.storage import refuse_special
from twofold.storage.encodings import conversion

BOOL, FLOAT = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:float"
LARGEST_RECIPE = 1_000_000
MOST_VALUES = 100_000
"""Maximum number of values of a recipe, aliases written out."""


class _Loader(yaml.SafeLoader):
    """Reads YAML as people mean it: 1e-4 is a number, `no` is a word, and a key that stands twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key '{name}' stands twice", key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (BOOL, FLOAT)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(BOOL, re.compile(r"^(?:true|false|True|False)$"), list("tfTF"))
_Loader.add_implicit_resolver(
    FLOAT,
    re.compile(r"^[-+]?(?:\d[\d_]*\.\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|\d[\d_]*[eE][-+]?\d+|\.inf)$"),
    list("-+0123456789."),
)


def read_yaml(path: Path) -> dict[str, Any]:
    """Reads the mapping in a YAML file."""
    try:
        refuse_special(path)
        if path.stat().st_size > LARGEST_RECIPE:
            raise TwofoldError(f"{path}: over {LARGEST_RECIPE:,} bytes; this is not a recipe")
        text = path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        raise TwofoldError(f"{path}: no such recipe; `twofold list` shows those that come along") from None
    except UnicodeDecodeError as error:
        remedy = conversion(path, path.read_bytes())
        raise TwofoldError(f"{path}: not readable as UTF-8 text ({error.reason}){remedy}") from error
    except OSError as error:
        raise TwofoldError(f"{path}: not readable as UTF-8 text ({error})") from error
    content = parse_yaml(text, str(path))
    if not isinstance(content, dict):
        raise TwofoldError(f"{path}: a recipe is a mapping, for example `encoder: {{kind: rnn}}`")
    return content


def parse_yaml(text: str, place: str) -> Any:
    """Parses a piece of YAML."""
    try:
        content = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
        count = _values(content, {})
    except RecursionError:
        raise TwofoldError(f"{place}: not YAML (nested too deep)") from None
    except (yaml.YAMLError, ValueError, TypeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark else ""
        reason = " ".join(str(getattr(error, "problem", None) or error).split())
        raise TwofoldError(f"{place}{where}: not YAML ({reason})") from error
    if count > MOST_VALUES:
        raise TwofoldError(f"{place}: more than {MOST_VALUES:,} values with its aliases written out; write fewer")
    return content


def _values(content: Any, counted: dict[int, int]) -> int:
    """Counts values, those of an alias as often as it stands there; each alias is visited once."""
    if not isinstance(content, dict | list):
        return 1
    if id(content) not in counted:
        counted[id(content)] = -1  # until it is known
        inner = content.values() if isinstance(content, dict) else content
        counted[id(content)] = 1 + sum(_values(value, counted) for value in inner)
    if counted[id(content)] < 0:
        raise ValueError("an alias that contains itself")
    return counted[id(content)]


def to_yaml(content: Mapping[str, Any]) -> str:
    """Writes plain values as YAML, in the given order."""
    return yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True, width=120)


def override(content: dict[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """Applies `key.path=value` changes, as given on the command line, to a copy of `content`."""
    result = dict(content)
    for change in changes:
        path, equals, value = change.partition("=")
        if not equals or not path:
            raise TwofoldError(f"'{change}': a change is written key.path=value, for example train.epochs=3")
        *folders, last = path.split(".")
        place = result
        for name in folders:
            inner = place.get(name, {})
            if not isinstance(inner, dict):
                raise TwofoldError(f"'{change}': recipe.{name} holds a value, not further keys")
            place[name] = dict(inner)  # of an alias only this place is changed
            place = place[name]
        place[last] = parse_yaml(value, f"'{change}'")
    return result


def fill_environment(content: Any, place: str = "", required: bool = True) -> Any:
    """Replaces `${NAME}` in every string by the environment variable NAME.

    required: a variable that is not set is an error; otherwise `${NAME}` stays
    """
    if isinstance(content, dict):
        return {key: fill_environment(value, f"{place}.{key}".lstrip("."), required) for key, value in content.items()}
    if isinstance(content, list):
        return [fill_environment(value, place, required) for value in content]
    if isinstance(content, str):
        return re.sub(r"\$\{(\w+)\}", lambda match: _environment(match, place, required), content)
    return content


def _environment(match: re.Match[str], place: str, required: bool) -> str:
    name = match[1]
    if name not in os.environ:
        if not required:
            return match[0]
        without = f" ({place}=null leaves it out)" if place in ("data.dev", "input.folder") else ""
        raise TwofoldError(
            f"the recipe needs ${{{name}}}, which is not set, for {place}; run again with {name}=/path/to/the/data, "
            f"or with {place}=... of your own{without}"
        )
    return os.environ[name]


def recipe_folder() -> Path:
    """Folder of the packaged recipes: in the package, or in the checkout around it."""
    package = Path(__file__).parents[1]
    inside = package / "recipes"
    return inside if inside.exists() else package.parents[1] / "recipes"


def recipe_names() -> list[str]:
    """Names of the packaged recipes."""
    return sorted(path.stem for path in recipe_folder().glob("*.yaml"))


def find_recipe(name: str) -> Path:
    """Finds the file of a recipe given by path or by name."""
    path = Path(name)
    try:
        there = path.exists()
    except (OSError, ValueError) as error:  # a name that no file can have
        raise TwofoldError(f"{name}: no such recipe ({getattr(error, 'strerror', None) or error})") from None
    if there or path.suffix or len(path.parts) > 1:
        return path
    if name not in recipe_names():
        raise TwofoldError(f"there is no recipe '{name}'; {did_you_mean(name, recipe_names())}")
    return recipe_folder() / f"{name}.yaml"
